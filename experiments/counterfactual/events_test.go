package counterfactual

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
	"autotune/model/sim"
)

// recordEvents records a simulated host under plain interrupts, with the single
// events of one window in every, and samples as change leaves them.
func recordEvents(t *testing.T, host *sim.Preset, load sim.Load, windows, every int, change ...func(*model.Sample)) *Recording {
	t.Helper()
	const window = 500 * time.Millisecond
	s, err := sim.New(sim.Options{
		Preset: host, Load: load, Seed: 11, Window: window, Duration: time.Duration(windows) * window,
		Case: sim.Case{Wait: sim.Wait{Prefer: true, Budget: 64}}, Events: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var r Recording
	for i := 0; ; i++ {
		sample, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return &r
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range change {
			c(&sample)
		}
		r.Add(&sample)
		if every > 0 && i%every == 0 {
			for _, e := range s.Events() {
				r.AddEvents(&e)
			}
		}
	}
}

// truth is what a host comes to under a setting and the load itself.
func truth(t *testing.T, host *sim.Preset, load sim.Load, setting string) Outcome {
	t.Helper()
	parsed, err := sim.ParseSetting(setting)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Options{
		Preset: host, Load: load, Seed: 12, Window: 500 * time.Millisecond, Duration: 4 * time.Second,
		Case: sim.Case{NAPI: parsed.NAPI, Wait: sim.Wait{Prefer: true, Budget: 64}},
	})
	if err != nil {
		t.Fatal(err)
	}
	total := newTally(model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.9})
	for m := (&metered{source: s, total: total}); ; {
		if _, err := m.Next(context.Background()); errors.Is(err, io.EOF) {
			return total.outcome()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// wrongBy are the mean relative errors of predictions.
type wrongBy struct{ p50, p90, cpu float64 }

// wrong fits a host to a recording, predicts the settings and compares with what
// they come to.
func wrong(t *testing.T, r *Recording, want map[string]Outcome) wrongBy {
	t.Helper()
	fitted, err := Fit(context.Background(), r, FitOptions{Start: vethPreset(t), Doubt: KnownKind, Seed: 7, Rounds: 4})
	if err != nil {
		t.Fatal(err)
	}
	var out wrongBy
	n := float64(len(want))
	for setting, want := range want {
		parsed, err := sim.ParseSetting(setting)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Predict(context.Background(), r, PredictOptions{
			Hosts: fitted.Draws(1, 1), Policy: "base", Original: func(model.Queue) model.Settings { return parsed.NAPI },
			Seed: 3, Objective: model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.9},
		})
		if err != nil {
			t.Fatal(err)
		}
		share := func(got, want float64) float64 { return math.Abs(got/want - 1) }
		out.p50 += share(got[0].P50Us, want.P50Us) / n
		out.p90 += share(got[0].P90Us, want.P90Us) / n
		out.cpu += share(got[0].CPUPerRequestUs, want.CPUPerRequestUs) / n
		t.Logf("%s: p50 %.0f for %.0f us, p90 %.0f for %.0f us, CPU %.1f for %.1f us", setting,
			got[0].P50Us, want.P50Us, got[0].P90Us, want.P90Us, got[0].CPUPerRequestUs, want.CPUPerRequestUs)
	}
	return out
}

// Requests that come in bursts queue behind each other. Single events tell of the
// bursts, those of some windows of all; without any, the packets per poll do; and
// without these, requests are predicted as if they came one at a time.
func TestPredictionsOfBursts(t *testing.T) {
	host := *vethPreset(t)
	host.Cost.Wake = host.Cost.Wake * 12 / 10
	bursts := sim.OnOff{Low: 1000, High: 120e3, On: 150 * time.Microsecond, Off: 5 * time.Millisecond, Seed: 5}
	want := map[string]Outcome{}
	for _, setting := range []string{"defer=100,flush=40us", "defer=100,flush=150us"} {
		want[setting] = truth(t, &host, bursts, setting)
	}
	nothing := wrong(t, recordEvents(t, &host, bursts, 8, 0, withoutWork), want)
	for name, c := range map[string]struct {
		got   wrongBy
		limit wrongBy
	}{
		"single events of every window":       {wrong(t, recordEvents(t, &host, bursts, 8, 1), want), wrongBy{0.15, 0.15, 0.08}},
		"single events of one window in four": {wrong(t, recordEvents(t, &host, bursts, 8, 4), want), wrongBy{0.15, 0.15, 0.08}},
		"no single events, but polls by work": {wrong(t, recordEvents(t, &host, bursts, 8, 0), want), wrongBy{0.15, 0.2, 0.1}},
	} {
		t.Logf("%s: %+v, with neither %+v", name, c.got, nothing)
		if c.got.p50 > c.limit.p50 || c.got.p90 > c.limit.p90 || c.got.cpu > c.limit.cpu {
			t.Errorf("%s: errors are %+v", name, c.got)
		}
		if c.got.p50+c.got.p90 > 0.5*(nothing.p50+nothing.p90) {
			t.Errorf("%s: errors are %+v, and %+v with neither", name, c.got, nothing)
		}
	}
}

// withoutWork forgets how many packets each poll processed.
func withoutWork(s *model.Sample) {
	for i := range s.Queues {
		s.Queues[i].Work = [model.WorkBuckets]uint64{}
	}
}

// Where requests come at random, events tell nothing that windows do not, and do
// no harm.
func TestSingleEventsDoNoHarmWhereRequestsComeAtRandom(t *testing.T) {
	host := *vethPreset(t)
	load := sim.Constant(9000)
	want := map[string]Outcome{"defer=100,flush=100us": truth(t, &host, load, "defer=100,flush=100us")}
	for _, every := range []int{0, 2} {
		if got := wrong(t, recordEvents(t, &host, load, 6, every), want); got.p50 > 0.08 || got.p90 > 0.08 || got.cpu > 0.08 {
			t.Errorf("with events of one window in %d, errors are %+v", every, got)
		}
	}
}

// Service times that differ are drawn as they were seen.
func TestSingleEventsTellHowServiceTimesDiffer(t *testing.T) {
	host := *vethPreset(t)
	host.Cost.ExponentialService = true
	host.Cost.RequestUser = 20 * time.Microsecond
	load := sim.Constant(12000)
	setting := "defer=100,flush=30us"
	want := map[string]Outcome{setting: truth(t, &host, load, setting)}
	with, without := wrong(t, recordEvents(t, &host, load, 6, 1), want), wrong(t, recordEvents(t, &host, load, 6, 0), want)
	t.Logf("with events %+v, without %+v", with, without)
	if with.p90 > 0.12 || with.p50 > 0.15 || with.p90 > without.p90 {
		t.Errorf("with events, errors are %+v, and %+v without", with, without)
	}
}

func TestServiceTimesThatWereSeenTakeThePlaceOfADistribution(t *testing.T) {
	var seen services
	for i := range leastServices {
		seen.keep(service{time: float64(1 + 9*(i%4/3)), weight: 1})
	}
	cost := vethPreset(t).Cost
	cost.ExponentialService = true
	cost.RequestUser, cost.RequestSystem = 3*time.Microsecond, 2*time.Microsecond
	seen.vary(&cost)
	if err := cost.Check(); err != nil || len(cost.ServiceShape) != shapeQuantiles {
		t.Errorf("%d service times, error %v", len(cost.ServiceShape), err)
	}
	// One in four takes ten times as long as the others, so that the mean is 13/4.
	if user, system := cost.RequestUser, cost.RequestSystem; user != 9750 || system != 6500 {
		t.Errorf("the mean request takes %v and %v, want 9.75us and 6.5us", user, system)
	}
}

func TestARegimeWhoseRequestsCameLateInItsWindowsHasThemAtRandom(t *testing.T) {
	var g regime
	p := newPattern(time.Second, []time.Duration{900 * time.Millisecond, 910 * time.Millisecond})
	p.regime = &g
	r := Recording{spans: map[time.Duration]int{time.Second: 1}, tracks: []track{{patterns: []pattern{p}}}}
	if load, span := r.regimeLoad(&g, 2, 1); load != nil || span != 0 {
		t.Errorf("%v for %v, want nothing: no request came in the first half", load, span)
	}
	if load, span := r.regimeLoad(&g, 2, 2); load == nil || span != time.Second {
		t.Errorf("%v for %v, want the window", load, span)
	}
}

func TestARegimeWithoutEventsHasArrivalsLikeThoseOfAnother(t *testing.T) {
	var other, g regime
	p := newPattern(time.Second, []time.Duration{100 * time.Millisecond, 110 * time.Millisecond, 120 * time.Millisecond, 130 * time.Millisecond})
	p.regime = &other
	r := Recording{spans: map[time.Duration]int{time.Second: 1}, tracks: []track{{patterns: []pattern{p}}}}
	if load, span := r.regimeLoad(&g, 9, 4); load != nil || span != 0 {
		t.Errorf("%v for %v, want nothing: four requests are not like nine", load, span)
	}
	load, span := r.regimeLoad(&g, 8, 8)
	if load == nil || span != time.Second {
		t.Fatalf("%v for %v, want the window at twice the rate", load, span)
	}
	if rate := load.(sim.Windows).PerSecond[0][0]; rate != 8 {
		t.Errorf("%v requests per second, want 8", rate)
	}
}

func TestEventsThatWereLostAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*model.Sample, []*model.Events) []*model.Events
		used  int
	}{
		"whole":              {func(_ *model.Sample, e []*model.Events) []*model.Events { return e }, 1},
		"some were lost":     {func(_ *model.Sample, e []*model.Events) []*model.Events { e[1].Lost = 1; return e }, 0},
		"the end is missing": {func(_ *model.Sample, e []*model.Events) []*model.Events { return e[:1] }, 0},
		"the middle is missing": {func(_ *model.Sample, e []*model.Events) []*model.Events {
			e[1].From += 10 * time.Millisecond
			return e
		}, 0},
		"probes lost counts": {func(s *model.Sample, e []*model.Events) []*model.Events { s.Lost = 7; return e }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := arrived(100)
			s.At = time.Second
			q := s.Queues[0].Queue
			events := []*model.Events{
				{From: 0, To: 600 * time.Millisecond, Polls: []model.PollEvent{{At: time.Millisecond, Queue: q, Work: 40}}, Requests: []model.RequestEvent{}},
				{From: 600 * time.Millisecond, To: time.Second, Polls: []model.PollEvent{{At: 700 * time.Millisecond, Queue: q, Work: 60}}, Requests: []model.RequestEvent{}},
			}
			events = c.spoil(s, events)
			var r Recording
			r.Add(s)
			for _, e := range events {
				r.AddEvents(e)
			}
			if used, unused := r.Events(); used != c.used || unused != 1-c.used {
				t.Errorf("events of %d windows used and of %d not, want %d used", used, unused, c.used)
			}
		})
	}
}

// Each poll brought the requests that were ready within it, and they came after
// the poll before.
func TestArrivalsLieBetweenPolls(t *testing.T) {
	const us = time.Microsecond
	q := model.Queue{Netns: 1, Ifindex: 2}
	polls := func(loop model.Loop, at ...time.Duration) (out []model.PollEvent) {
		for _, t := range at {
			out = append(out, model.PollEvent{At: t * us, Queue: q, Work: 2, Loop: loop})
		}
		return out
	}
	ready := func(at ...time.Duration) (out []model.RequestEvent) {
		for _, t := range at {
			send := (t + 30) * us
			out = append(out, model.RequestEvent{Ready: t * us, Queue: q, Send: &send})
		}
		return out
	}
	wait := new(model.Histogram)
	wait.Add(8*us, 10)
	deferred := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * us}
	for name, c := range map[string]struct {
		polls    []model.PollEvent
		requests []model.RequestEvent
		settings model.Settings
		// want are the bounds of each arrival, in microseconds of the window,
		// which begins at 1000.
		want [][2]time.Duration
	}{
		"interrupts, one each":    {polls(model.LoopSoftirq, 1100, 1200), ready(1099, 1199), model.Settings{}, [][2]time.Duration{{90, 93}, {190, 193}}},
		"an interrupt, two":       {polls(model.LoopThread, 1100), ready(1098, 1099), model.Settings{}, [][2]time.Duration{{90, 93}, {90, 100}}},
		"polls upon each other":   {polls(model.LoopSoftirq, 1100, 1103), ready(1099, 1102), model.Settings{}, [][2]time.Duration{{90, 93}, {100, 103}}},
		"the timer":               {polls(model.LoopSoftirqTimer, 1050, 1100), ready(1098, 1099), deferred, [][2]time.Duration{{50, 100}, {50, 100}}},
		"a timer not told apart":  {polls(model.LoopSoftirq, 1050, 1100), ready(1098, 1099), deferred, [][2]time.Duration{{50, 100}, {50, 100}}},
		"the application":         {polls(model.LoopApplication, 1050, 1060), ready(1055), deferred, [][2]time.Duration{{50, 60}}},
		"ready before the window": {polls(model.LoopApplication, 1050), ready(990, 1040), deferred, [][2]time.Duration{{0, 50}}},
		"ready after the last":    {polls(model.LoopApplication, 1050), ready(1055), deferred, [][2]time.Duration{{0, 50}}},
		"polls without requests":  {polls(model.LoopSoftirq, 1050), ready(), model.Settings{}, nil},
		"requests without a poll": {nil, ready(1050), model.Settings{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := observedQueue{queue: q, every: 1, settings: c.settings, ringWait: wait}
			got, ok := o.arrivals(&queueEvents{polls: c.polls, requests: c.requests, sees: true}, 1000*us, 2000*us, 2, rand.New(rand.NewPCG(1, 2)))
			if !ok || len(got) != len(c.want) {
				t.Fatalf("arrivals %v, %v, want %v", got, ok, c.want)
			}
			for i, at := range got {
				if at < c.want[i][0]*us || at > c.want[i][1]*us {
					t.Errorf("arrival %d at %v, want %v us", i, at, c.want[i])
				}
			}
		})
	}
}

// Of sockets that are sampled, packets tell how many requests there were.
func TestRequestsOfSampledSocketsAreASharesOfThePackets(t *testing.T) {
	q := model.Queue{Netns: 1, Ifindex: 2}
	e := &queueEvents{sees: true}
	for i := range 2000 {
		e.polls = append(e.polls, model.PollEvent{At: time.Duration(i+1) * 100 * time.Microsecond, Queue: q, Work: 4, Loop: model.LoopSoftirq})
		if i%8 == 0 {
			e.requests = append(e.requests, model.RequestEvent{Ready: time.Duration(i) * 100 * time.Microsecond, Queue: q})
		}
	}
	o := observedQueue{queue: q, every: 16}
	// 8,000 packets, and 250 requests of one socket in 16.
	got, ok := o.arrivals(e, 0, 200*time.Millisecond, 1, rand.New(rand.NewPCG(1, 2)))
	if n := len(got); !ok || n < 3800 || n > 4200 {
		t.Errorf("%d arrivals (%v), want about 4,000", n, ok)
	}
	if !slices.IsSorted(got) {
		t.Error("not in order")
	}
	// Without requests, what the rest of the recording tells decides; without
	// that, nothing.
	e.sees, e.requests = false, nil
	if got, ok := o.arrivals(e, 0, 200*time.Millisecond, 4, rand.New(rand.NewPCG(1, 2))); !ok || len(got) < 1800 || len(got) > 2200 {
		t.Errorf("%d arrivals (%v), want about 2,000", len(got), ok)
	}
	if _, ok := o.arrivals(e, 0, 200*time.Millisecond, math.NaN(), rand.New(rand.NewPCG(1, 2))); ok {
		t.Error("arrivals are known of a host whose packets per request are not")
	}
}

func TestAWindowWithoutEventsIsLikeTheNearestWithAboutAsMany(t *testing.T) {
	burst := []time.Duration{0, 1, 2, 500 * time.Millisecond, 500*time.Millisecond + 1, 500*time.Millisecond + 2}
	keep := func(window int, at []time.Duration) pattern {
		p := newPattern(time.Second, at)
		p.window = window
		return p
	}
	tr := track{patterns: []pattern{keep(2, burst), keep(10, append(append([]time.Duration(nil), burst...), 900*time.Millisecond))}}
	for name, c := range map[string]struct {
		window int
		rate   float64
		want   int // index of the pattern
	}{
		"its own": {10, 999, 1}, "nearer to the first": {5, 7, 0}, "nearer to the second": {7, 7, 1},
		"many more": {5, 100, -1}, "many fewer": {5, 1, -1}, "after the last": {100, 7, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tr.patternOf(c.window, c.rate); got != c.want {
				t.Errorf("pattern %d, want %d", got, c.want)
			}
		})
	}
	// Exactly as observed, in a window that may be a little shorter.
	at, ok := tr.singles(2, 6, 500*time.Millisecond)
	if diff := cmp.Diff([]time.Duration{0, 0, 1, 250 * time.Millisecond, 250 * time.Millisecond, 250*time.Millisecond + 1}, at); !ok || diff != "" {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	// At another rate, the bursts remain where they were.
	at, ok = tr.singles(3, 12, time.Second)
	if !ok || len(at) != 12 {
		t.Fatalf("%d arrivals, want 12", len(at))
	}
	for _, a := range at {
		if a > 4 && a < 500*time.Millisecond || a > 500*time.Millisecond+4 {
			t.Errorf("one arrived at %v, outside of the bursts", a)
		}
	}
	again, _ := tr.singles(3, 12, time.Second)
	if diff := cmp.Diff(at, again); diff != "" {
		t.Errorf("another time it has others (-first +second):\n%s", diff)
	}
}

func TestALongRecordingForgetsEveryOtherWindow(t *testing.T) {
	var r Recording
	r.tracks = make([]track, 1)
	at := make([]time.Duration, 1000)
	for i := range at {
		at[i] = time.Duration(i) * time.Millisecond
	}
	const windows = 3 * mostArrivals / 1000
	for i := range windows {
		if i%max(r.stride, 1) != 0 {
			continue
		}
		p := newPattern(time.Second, at)
		p.window, p.ordinal = i, i
		r.keepPattern(0, p)
	}
	n := len(r.tracks[0].patterns)
	if r.arrivals > mostArrivals || r.arrivals < mostArrivals/4 || r.arrivals != (1000+patternCost)*n {
		t.Errorf("%d arrivals of %d windows are kept", r.arrivals, n)
	}
	for i := 1; i < n; i++ {
		if step := r.tracks[0].patterns[i].window - r.tracks[0].patterns[i-1].window; step != r.stride {
			t.Fatalf("windows %d apart are kept, want %d", step, r.stride)
		}
	}
}
