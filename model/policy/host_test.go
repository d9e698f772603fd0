package policy_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/sim"
	"autotune/tuner"
)

// regime is what a simulated host allows.
type regime int

const (
	// deferralOnly: the application does not prefer busy polling.
	deferralOnly regime = iota
	// preferring: it prefers busy polling by itself.
	preferring
)

// trial is one run of a policy on a simulated host with one queue.
type trial struct {
	load     sim.Load
	regime   regime
	slo      time.Duration
	window   time.Duration
	duration time.Duration
	seed     uint64
}

// ran is what came of it.
type ran struct {
	// perPacket is the CPU time of the second half, for each packet.
	perPacket float64
	// windows and over are those of the second half, and those of them in
	// which the quantile was above the SLO.
	windows, over int
	// changes counts them over the whole run.
	changes   int
	settings  []model.Settings
	decisions []model.Decision
}

func (r ran) overShare() float64 { return float64(r.over) / float64(r.windows) }

const hostQuantile = 0.99

func (c trial) simulator(t testing.TB) *sim.Simulator {
	t.Helper()
	preset, err := sim.LoadPreset(sim.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	preset.Host.Connections /= preset.Host.Queues
	preset.Host.Queues = 1
	start := sim.Case{Name: "start"}
	if c.regime == preferring {
		start.Wait = sim.Wait{Prefer: true, Budget: 64}
	}
	s, err := sim.New(sim.Options{
		Preset: preset, Case: start, Load: c.load, Seed: c.seed,
		Window: c.window, Duration: c.duration, Warmup: 200 * time.Millisecond, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unguarded runs a policy on the host with nothing between the two: what comes
// of it is the policy's own doing.
func (c trial) unguarded(t testing.TB, p model.Policy) ran {
	t.Helper()
	s := c.simulator(t)
	objective := model.Objective{SLO: c.slo, Quantile: hostQuantile}
	var out ran
	var outcome model.Outcome
	var cost time.Duration
	var packets uint64
	previous := 0.0
	for {
		sample, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f := featuresOf(&sample, objective, previous)
		previous = f.PacketRate
		if sample.At > c.duration/2 {
			out.windows++
			if f.Quantile > c.slo {
				out.over++
			}
			n := uint64(f.PacketRate*f.Span.Seconds() + 0.5)
			cost += f.CostPerPacket * time.Duration(n)
			packets += n
		}
		f.Outcome = outcome
		d := p.Decide(f)
		out.decisions = append(out.decisions, d)
		out.settings = append(out.settings, d.Settings)
		outcome = model.Outcome{Verdict: model.VerdictApplied, From: f.Active, To: d.Settings, Purpose: d.Purpose}
		if d.Settings != f.Active {
			out.changes++
			if _, err := s.Apply(context.Background(), model.Config{f.Queue: d.Settings}); err != nil {
				t.Fatalf("%s proposes what cannot be applied: %v", p.Name(), err)
			}
		}
	}
	out.perPacket = cost.Seconds() / float64(packets)
	return out
}

func featuresOf(s *model.Sample, objective model.Objective, previous float64) model.Features {
	q := &s.Queues[0]
	part := model.WindowPart{At: s.At, Span: s.Span, Queue: q, Delay: q.Delay}
	part.Utilisation = s.CPUs[0].Busy.Seconds() / s.Span.Seconds()
	if cost, ok := model.Costs(s)[q.Queue]; ok {
		part.Cost = &cost
	}
	var w model.Window
	w.Add(part)
	f := w.Features(q.Queue, s.Active[q.Queue], objective, previous)
	f.Suspension = model.SuspensionReadiness(s.Apps, q.NAPIID)
	return f
}

// guarded runs a policy as a run does, by the loop with its guards.
func (c trial) guarded(t testing.TB, p model.Policy) ran {
	t.Helper()
	s := c.simulator(t)
	m := &meter{Simulator: s, trial: c}
	queue := sim.SimulatedQueue(0)
	loop, err := tuner.New(tuner.Options{
		Source: m, Actuator: m, Policy: p,
		Objective: model.Objective{SLO: c.slo, Quantile: hostQuantile},
		CPUs:      map[model.Queue][]int{queue: {0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.out.perPacket = m.cost.Seconds() / float64(m.packets)
	return m.out
}

// meter measures what passes between a simulator and a loop.
type meter struct {
	*sim.Simulator
	trial   trial
	out     ran
	cost    time.Duration
	packets uint64
}

func (m *meter) Next(ctx context.Context) (model.Sample, error) {
	s, err := m.Simulator.Next(ctx)
	if err == nil && s.At > m.trial.duration/2 {
		q := &s.Queues[0]
		m.out.windows++
		if q.Delay.Quantile(hostQuantile) > m.trial.slo {
			m.out.over++
		}
		m.packets += q.Polls().Packets
		m.cost += model.Costs(&s)[q.Queue]
	}
	return s, err
}

func (m *meter) Apply(ctx context.Context, c model.Config) (model.Config, error) {
	out, err := m.Simulator.Apply(ctx, c)
	for _, s := range out {
		m.out.changes++
		m.out.settings = append(m.out.settings, s)
	}
	return out, err
}
