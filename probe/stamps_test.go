package probe

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"
	"autotune/probe/phc"

	"golang.org/x/sys/unix"
)

// fakeClocks are hardware clocks, and devices that stamp by them, as a test
// wants them.
type fakeClocks struct {
	start     time.Time
	byIfindex map[int]int
	listErr   error
	openErr   error
	readErr   error
	// ahead is by how much clock 0 is ahead of the host's.
	ahead  time.Duration
	opened int
	closed int
}

func (f *fakeClocks) ReceiveClocks(context.Context) (map[int]int, error) {
	return f.byIfindex, f.listErr
}

func (f *fakeClocks) open(int) (clockDevice, error) {
	if f.openErr != nil {
		return nil, f.openErr
	}
	f.opened++
	return f, nil
}

func (f *fakeClocks) Read() (phc.Reading, error) {
	now := time.Since(f.start)
	return phc.Reading{PHC: uint64(now + f.ahead), Monotonic: now, Error: time.Microsecond}, f.readErr
}

func (f *fakeClocks) Close() error { f.closed++; return nil }

// newStampedFixture is a source on queue 0 (NAPI 7) of a device with a clock. Its
// first reading is that of Open.
func newStampedFixture(t *testing.T, clocks *fakeClocks) *sourceFixture {
	t.Helper()
	f := newFixture(t, Options{Interval: time.Second}, testNAPI(0, 7))
	clocks.start = f.start
	f.stamps = newStamper(clocks, f.interval)
	f.stamps.open = clocks.open
	if err := f.compareClocks(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestClocksAreUsedFromTheSecondReadingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocks := &fakeClocks{byIfindex: map[int]int{2: 0}, ahead: 37 * time.Second}
		f := newStampedFixture(t, clocks)
		var stamped []bool
		for range 3 {
			s := f.next(t)
			stamped = append(stamped, s.Queues[0].Stamps != nil)
		}
		if !slices.Equal(stamped, []bool{false, true, true}) {
			t.Errorf("windows with a clock: %v", stamped)
		}
		c := f.kernel.clocks[len(f.kernel.clocks)-1][f.kernel.followed[7]]
		at, ok := c.clock.At(uint64(time.Since(clocks.start) + clocks.ahead))
		if !ok || at != time.Since(clocks.start) {
			t.Errorf("the clock shows %v (%v), not %v", at, ok, time.Since(clocks.start))
		}
		if want := time.Since(clocks.start) + 3*time.Second; c.until != want {
			t.Errorf("it is used until %v, not %v", c.until, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if clocks.opened != 1 || clocks.closed != 1 {
			t.Errorf("opened %d times, closed %d times", clocks.opened, clocks.closed)
		}
	})
}

func TestClocksThatCannotBeUsedAreNot(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fakeClocks)
		clocks bool
	}{
		{"stamps are switched off", func(c *fakeClocks) { c.byIfindex = nil }, false},
		{"the device cannot be asked", func(c *fakeClocks) { c.byIfindex, c.listErr = nil, unix.EPERM }, false},
		{"the clock is gone", func(c *fakeClocks) { c.readErr = unix.ENODEV }, false},
		{"the clock steps", func(c *fakeClocks) { c.ahead += time.Second }, false},
		{"the clock was set while it was read", func(c *fakeClocks) { c.readErr = phc.ErrClockSet }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clocks := &fakeClocks{byIfindex: map[int]int{2: 0}}
				f := newStampedFixture(t, clocks)
				f.next(t)
				f.next(t)
				test.change(clocks)
				f.next(t)
				if s := f.next(t); (s.Queues[0].Stamps != nil) != test.clocks {
					t.Errorf("stamps %+v", s.Queues[0].Stamps)
				}
				if last := f.kernel.clocks[len(f.kernel.clocks)-1]; !test.clocks && clocks.ahead == 0 && len(last) != 0 {
					t.Errorf("the programs still have %v", last)
				}
			})
		})
	}
}

func TestAClockThatCannotBeOpenedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocks := &fakeClocks{byIfindex: map[int]int{2: 0}, openErr: unix.EACCES}
		f := newStampedFixture(t, clocks)
		if !errors.Is(f.stamps.err, unix.EACCES) {
			t.Errorf("error %v", f.stamps.err)
		}
		f.next(t)
		if s := f.next(t); s.Queues[0].Stamps != nil {
			t.Errorf("stamps %+v", s.Queues[0].Stamps)
		}
		i := slices.IndexFunc(f.Signals(), func(s Signal) bool { return s.Name == signalStamps })
		if i < 0 || f.Signals()[i].Observed {
			t.Errorf("signals %+v", f.Signals())
		}
	})
}

func TestRingWaitIsByHardwareWhereMostPacketsAreStamped(t *testing.T) {
	for _, test := range []struct {
		name                    string
		used, unstamped, refuse uint32
		want                    model.RingWaitSource
	}{
		{"all are", 30, 0, 0, model.RingWaitByHardware},
		{"15 in 16 are", 30, 1, 1, model.RingWaitByHardware},
		{"less are", 30, 2, 1, model.RingWaitByPolls},
		{"only PTP is", 1, 500, 0, model.RingWaitByPolls},
		{"most are refused", 1, 0, 500, model.RingWaitByPolls},
		{"nothing came", 0, 0, 0, model.RingWaitByPolls},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newStampedFixture(t, &fakeClocks{byIfindex: map[int]int{2: 0}})
				f.next(t)
				// What was counted since the counters' type began to wrap.
				d := &f.kernel.delays[f.kernel.followed[7]]
				d.StampedWait.Counts[3] = math.MaxUint32
				f.next(t)
				d.RingWait.Counts[5] += 100
				d.StampedWait.Counts[3] += test.used
				d.Unstamped += uint64(test.unstamped)
				d.Refused += uint64(test.refuse)
				q := f.next(t).Queues[0]
				if got := q.RingWaitSource(); got != test.want {
					t.Errorf("ring wait by %s, want %s; %+v", got, test.want, q.Stamps)
				}
				want := uint64(100)
				if test.want == model.RingWaitByHardware {
					want = uint64(test.used)
				}
				if got := q.RingWait.Count(); got != want {
					t.Errorf("%d waits, want %d", got, want)
				}
				if *q.Stamps != (model.Stamps{Used: uint64(test.used), Absent: uint64(test.unstamped), Refused: uint64(test.refuse)}) {
					t.Errorf("stamps %+v", q.Stamps)
				}
			})
		})
	}
}
