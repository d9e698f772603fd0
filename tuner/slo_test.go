package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
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
