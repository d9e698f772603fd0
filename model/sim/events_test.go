package sim_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
	"autotune/model/sim"
)

// What a window's events add up to is what its sample counts.
func TestSingleEventsSumUpToTheirSample(t *testing.T) {
	for _, name := range []string{"base", "defer50", "suspend20", "fullbusy"} {
		t.Run(name, func(t *testing.T) {
			s := newSimulator(t, sim.Options{
				Case: caseNamed(t, name), Load: sim.Constant(300e3), Seed: 2, Window: 50 * time.Millisecond, Warmup: 20 * time.Millisecond, Events: true,
			})
			loops := map[model.Loop]uint64{}
			for range 3 {
				sample := next(t, s)
				events := s.Events()
				if events[0].From != sample.At-sample.Span || events[len(events)-1].To != sample.At {
					t.Fatalf("events from %v to %v, the window from %v to %v", events[0].From, events[len(events)-1].To, sample.At-sample.Span, sample.At)
				}
				type counts struct{ Polls, Packets, Requests uint64 }
				got, want := make([]counts, len(sample.Queues)), make([]counts, len(sample.Queues))
				for i := range sample.Queues {
					polls := sample.Queues[i].Polls()
					want[i] = counts{polls.Polls, polls.Packets, sample.Queues[i].Service.Count()}
				}
				waits := uint64(0)
				for _, n := range sample.Apps[0].Waits {
					waits += n
				}
				for i := range events {
					e := &events[i]
					if n := max(len(e.Polls), len(e.Waits), len(e.Requests)); n > model.MaxEvents {
						t.Fatalf("%d events of a kind in one span", n)
					}
					for _, p := range e.Polls {
						got[p.Queue.Index].Polls++
						got[p.Queue.Index].Packets += uint64(p.Work)
						loops[p.Loop]++
					}
					waits -= uint64(len(e.Waits))
					for _, r := range e.Requests {
						got[r.Queue.Index].Requests++
						if *r.Receive < r.Ready || *r.Send < *r.Receive {
							t.Fatalf("ready %v, received %v, sent %v", r.Ready, *r.Receive, *r.Send)
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" || waits != 0 {
					t.Fatalf("%d waits too few (-sample +events):\n%s", int64(waits), diff)
				}
			}
			switch {
			case name == "base" && (loops[model.LoopSoftirqTimer] > 0 || loops[model.LoopSoftirq] == 0),
				name == "defer50" && loops[model.LoopSoftirqTimer] < loops[model.LoopSoftirq],
				name == "fullbusy" && loops[model.LoopApplication] == 0:
				t.Errorf("polls by loop: %v", loops)
			}
		})
	}
}

// What arrives one by one arrives at those instants, and windows beside it still
// draw from their rate.
func TestSingleArrivalsTakeThePlaceOfARate(t *testing.T) {
	preset := oneQueue(t)
	const each = 100 * time.Millisecond
	at := []time.Duration{0, time.Millisecond, time.Millisecond, 2 * time.Millisecond, 99 * time.Millisecond}
	load := sim.Windows{
		Each: each, PerSecond: [][]float64{{5000, 50, 5000, 0}},
		Singles: func(queue, window int) ([]time.Duration, bool) { return at, queue == 0 && window == 1 },
	}
	s := newSimulator(t, sim.Options{Preset: &preset, Load: load, Seed: 3, Window: each, Events: true})
	var ready []time.Duration
	counts := make([]uint64, 4)
	for i := range counts {
		sample := next(t, s)
		counts[i] = sample.Queues[0].Delay.Count()
		for _, e := range s.Events() {
			for _, r := range e.Requests {
				if i == 1 {
					ready = append(ready, r.Ready-each)
				}
			}
		}
	}
	// One of the first window's may end in the second, and one at 99 ms in the
	// third.
	for i, want := range []uint64{500, 5, 500, 0} {
		slack := uint64(1)
		if want == 500 {
			slack = 70
		}
		if counts[i]+slack < want || counts[i] > want+slack {
			t.Errorf("window %d served %d, want about %d", i, counts[i], want)
		}
	}
	for _, want := range at {
		if !slices.ContainsFunc(ready, func(r time.Duration) bool { return r >= want && r-want < time.Millisecond/2 }) {
			t.Errorf("none arrived at %v: %v", want, ready)
		}
	}
}

func TestScaledWindowsHaveTheirSingleArrivalsAsMuchMoreOften(t *testing.T) {
	at := make([]time.Duration, 1000)
	for i := range at {
		at[i] = time.Duration(i/10) * time.Millisecond // ten at a time
	}
	load := sim.Windows{
		Each: time.Second, PerSecond: [][]float64{{1000, 50}},
		Singles: func(_, window int) ([]time.Duration, bool) { return at, window == 0 },
	}
	for _, by := range []float64{0.5, 2.5} {
		scaled := load.Scaled(by)
		got, known := scaled.Singles(0, 0)
		if n := float64(len(got)); !known || n < 930*by || n > 1070*by {
			t.Errorf("%d arrivals of 1000 times %v", len(got), by)
		}
		for _, a := range got {
			if a%time.Millisecond != 0 {
				t.Fatalf("one arrived at %v, between the bursts", a)
			}
		}
		if _, known := scaled.Singles(0, 1); known || scaled.PerSecond[0][1] != 50*by {
			t.Errorf("the second window has arrivals (%v) and rate %v", known, scaled.PerSecond[0][1])
		}
	}
}

func oneQueue(t *testing.T) sim.Preset {
	t.Helper()
	p, err := sim.LoadPreset("veth")
	if err != nil {
		t.Fatal(err)
	}
	out := *p
	out.Host.Queues, out.Host.Connections = 1, 16
	return out
}

func TestServiceTimesHaveTheShapeThatIsGiven(t *testing.T) {
	run := func(shape []float64) model.Histogram {
		preset := oneQueue(t)
		preset.Cost.ServiceShape = shape
		s, err := sim.New(sim.Options{Preset: &preset, Load: sim.Constant(2000), Seed: 3, Window: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		sample, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return *sample.Queues[0].Service
	}
	equal, varied := run(nil), run([]float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 9.3})
	if e, v := equal.Quantile(0.95), varied.Quantile(0.95); v < 5*e {
		t.Errorf("the p95 is %v with one request in 8 of 9.3 times the work, and %v without", v, e)
	}
	if e, v := equal.Quantile(0.5), varied.Quantile(0.5); v >= e {
		t.Errorf("the median is %v, and %v where all are equal", v, e)
	}
}
