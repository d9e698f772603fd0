package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// What a policy asks for in vain is no answer to a breach, and neither is the
// setting that showed the least delay while there was an application to drive it.
func TestSLOGuardActsWhereThePolicyAsksForWhatNoApplicationDrives(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 20, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeSafety), nil)
	ready := []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: true, NAPIIDs: []uint32{8193}}}}}
	run := func(n int, apps []model.AppSample) {
		for range n {
			s := b.sample(func(_ model.Queue, s model.Settings) window {
				w := steady()
				w.delay = 400 * us
				if s.IRQSuspendTimeout > 0 {
					w.delay = 100 * us
				}
				return w
			})
			s.Apps = apps
			b.step(s)
		}
	}
	run(12, ready)
	b.wantState(suspend)
	run(12, []model.AppSample{})
	b.wantEntry("readiness", model.VerdictApplied, "suspend is taken back")
	e := b.wantEntry("slo", model.VerdictApplied, "flush 50µs to 30µs")
	if e.From != deferralOf(50*us) || e.To.IRQSuspendTimeout != 0 {
		t.Errorf("from %v to %v, want less deferral", e.From, e.To)
	}
}

// Where deferral fills the CPU, what came out best in the few windows that it was
// seen for is no better, so a policy of which the forecasts held stays where it is.
func TestSLOGuardLeavesAFullCPUToAPolicyThatKnows(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knows bool
		want  model.Settings
	}{
		{"that foretells", true, deferralOf(50 * us)},
		{"that does not", false, deferralOf(100 * us)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(50 * us))
			p.purpose = model.PurposeOrder
			late := 0 * us
			p.truth = func(s model.Settings) window {
				w := steady()
				w.delay = 200 * us
				if s.GROFlushTimeout == 50*us {
					w.delay += late
				}
				return w
			}
			decide := func(f model.Features) model.Decision {
				d := p.decide(f)
				if !tc.knows {
					d.Forecast = nil
				}
				return d
			}
			b := newBench(t, 1, decide, func(o *tuner.Options) {
				o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
			})
			b.kernel.state[b.queues[0]] = deferralOf(100 * us)
			run := func(windows int) {
				for range windows {
					s := b.sample(p.show)
					s.CPUs = []model.CPUSample{{CPU: 1, Busy: 850 * time.Millisecond}}
					b.step(s)
				}
			}
			run(16)
			b.wantState(deferralOf(50 * us))
			late = 100 * us
			run(6)
			b.wantState(tc.want)
		})
	}
}
