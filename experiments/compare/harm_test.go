package compare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"autotune/experiments/compare"
	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
	"autotune/tuner"
)

// The bound that docs/policies.md gives: behind the guards, whatever a policy
// proposes, no window has a p99 above harmSLOs times the SLO, or above
// harmBase times the worst of plain interrupts under the same load where that is
// more.
const (
	harmSLOs = 4.0
	harmBase = 1.25
)

// asked keeps what a policy proposes.
type asked struct {
	model.Policy
	moves []proposed
}

type proposed struct {
	at    time.Duration
	queue model.Queue
	to    model.Settings
}

func (a *asked) Decide(f model.Features) model.Decision {
	d := a.Policy.Decide(f)
	if d.Purpose != model.PurposeHold && d.Purpose != "" && d.Settings != f.Active {
		a.moves = append(a.moves, proposed{f.At, f.Queue, d.Settings})
	}
	return d
}

// orders is an asked policy that needs no evidence.
type orders struct{ *asked }

func (orders) NeedsEvidence() bool { return false }

type kept []tuner.Entry

func (k *kept) Record(e tuner.Entry) error { *k = append(*k, e); return nil }

// harm is what came of a policy on a host with eight queues.
type harm struct {
	worst   time.Duration
	entries kept
	asked   *asked
	queues  int
}

// runHarm runs a policy, behind the guards or without any.
func runHarm(t *testing.T, spec string, guarded bool, regime sim.Wait, slo time.Duration) harm {
	t.Helper()
	const interval, windows = 100 * time.Millisecond, 50
	// The host can carry the highest load, so that delay is the settings' doing:
	// at 750K the worst window of plain interrupts is another with each seed.
	load := sim.Steps{PerSecond: []float64{150e3, 600e3, 300e3, 700e3, 225e3}, Each: windows * interval / 5}
	host, err := sim.New(sim.Options{
		Case: sim.Case{Name: "start", Wait: regime}, Load: load, Seed: 3, Window: interval, Latency: sim.LatencyClient, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	out := harm{asked: &asked{Policy: p}}
	var wrapped model.Policy = out.asked
	if n, ok := p.(interface{ NeedsEvidence() bool }); ok && !n.NeedsEvidence() {
		wrapped = orders{out.asked}
	}
	cpus := map[model.Queue][]int{}
	preset, err := sim.LoadPreset(sim.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	out.queues = preset.Host.Queues
	for q := range out.queues {
		cpus[sim.SimulatedQueue(q)] = []int{q}
	}
	objective := model.Objective{SLO: slo, Quantile: 0.99}
	var loop compare.Stepper = compare.NewBare(wrapped, host, objective)
	if guarded {
		if loop, err = tuner.New(tuner.Options{
			Actuator: host, Policy: wrapped, Journal: &out.entries, HoldEvery: -1, CPUs: cpus, Objective: objective,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range windows {
		sample, err := host.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		truth := host.Window()
		out.worst = max(out.worst, truth.Latency.Quantile(0.99))
		if err := loop.Step(t.Context(), sample); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestGuardsBoundWhatAnyPolicyDoes runs every policy, and such as draw at
// random up to the hard bounds, behind the guards on eight queues.
func TestGuardsBoundWhatAnyPolicyDoes(t *testing.T) {
	specs := []string{"static:case=suspend20", "static:case=defer20", "random:seed=5", "random:seed=6,max=10ms,step=2", "random:seed=7,max=10ms,step=4"}
	for _, k := range policy.Kinds() {
		if k.Name != "static" && k.Name != "random" && k.Name != "base" {
			specs = append(specs, k.Name)
		}
	}
	for _, regime := range []struct {
		name string
		wait sim.Wait
		slo  time.Duration
	}{
		{"suspend", sim.Wait{Prefer: true, Budget: 64}, 250 * time.Microsecond},
		{"deferral", sim.Wait{}, 300 * time.Microsecond},
	} {
		t.Run(regime.name, func(t *testing.T) {
			base := runHarm(t, "base", true, regime.wait, regime.slo)
			bound := max(time.Duration(harmSLOs*float64(regime.slo)), time.Duration(harmBase*float64(base.worst)))
			t.Run("without guards it is broken", func(t *testing.T) {
				t.Parallel()
				if h := runHarm(t, "random:seed=6,max=10ms,step=2", false, regime.wait, regime.slo); h.worst <= bound {
					t.Errorf("worst window p99 %v, within the bound %v: the test proves nothing", h.worst, bound)
				}
			})
			for _, spec := range specs {
				t.Run(spec, func(t *testing.T) {
					t.Parallel()
					h := runHarm(t, spec, true, regime.wait, regime.slo)
					t.Logf("%s: worst window p99 %v (base %v, bound %v)", spec, h.worst, base.worst, bound)
					if h.worst > bound {
						t.Errorf("worst window p99 %v, the bound is %v", h.worst, bound)
					}
					h.journalled(t)
					h.explores(t)
				})
			}
		})
	}
}

// journalled checks that each move that was proposed is in the journal: as it
// was applied, or with the guard that changed or stopped it, and why.
func (h *harm) journalled(t *testing.T) {
	t.Helper()
	type key struct {
		at    time.Duration
		queue model.Queue
	}
	by := map[key][]tuner.Entry{}
	for _, e := range h.entries {
		by[key{e.At, e.Queue}] = append(by[key{e.At, e.Queue}], e)
	}
	for _, m := range h.asked.moves {
		entries := by[key{m.at, m.queue}]
		if !slices.ContainsFunc(entries, func(e tuner.Entry) bool {
			return e.To == m.to && e.Verdict == model.VerdictApplied || e.Guard != "" && e.Why != ""
		}) {
			t.Fatalf("%v, proposed for %v at %v, was neither applied nor is there who stopped it: %+v", m.to, m.queue, m.at, entries)
		}
	}
	if len(h.asked.moves) == 0 {
		t.Error("nothing was proposed")
	}
}

// explores checks that no more than one queue in eight moves for knowledge in a
// window.
func (h *harm) explores(t *testing.T) {
	t.Helper()
	moved := map[time.Duration]map[model.Queue]bool{}
	for _, e := range h.entries {
		if e.Verdict != model.VerdictApplied || e.Purpose != model.PurposeExploration {
			continue
		}
		if moved[e.At] == nil {
			moved[e.At] = map[model.Queue]bool{}
		}
		moved[e.At][e.Queue] = true
	}
	for at, queues := range moved {
		if len(queues) > (h.queues+7)/8 {
			t.Errorf("%d of %d queues moved for knowledge at %v: %v", len(queues), h.queues, at, fmt.Sprint(queues))
		}
	}
}
