package sim_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
	"autotune/model/sim"
)

func everywhere(sample model.Sample, settings model.Settings) model.Config {
	out := model.Config{}
	for q := range sample.Active {
		out[q] = settings
	}
	return out
}

func TestReadinessFollowsTheApplication(t *testing.T) {
	suspend := caseNamed(t, "suspend20")
	for _, tt := range []struct {
		name     string
		o        sim.Options
		want     model.Readiness
		contexts model.EpollContext
	}{
		{
			name:     "prefers by itself",
			o:        sim.Options{Case: sim.Case{Wait: suspend.Wait}},
			want:     model.Readiness{Ready: true},
			contexts: model.EpollContext{FD: 3, Budget: 64, Prefer: true, NAPIIDs: []uint32{8193}},
		},
		{
			name:     "selected",
			o:        sim.Options{Selected: true},
			want:     model.Readiness{Ready: true, Steered: true},
			contexts: model.EpollContext{FD: 3, Budget: 8, NAPIIDs: []uint32{8193}},
		},
		{
			name:     "neither",
			want:     model.Readiness{Why: "no application was seen to prefer busy polling on NAPI 8193; server (pid 1) receives there without"},
			contexts: model.EpollContext{FD: 3, Budget: 8, NAPIIDs: []uint32{8193}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Load, tt.o.Window = sim.Constant(100e3), 10*time.Millisecond
			sample := next(t, newSimulator(t, tt.o))
			got := model.SuspensionReadiness(sample.Apps, sample.Queues[0].NAPIID)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.contexts, sample.Apps[0].Contexts[0]); diff != "" {
				t.Errorf("context (-want +got):\n%s", diff)
			}
		})
	}
}

// A steered application does what one does that chose the same by itself, and
// goes back to its own choice when settings no longer say anything.
func TestApplySteersSelectedApplications(t *testing.T) {
	suspend := caseNamed(t, "suspend20")
	steered := suspend.NAPI
	steered.BusyPoll = model.BusyPoll{Span: suspend.Wait.BusyPoll, Budget: uint16(suspend.Wait.Budget), Prefer: true}
	o := sim.Options{Load: sim.Constant(400e3), Seed: 5, Window: 50 * time.Millisecond, Selected: true}
	s := newSimulator(t, o)
	before := next(t, s)
	if before.Queues[0].Busy.Polls != 0 {
		t.Errorf("%d busy polls before anybody asked for them", before.Queues[0].Busy.Polls)
	}
	got, err := s.Apply(context.Background(), everywhere(before, steered))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(everywhere(before, steered), got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	next(t, s)
	during := next(t, s)
	if diff := cmp.Diff(got, during.Active); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	if c := during.Apps[0].Contexts[7]; !c.Prefer || c.Budget != 64 {
		t.Errorf("context %+v was not steered", c)
	}
	o.Case = suspend
	alone := newSimulator(t, o)
	for range 2 {
		next(t, alone)
	}
	byItself := next(t, alone)
	share := func(s model.Sample) float64 {
		return float64(s.Queues[3].Busy.Packets) / float64(s.Queues[3].Polls().Packets)
	}
	if a, b := share(during), share(byItself); math.Abs(a-b) > 0.05 || b < 0.1 {
		t.Errorf("%.2f of the packets in busy polls when steered, %.2f by its own choice", a, b)
	}
	if _, err := s.Apply(context.Background(), everywhere(before, model.Settings{})); err != nil {
		t.Fatal(err)
	}
	next(t, s)
	if after := next(t, s); after.Queues[0].Busy.Polls != 0 || after.Apps[0].Contexts[0].Prefer {
		t.Errorf("%d busy polls and context %+v after the end of steering", after.Queues[0].Busy.Polls, after.Apps[0].Contexts[0])
	}
}

func TestApplyDoesNotSteerOtherApplications(t *testing.T) {
	s := newSimulator(t, sim.Options{Load: sim.Constant(1000), Window: time.Millisecond})
	q := sim.SimulatedQueue(0)
	got, err := s.Apply(context.Background(), model.Config{q: {DeferHardIRQs: 1, BusyPoll: model.BusyPoll{Prefer: true}}})
	if !errors.Is(err, sim.ErrNotSelected) || !errors.Is(err, model.ErrReadOnly) {
		t.Errorf("error %v, want not selected and read-only", err)
	}
	if diff := cmp.Diff(model.Config{q: {}}, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func TestSampledDelaysAreAFairShare(t *testing.T) {
	o := sim.Options{Case: caseNamed(t, "defer50"), Load: sim.Constant(600e3), Seed: 2, Window: 200 * time.Millisecond}
	all := next(t, newSimulator(t, o))
	o.SampleEvery = 16
	some := next(t, newSimulator(t, o))
	for i := range all.Queues {
		a, b := &all.Queues[i], &some.Queues[i]
		if b.SampleEvery != 16 || a.SampleEvery != 1 {
			t.Fatalf("one in %d and %d is said to be sampled, want 1 and 16", a.SampleEvery, b.SampleEvery)
		}
		if share := float64(b.Delay.Count()) / float64(a.Delay.Count()); math.Abs(share*16-1) > 0.15 {
			t.Errorf("queue %d: %.4f of the delays are seen, want 1/16", i, share)
		}
		if x, y := a.Delay.Quantile(0.5), b.Delay.Quantile(0.5); math.Abs(float64(y)/float64(x)-1) > 0.1 {
			t.Errorf("queue %d: median of all %v, of the sampled %v", i, x, y)
		}
		if a.Softirq != b.Softirq {
			t.Errorf("queue %d: sampling changed what happened", i)
		}
	}
}

// Noise widens the spread of what is measured from window to window and leaves
// its centre, the counts and the truth where they are.
func TestNoiseMultipliesTheErrorOfMeasurements(t *testing.T) {
	run := func(noise float64) (spread, centre float64, truth sim.Result) {
		s := newSimulator(t, sim.Options{
			Case: caseNamed(t, "suspend50"), Load: sim.Constant(600e3), Seed: 9,
			Window: 30 * time.Millisecond, Noise: noise,
		})
		var logs []float64
		for range 8 {
			sample := next(t, s)
			for i := range sample.Queues {
				logs = append(logs, math.Log(float64(sample.Queues[i].Delay.Quantile(0.9))))
			}
		}
		for _, v := range logs {
			centre += v / float64(len(logs))
		}
		for _, v := range logs {
			spread += (v - centre) * (v - centre) / float64(len(logs)-1)
		}
		return math.Sqrt(spread), centre, s.Result()
	}
	without, centre, exact := run(0)
	with, centreWith, truth := run(8)
	if added := math.Sqrt(with*with - without*without); added < 0.13 || added > 0.28 {
		t.Errorf("spread %.3f without and %.3f with noise: %.3f was added, want about 0.2", without, with, added)
	}
	if math.Abs(centreWith-centre) > 0.08 {
		t.Errorf("noise moved the centre by %.3f", centreWith-centre)
	}
	if diff := cmp.Diff(exact, truth); diff != "" {
		t.Errorf("noise changed what happened (-without +with):\n%s", diff)
	}
	if _, err := sim.New(sim.Options{Load: sim.Constant(1), Noise: 0.5}); err == nil {
		t.Error("noise below 1 was accepted")
	}
}

func TestWindowIsTheTruthOfTheLastSample(t *testing.T) {
	s := newSimulator(t, sim.Options{Load: sim.Constant(300e3), Seed: 1, Window: 50 * time.Millisecond})
	next(t, s)
	sample := next(t, s)
	got := s.Window()
	if diff := cmp.Diff(sample.Latency.Histogram, got.Delay); diff != "" {
		t.Errorf("delays (-sample +window):\n%s", diff)
	}
	if got.Span != sample.Span || math.Abs(got.OfferedQPS/300e3-1) > 0.05 || math.Abs(got.QPS/got.OfferedQPS-1) > 0.02 {
		t.Errorf("window of %v with %.0f of %.0f requests/s", got.Span, got.QPS, got.OfferedQPS)
	}
}

func TestVariationsOfAPreset(t *testing.T) {
	preset, err := sim.LoadPreset(sim.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	measure := func(v sim.Variation) sim.Result {
		t.Helper()
		p, err := preset.Vary(v)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), sim.Options{
			Preset: p, Case: caseNamed(t, "defer50"), Load: sim.Constant(160e3), Seed: 3,
			Duration: 200 * time.Millisecond, Warmup: 20 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := measure(sim.Variation{})
	if r := measure(sim.Variation{Costs: 2}); r.CyclesPerQuery < 1.7*plain.CyclesPerQuery || r.CyclesPerQuery > 2.1*plain.CyclesPerQuery {
		t.Errorf("%.0f cycles per request at twice the costs of %.0f", r.CyclesPerQuery, plain.CyclesPerQuery)
	}
	if r := measure(sim.Variation{Costs: 0.5}); r.CyclesPerQuery > 0.6*plain.CyclesPerQuery {
		t.Errorf("%.0f cycles per request at half the costs of %.0f", r.CyclesPerQuery, plain.CyclesPerQuery)
	}
	if r := measure(sim.Variation{RoundTrip: 20 * time.Microsecond}); math.Abs(r.P50Us-plain.P50Us-20) > 2 {
		t.Errorf("median %.1f us, want 20 us above %.1f us", r.P50Us, plain.P50Us)
	}
	heavy, err := preset.Vary(sim.Variation{HeaviestShare: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	sample := next(t, newSimulator(t, sim.Options{Preset: heavy, Load: sim.Constant(160e3), Window: 100 * time.Millisecond}))
	var all, last uint64
	for i := range sample.Queues {
		last = sample.Queues[i].Delay.Count()
		all += last
	}
	if share := float64(last) / float64(all); math.Abs(share-0.5) > 0.03 {
		t.Errorf("the heaviest queue has %.2f of the requests, want half", share)
	}
	for _, v := range []sim.Variation{{Costs: -1}, {HeaviestShare: 1}, {HeaviestShare: -0.1}, {RoundTrip: -time.Second}} {
		if _, err := preset.Vary(v); err == nil {
			t.Errorf("%+v was accepted", v)
		}
	}
}

func TestStretchedHistogramsKeepTheirCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h model.Histogram
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			h.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "delay")), rapid.Uint64Range(1, 1e6).Draw(t, "count"))
		}
		factor := rapid.Float64Range(0.1, 10).Draw(t, "factor")
		got := sim.Stretched(&h, factor)
		if got.Count() != h.Count() {
			t.Fatalf("%d values of %d", got.Count(), h.Count())
		}
		if h.Count() == 0 {
			return
		}
		// Two buckets, each 12.5% wide, separate a value from its image.
		want := float64(h.Quantile(0.5)) * factor
		if q := float64(got.Quantile(0.5)); math.Abs(q-want) > 0.27*want+300*(1+factor) {
			t.Fatalf("median %v, want %v", time.Duration(q), time.Duration(want))
		}
	})
}
