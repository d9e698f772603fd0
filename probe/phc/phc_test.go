package phc

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func at(sec int64, nsec uint32) unix.PtpClockTime { return unix.PtpClockTime{Sec: sec, Nsec: nsec} }

// device is a clock that a test moves: what it shows, and how fast it runs.
type device struct {
	phc  uint64
	now  time.Duration
	rate float64 // nanoseconds per nanosecond of the host
}

// run lets time pass and reads the clocks with an error.
func (d *device) run(host, err time.Duration) Reading {
	d.now += host
	d.phc += uint64(math.Round(float64(host) * d.rate))
	return Reading{PHC: d.phc, Monotonic: d.now, Error: err}
}

func TestClockTellsTheHostsTime(t *testing.T) {
	const second = uint64(time.Second)
	for _, test := range []struct {
		name  string
		clock Clock
		stamp uint64
		want  time.Duration
		ok    bool
	}{
		{"of the same moment", Clock{PHC: 37 * second, Monotonic: 5}, 37 * second, 5, true},
		{"of a later one", Clock{PHC: 37 * second, Monotonic: 5}, 37*second + 100, 105, true},
		{"of an earlier one", Clock{PHC: 37 * second, Monotonic: 500}, 37*second - 100, 400, true},
		{"by a slow device", Clock{PHC: 0, Rate: 1 << 32 / 10000}, second, time.Second + 100*time.Microsecond - 1, true},
		{"by a fast device", Clock{PHC: second, Monotonic: time.Second, Rate: -(1 << 32 / 10000)}, 2 * second, 2*time.Second - 100*time.Microsecond, true},
		{"across the wrap of the device's clock", Clock{PHC: math.MaxUint64 - 9, Monotonic: time.Minute}, 10, time.Minute + 20, true},
		{"before the epoch of the device's clock", Clock{PHC: 10, Monotonic: time.Minute}, math.MaxUint64 - 9, time.Minute - 20, true},
		{"at the largest age", Clock{Monotonic: 1}, uint64(MaxAge), MaxAge + 1, true},
		{"beyond it", Clock{}, uint64(MaxAge) + 1, 0, false},
		{"long before", Clock{PHC: uint64(MaxAge) + 1}, 0, 0, false},
		{"by another clock altogether", Clock{PHC: 1796076507 * second, Monotonic: time.Second}, 5 * second, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := test.clock.At(test.stamp)
			if got != test.want || ok != test.ok {
				t.Errorf("%d ns (%v), want %d ns (%v)", got, ok, test.want, test.ok)
			}
		})
	}
}

// Whatever offset and drift a clock has, stamps of the next window are told
// within the error that the clock states.
func TestTrackerFollowsOffsetAndDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := device{
			phc:  rapid.Uint64().Draw(t, "phc"),
			now:  time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "monotonic")),
			rate: 1 + rapid.Float64Range(-500e-6, 500e-6).Draw(t, "drift"),
		}
		window := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(2*time.Second)).Draw(t, "window"))
		reading := time.Duration(rapid.Int64Range(100, 5000).Draw(t, "error of a reading"))
		var tracker Tracker
		for range rapid.IntRange(2, 20).Draw(t, "readings") {
			r := d.run(window, reading)
			r.Monotonic += time.Duration(rapid.Int64Range(-int64(reading), int64(reading)).Draw(t, "wrong by"))
			tracker.Add(r)
		}
		clock, ok := tracker.Clock(2 * window)
		if !ok {
			t.Fatal("no clock after steady readings")
		}
		ahead := time.Duration(rapid.Int64Range(0, int64(2*window)).Draw(t, "ahead"))
		want := d.run(ahead, 0)
		got, ok := clock.At(want.PHC)
		if !ok {
			t.Fatalf("a stamp %v after the reading is refused", ahead)
		}
		// Rounding of the rate and of the device's nanoseconds.
		if off := (got - want.Monotonic).Abs(); off > clock.Error+3 {
			t.Fatalf("wrong by %v, stated %v", off, clock.Error)
		}
	})
}

func TestTrackerForgetsWhatWasBeforeAStep(t *testing.T) {
	steady := func() (*device, *Tracker) {
		d, tracker := &device{phc: 1 << 60, now: time.Hour, rate: 1 + 30e-6}, new(Tracker)
		for range 5 {
			tracker.Add(d.run(time.Second, time.Microsecond))
		}
		return d, tracker
	}
	for _, test := range []struct {
		name string
		step func(*device)
	}{
		{"ahead by a second", func(d *device) { d.phc += uint64(time.Second) }},
		{"back by 37 s", func(d *device) { d.phc -= 37 * uint64(time.Second) }},
		{"by 100 us, which no drift explains", func(d *device) { d.phc += 100_000 }},
		{"back by 100 us", func(d *device) { d.phc -= 100_000 }},
		{"from 2^60 to the epoch", func(d *device) { d.phc = 0 }},
		{"to another rate", func(d *device) { d.rate += 100e-6 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, tracker := steady()
			if _, ok := tracker.Clock(time.Second); !ok {
				t.Fatal("no clock before the step")
			}
			test.step(d)
			tracker.Add(d.run(time.Second, time.Microsecond))
			if c, ok := tracker.Clock(time.Second); ok {
				t.Errorf("a clock right after the step: %+v", c)
			}
			want := d.run(time.Second, time.Microsecond)
			tracker.Add(want)
			clock, ok := tracker.Clock(time.Second)
			if !ok {
				t.Fatal("no clock once it was steady again")
			}
			if got, _ := clock.At(want.PHC); (got - want.Monotonic).Abs() > clock.Error {
				t.Errorf("wrong by %v", got-want.Monotonic)
			}
		})
	}
	t.Run("not for a servo's small corrections", func(t *testing.T) {
		d, tracker := steady()
		for _, change := range []float64{5e-6, -8e-6, 3e-6} {
			d.rate += change
			tracker.Add(d.run(time.Second, time.Microsecond))
			if _, ok := tracker.Clock(time.Second); !ok {
				t.Errorf("a change of %v is taken for a step", change)
			}
		}
	})
}

// A clock that is read so badly that it says nothing of waits is not used, until
// readings over a longer time make up for it.
func TestTrackerHasNoClockThatIsFarOff(t *testing.T) {
	for _, test := range []struct {
		name     string
		err      time.Duration
		readings int
		want     bool
	}{
		{"read within a microsecond", time.Microsecond, 2, true},
		{"read within 60 us, for a second", 60 * time.Microsecond, 2, false},
		{"read within 60 us, for seven seconds", 60 * time.Microsecond, 8, true},
		{"read within a millisecond", time.Millisecond, 8, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, tracker := device{now: time.Hour, rate: 1}, Tracker{}
			for range test.readings {
				tracker.Add(d.run(time.Second, test.err))
			}
			clock, ok := tracker.Clock(3 * time.Second)
			if ok != test.want {
				t.Errorf("clock %+v is used: %v, want %v", clock, ok, test.want)
			}
		})
	}
}

func TestTheShortestComparisonIsUsed(t *testing.T) {
	wide := [3]unix.PtpClockTime{at(10, 0), at(50, 500), at(10, 9000)}
	narrow := [3]unix.PtpClockTime{at(10, 20000), at(50, 20700), at(10, 21000)}
	backwards := [3]unix.PtpClockTime{at(10, 30000), at(50, 30000), at(10, 29000)}
	malformed := [3]unix.PtpClockTime{at(10, 30000), at(50, 1e9), at(10, 30000)}
	for _, test := range []struct {
		name    string
		samples []([3]unix.PtpClockTime)
		count   uint32
		want    comparison
		err     error
	}{
		{"of two", []([3]unix.PtpClockTime){wide, narrow}, 2, comparison{10*time.Second + 20000, 10*time.Second + 21000, 50e9 + 20700}, nil},
		{"of those that were made", []([3]unix.PtpClockTime){wide, narrow}, 1, comparison{10 * time.Second, 10*time.Second + 9000, 50e9 + 500}, nil},
		{"not one in which a clock went back", []([3]unix.PtpClockTime){backwards, wide}, 2, comparison{10 * time.Second, 10*time.Second + 9000, 50e9 + 500}, nil},
		{"not one that is no time", []([3]unix.PtpClockTime){malformed}, 1, comparison{}, ErrClockSet},
		{"of none", nil, 0, comparison{}, ErrClockSet},
		{"of more than there are", nil, 1 << 31, comparison{}, nil},
		{"before the epoch", []([3]unix.PtpClockTime){{at(10, 0), at(-1, 5), at(10, 2)}}, 1, comparison{10 * time.Second, 10*time.Second + 2, math.MaxUint64 - 1e9 + 6}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := unix.PtpSysOffsetExtended{Samples: test.count}
			copy(o.Ts[:], test.samples)
			got, err := bestExtended(&o)
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(comparison{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadingsAreOnCLOCK_MONOTONIC(t *testing.T) {
	c := comparison{before: 1000 * time.Second, after: 1000*time.Second + 2000, phc: 77}
	before := betweenReadings(90*time.Second, 990*time.Second+100, 90*time.Second+200)
	t.Run("by the better offset", func(t *testing.T) {
		after := betweenReadings(101*time.Second, 1001*time.Second+5000, 101*time.Second+10000)
		got, err := c.reading(before, after)
		if err != nil {
			t.Fatal(err)
		}
		want := Reading{PHC: 77, Monotonic: 100*time.Second + 1000, Error: 1000 + 1 + 101}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	t.Run("unless CLOCK_REALTIME was set meanwhile", func(t *testing.T) {
		after := betweenReadings(101*time.Second, 1001*time.Second+1_000_000, 101*time.Second+200)
		if got, err := c.reading(before, after); !errors.Is(err, ErrClockSet) {
			t.Errorf("%+v, error %v", got, err)
		}
	})
}

func TestThisHostsClocksCompare(t *testing.T) {
	first, err := realtimeOffset()
	if err != nil {
		t.Fatal(err)
	}
	second, err := realtimeOffset()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (comparison{}).reading(first, second); err != nil {
		t.Errorf("offsets %+v and %+v: %v", first, second, err)
	}
}

func FuzzBestExtended(f *testing.F) {
	f.Add(uint32(2), int64(10), uint32(5), int64(50), uint32(6), int64(10), uint32(9))
	f.Add(uint32(1<<31), int64(-1), uint32(1e9), int64(math.MaxInt64), uint32(6), int64(math.MinInt64), uint32(9))
	f.Fuzz(func(t *testing.T, count uint32, s1 int64, n1 uint32, s2 int64, n2 uint32, s3 int64, n3 uint32) {
		o := unix.PtpSysOffsetExtended{Samples: count}
		o.Ts[0] = [3]unix.PtpClockTime{at(s1, n1), at(s2, n2), at(s3, n3)}
		c, err := bestExtended(&o)
		if err != nil {
			return
		}
		r, err := c.reading(offset{err: 1}, offset{err: 1})
		if err == nil && (c.after < c.before || r.Error < 0) {
			t.Errorf("%+v gives %+v", c, r)
		}
		var tracker Tracker
		tracker.Add(r)
		tracker.Add(Reading{PHC: r.PHC + 1e9, Monotonic: r.Monotonic + 1e9, Error: r.Error})
		if clock, ok := tracker.Clock(time.Second); ok {
			if at, ok := clock.At(r.PHC + 1e9); ok && at != clock.Monotonic {
				t.Errorf("%+v shows %v at its own reading", clock, at)
			}
		}
	})
}
