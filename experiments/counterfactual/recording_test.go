package counterfactual

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"autotune/model"
)

// recorded is a window of queues that each got as many packets as given, half as
// many requests, and 10 ms of a thread.
func recorded(active model.Settings, packets ...uint64) *model.Sample {
	s := &model.Sample{Span: time.Second, Active: model.Config{}}
	for i, n := range packets {
		q := model.Queue{Netns: 1, Ifindex: 2, Index: i}
		spent := 10 * time.Millisecond
		delay := &model.Histogram{}
		delay.Add(50*time.Microsecond, n/2)
		s.Active[q] = active
		s.Queues = append(s.Queues, model.QueueSample{
			Queue: q, NAPIID: uint32(100 + i), Thread: model.PollCounts{Polls: n, Packets: n}, ThreadTime: &spent, Delay: delay, SampleEvery: 1,
		})
	}
	return s
}

func serving(cpu time.Duration, returns uint64, prefer bool, napis ...uint32) model.AppSample {
	waits := &[model.WorkBuckets]uint64{0, returns}
	return model.AppSample{CPU: cpu, Waits: waits, Contexts: []model.EpollContext{{NAPIIDs: napis, Prefer: prefer, Budget: 64}}}
}

func TestTheWindowOfAChangeBelongsToNoRegime(t *testing.T) {
	var r Recording
	before, after := model.Settings{}, deferring(20*time.Microsecond)
	for _, active := range []model.Settings{before, before, after, after, after, before} {
		r.Add(recorded(active, 10000))
	}
	got := map[model.Settings]int{}
	for key, g := range r.regimes {
		got[key.settings] += g.seen
	}
	if diff := cmp.Diff(map[model.Settings]int{before: 2, after: 2}, got); diff != "" {
		t.Errorf("windows by setting (-want +got):\n%s", diff)
	}
}

func TestWaitsOfTheProcessesOnTheQueueAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		apps []model.AppSample
		want float32
	}{
		"two on the queue":        {[]model.AppSample{serving(1, 3000, false, 100), serving(1, 1000, false, 100)}, 0.4},
		"one of them elsewhere":   {[]model.AppSample{serving(1, 3000, false, 100), serving(1, 9000, false, 7)}, 0.3},
		"none that was looked at": {[]model.AppSample{serving(1, 3000, false), serving(1, 1000, false)}, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			var r Recording
			s := recorded(model.Settings{}, 10000)
			s.Apps = c.apps
			r.Add(s)
			for _, g := range r.regimes {
				if diff := cmp.Diff(c.want, g.rows[0].waits, cmpopts.EquateApprox(1e-6, 0)); diff != "" {
					t.Errorf("returns per packet (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestHowApplicationsWaitIsThatOfTheBusiestQueueThatTells(t *testing.T) {
	var r Recording
	s := recorded(model.Settings{}, 90000, 1000, 20000)
	s.Apps = []model.AppSample{serving(1, 1, false, 101), serving(1, 1, true, 102)}
	if _, known := r.Wait(); known {
		t.Error("an empty recording tells how applications wait")
	}
	r.Add(s)
	if wait, known := r.Wait(); !known || !wait.Prefer {
		t.Errorf("%+v, %v: want that of the third queue", wait, known)
	}
}

func TestAQueueThatVanishesHasNoLoadAfterwards(t *testing.T) {
	var r Recording
	r.Add(recorded(model.Settings{}, 1000, 2000))
	r.Add(recorded(model.Settings{}, 1000))
	r.Add(recorded(model.Settings{}, 0, 4000, 6000))
	want := [][]float64{{500, 500, 0}, {1000, 0, 2000}, {0, 0, 3000}}
	if diff := cmp.Diff(want, r.Load(0, 3).PerSecond, cmpopts.EquateApprox(1e-3, 0)); diff != "" {
		t.Errorf("requests per second (-want +got):\n%s", diff)
	}
}

func TestAFewPacketsInAThreadDoNotMakeAThreadedHost(t *testing.T) {
	for name, c := range map[string]struct {
		softirq, thread uint64
		want            bool
	}{
		"softirq": {100000, 0, false}, "threads": {0, 100000, true}, "threads at the end": {100000, 5000, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r Recording
			for i, n := range []uint64{c.softirq, c.thread} {
				s := recorded(model.Settings{}, n)
				if i == 0 {
					s.Queues[0].Softirq, s.Queues[0].Thread = s.Queues[0].Thread, model.PollCounts{}
				}
				r.Add(s)
			}
			if got := r.Host(vethPreset(t), 1).Host.ThreadedNAPI; got != c.want {
				t.Errorf("threaded is %v, want %v", got, c.want)
			}
		})
	}
}

// CPU time without that of applications is less than what a simulated host
// takes: fitting to it would make its requests cost nothing.
func TestNothingIsFittedToCPUTimeWithoutApplications(t *testing.T) {
	for name, apps := range map[string][]model.AppSample{"observed": {serving(100*time.Millisecond, 1, false, 100)}, "not observed": nil} {
		t.Run(name, func(t *testing.T) {
			var r Recording
			for range 5 {
				s := recorded(model.Settings{}, 10000)
				idle := 20 * time.Millisecond
				s.CPUs = []model.CPUSample{{HardIRQIdle: &idle}}
				s.Apps = apps
				r.Add(s)
			}
			asked := false
			for _, q := range r.targets(defaultRequests)[0].quantities {
				asked = asked || q.name == "other time per request"
			}
			if asked != (apps != nil) {
				t.Errorf("the rest of the CPU time is asked for: %v", asked)
			}
			if _, all := r.Windows(); all != 0 || (r.Unserved() == 5) != (apps == nil) {
				t.Errorf("%d windows without applications", r.Unserved())
			}
		})
	}
}

// Zero-rate windows, windows of another length, and queues without delays or
// costs neither stop a prediction nor make it something that is no number.
func TestOddWindowsAreSurvived(t *testing.T) {
	var r Recording
	odd := recorded(model.Settings{}, 7)
	odd.Span = 17 * time.Millisecond
	r.Add(odd)
	r.Add(&model.Sample{})
	for i := range 12 {
		s := recorded(model.Settings{}, 4000, 0, 3)
		s.Apps = []model.AppSample{serving(100*time.Millisecond, 1000, false, 100)}
		s.Span = 250 * time.Millisecond
		s.Queues[2].Delay, s.Queues[2].ThreadTime = nil, nil
		if i%3 == 0 {
			s.Queues[0].Thread, s.Queues[0].Delay = model.PollCounts{}, &model.Histogram{}
		}
		r.Add(s)
	}
	if each := r.Each(); each != 250*time.Millisecond {
		t.Errorf("windows of %v, want 250ms", each)
	}
	fitted, err := Fit(context.Background(), &r, FitOptions{Start: vethPreset(t), Rounds: 1, Requests: 500})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := Predict(context.Background(), &r, PredictOptions{
		Hosts: fitted.Draws(2, 1), Objective: model.Objective{SLO: time.Millisecond, Quantile: 0.9},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if !(o.P50Us > 0) || !(o.CPUPerRequestUs > 0) || !(o.RequestsPerSecond > 0) {
			t.Errorf("%+v", o)
		}
	}
}
