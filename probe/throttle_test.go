package probe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSamplingFollowsTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{SampleEvery: 2, Budget: 0.02}, testNAPI(0, 7))
		f.kernel.spent = 80 * time.Millisecond
		got := func() [3]uint32 {
			f.kernel.events[0] += 300
			f.kernel.events[1] += 100
			s := f.next(t)
			if want := 20 * time.Millisecond; s.Probe.Budget != want {
				t.Errorf("budget %v, want %v", s.Probe.Budget, want)
			}
			return [3]uint32{s.Queues[0].SampleEvery, s.Probe.PollEvery, uint32(*s.Probe.Cost / time.Millisecond)}
		}
		// The busiest CPU has three quarters of the events.
		steps := []struct {
			spent time.Duration
			want  [3]uint32
		}{
			{80 * time.Millisecond, [3]uint32{2, 1, 60}},
			{50 * time.Millisecond, [3]uint32{4, 1, 37}},
			{32 * time.Millisecond, [3]uint32{8, 2, 24}},
			// Within the budget, but twice as much would not be.
			{16 * time.Millisecond, [3]uint32{16, 2, 12}},
			{16 * time.Millisecond, [3]uint32{16, 2, 12}},
			{8 * time.Millisecond, [3]uint32{16, 2, 6}},
			{8 * time.Millisecond, [3]uint32{16, 2, 6}},
			{8 * time.Millisecond, [3]uint32{16, 2, 6}},
			{8 * time.Millisecond, [3]uint32{8, 2, 6}},
		}
		for i, step := range steps {
			f.kernel.spent = step.spent
			if diff := cmp.Diff(step.want, got()); diff != "" {
				t.Errorf("step %d: one socket in, one poll in, cost in ms (-want +got):\n%s", i, diff)
			}
		}
		if want := []uint32{0, 1, 1, 1}; !cmp.Equal(want, f.kernel.timed) {
			t.Errorf("poll masks %v, want %v", f.kernel.timed, want)
		}
	})
}

func TestACostFarBelowTheBudgetIsMeasuredSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{Interval: 100 * time.Millisecond}, testNAPI(0, 7))
		for range 300 {
			f.next(t)
		}
		if f.kernel.measured != 3 {
			t.Errorf("measured %d times in 30 seconds, want 3", f.kernel.measured)
		}
	})
}

func TestACostThatCannotBeMeasuredIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		f.kernel.costErr = errors.New("operation not permitted")
		for range 3 {
			if got, want := f.next(t).Probe, (&model.ProbeSample{PollEvery: 1}); !cmp.Equal(want, got) {
				t.Errorf("probe %+v, want %+v", got, want)
			}
		}
		if missing := f.Missing(); len(missing) != 1 || missing[0].Name != signalCost || !errors.Is(missing[0].Err, f.kernel.costErr) {
			t.Errorf("missing %+v, want the cost once", missing)
		}
	})
}

func TestNoBudgetMeansNoMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{Budget: -1}, testNAPI(0, 7))
		f.kernel.spent = time.Second
		for range 30 {
			if got := f.next(t).Queues[0].SampleEvery; got != 1 {
				t.Fatalf("one socket in %d, want all", got)
			}
		}
		if f.kernel.measured != 0 {
			t.Errorf("measured %d times, want never", f.kernel.measured)
		}
	})
}

// Whatever is measured, the masks stay within their bounds, select no more than
// was asked for, and more is sampled again once the cost is low.
func TestThrottleStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Uint32Range(0, maxSampleEvery).Draw(t, "every")
		th := throttle{budget: time.Millisecond, sockets: sampleMask(every)}
		at := time.Duration(0)
		for _, cost := range rapid.SliceOf(rapid.Int64Range(0, 1<<40)).Draw(t, "costs") {
			at += time.Second
			th.note(at, time.Duration(cost))
			if mask := th.socketMask(); mask < th.sockets || mask > maxSampleEvery-1 || mask&(mask+1) != 0 {
				t.Fatalf("mask %#x at level %d for one in %d", mask, th.level, every)
			}
			if th.pollMask() > 1<<(maxLevel/2)-1 {
				t.Fatalf("poll mask %#x", th.pollMask())
			}
		}
		for range calmMeasurements * maxLevel {
			th.note(at, 0)
		}
		if th.level != 0 || th.socketMask() != th.sockets || th.pollMask() != 0 {
			t.Fatalf("level %d after the cost went down", th.level)
		}
	})
}

func TestPlacesHoldWhatTheyTook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := make(places, 16)
		held := make(map[uint32]int)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			id := rapid.Uint32Range(1, 40).Draw(t, "id")
			at, ok := held[id]
			if ok && rapid.Bool().Draw(t, "give up") {
				p[at] = 0
				delete(held, id)
				continue
			}
			got, err := p.take(id)
			if err != nil {
				for i := range probes {
					if p[(int(id)+i)&15] == 0 {
						t.Fatalf("no place for %d although one is free", id)
					}
				}
				continue
			}
			if ok && got != at {
				t.Fatalf("%d moved from %d to %d", id, at, got)
			}
			held[id] = got
		}
		for id, at := range held {
			if got, ok := p.find(id); !ok || got != at || (at-int(id))&15 >= probes {
				t.Fatalf("%d is at %d, found at %d", id, at, got)
			}
		}
	})
}

func TestSaltRotatesAndKeepsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{SampleEvery: 16}, testNAPI(0, 7))
		for range 3 {
			f.next(t)
		}
		if got := len(f.kernel.salts); got != 4 {
			t.Fatalf("salt set %d times in 3 windows, want 4", got)
		}
		for i := 1; i < len(f.kernel.salts); i++ {
			if f.kernel.salts[i][1] != f.kernel.salts[i-1][0] {
				t.Errorf("window %d: earlier salt %#x, want %#x", i, f.kernel.salts[i][1], f.kernel.salts[i-1][0])
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		f.next(t)
		if got := len(f.kernel.salts); got != 1 {
			t.Errorf("salt set %d times although every socket is followed, want once", got)
		}
	})
}

func TestSampleMask(t *testing.T) {
	for every, want := range map[uint32]uint32{0: 0, 1: 0, 2: 1, 3: 3, 4: 3, 5: 7, 64: 63, 65536: 65535} {
		if got := sampleMask(every); got != want {
			t.Errorf("one in %d: mask %#x, want %#x", every, got, want)
		}
	}
}
