package probe

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/model"
)

func TestABudgetIsKeptBySamplingLess(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.serve(t, nil)
		s := b.open(t, Options{Interval: 1100 * time.Millisecond, Budget: 0.0001})
		before, err := b.RxPackets()
		if err != nil {
			t.Fatal(err)
		}
		b.phase(t, "load", 3000)
		total := collect(t, s, 4)
		last := total.last
		received := b.settle(t, s, &total) - before
		if last.Probe.Cost == nil || *last.Probe.Cost <= last.Probe.Budget || last.Probe.Budget != 100*time.Microsecond {
			t.Fatalf("cost %+v, want one above 100us per second", last.Probe)
		}
		t.Logf("cost %v per second, one socket in %d, one poll in %d", *last.Probe.Cost, last.Queues[0].SampleEvery, last.Probe.PollEvery)
		if last.Queues[0].SampleEvery < 8 || last.Probe.PollEvery < 2 {
			t.Errorf("one socket in %d and one poll in %d are sampled far above the budget, want fewer", last.Queues[0].SampleEvery, last.Probe.PollEvery)
		}
		if polled := total.polls().Packets; polled < received*999/1000 || polled > received+1 {
			t.Errorf("%d packets polled of %d: counts are not exact", polled, received)
		}
	})
}

// below returns the share of values in or below the bucket of d.
func below(h *model.Histogram, d time.Duration) float64 {
	return 1 - float64(h.Above(d))/float64(h.Count())
}

// What is sampled is distributed as what is not, within three standard errors
// of a share. Values that one poll or one wake-up gave are not independent, so
// that each counts for a fraction. Nor are those of a time in which the machine had
// no CPU for the server, so that it may take another try.
func TestSampledDistributionsAreThoseOfEverything(t *testing.T) {
	attempt(t, compareSampled)
}

func compareSampled(t testing.TB) (err error) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.set(t, deferral(300*time.Microsecond))
	b.serve(t, nil)
	all := b.open(t, Options{Interval: liveInterval})
	few := b.open(t, Options{Interval: liveInterval, SampleEvery: 4})
	few.throttle.level, few.pollMask = 2, 1
	if err := few.kernel.timePolls(few.pollMask); err != nil {
		t.Fatal(err)
	}
	b.phase(t, "load", 10000)
	next(t, few)
	next(t, all)
	var whole, part totals
	for range 25 {
		part.add(next(t, few))
		whole.add(next(t, all))
	}
	if got := part.last.Probe.PollEvery; got != 2 {
		t.Fatalf("one poll in %d is timed, want 2", got)
	}
	if got := part.last.Queues[0].SampleEvery; got != 16 {
		t.Fatalf("one socket in %d is followed, want 16", got)
	}
	polls := whole.polls()
	perPoll := float64(polls.Packets) / float64(polls.Polls-polls.Empty)
	within(t, "packets counted, sampled by all", float64(part.polls().Packets)/float64(polls.Packets), 0.95, 1.05)
	// A request of one socket in 16 is followed if the end of the poll before is
	// known, that is if one of the two is timed. How many of 64 sockets are one
	// in 16 is random; the mean over 25 windows is wrong by 10%.
	const followed = 3. / 4 / 16
	for _, tt := range []struct {
		name      string
		all, some *model.Histogram
		share     float64
	}{
		{"ring wait", &whole.ring, &part.ring, 0.5},
		{"socket wait", &whole.socket, &part.socket, followed},
		{"service", &whole.service, &part.service, followed},
		{"delay", &whole.delay, &part.delay, followed},
	} {
		share := float64(tt.some.Count()) / float64(tt.all.Count())
		within(t, tt.name+": share sampled", share, tt.share/2, tt.share*2)
		for _, q := range []float64{0.5, 0.9} {
			at := tt.all.Quantile(q)
			want := below(tt.all, at)
			n := float64(tt.some.Count()) / perPoll
			limit := 3 * math.Sqrt(want*(1-want)/n)
			got := below(tt.some, at)
			t.Logf("%s: %.3f of all and %.3f of %d sampled at most %v, +- %.3f", tt.name, want, got, tt.some.Count(), at, limit)
			if math.Abs(got-want) > limit {
				err = errors.Join(err, fmt.Errorf("%s: %.3f of those sampled are at most %v, want %.3f +- %.3f", tt.name, got, at, want, limit))
			}
		}
	}
	return err
}
