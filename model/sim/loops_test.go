package sim_test

import (
	"testing"
	"time"

	"autotune/model/sim"
)

// What a sample tells of loops must agree with itself, whatever the setting.
func TestLoopsAddUp(t *testing.T) {
	for _, c := range sim.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			s := newSimulator(t, sim.Options{
				Case: c, Load: sim.Constant(300e3), Seed: 7, Window: 100 * time.Millisecond, Warmup: 50 * time.Millisecond,
			})
			sample := next(t, s)
			var started, resumed, timer, interrupts, unmasked uint64
			for _, q := range sample.Queues {
				to, of := q.Takeovers, q.Suspension
				// A loop is left as often as it is entered, but for the one at
				// the window's start and end.
				for name, pair := range map[string][2]uint64{
					"interrupt": {to.TimerToInterrupt + to.ApplicationToInterrupt, to.InterruptToTimer + to.InterruptToApplication},
					"timer":     {to.InterruptToTimer + to.ApplicationToTimer, to.TimerToInterrupt + to.TimerToApplication},
				} {
					if entered, left := pair[0], pair[1]; entered > left+1 || left > entered+1 {
						t.Errorf("queue %v: the %s loop took over %d times and was left %d times", q.Queue, name, entered, left)
					}
				}
				if ended := of.Resumed + of.Expired + of.Flushed; ended != of.Length.Count() || ended > of.Started+1 || of.Started > ended+1 {
					t.Errorf("queue %v: %d suspensions began, %d ended, %d have a length", q.Queue, of.Started, ended, of.Length.Count())
				}
				if q.TimerSoftirq.Polls > q.Softirq.Polls || q.TimerSoftirq.Packets > q.Softirq.Packets {
					t.Errorf("queue %v: %+v of the timer among %+v of the softirq", q.Queue, *q.TimerSoftirq, q.Softirq)
				}
				if q.Suspension.Length.Count() > 0 && q.Suspension.Length.Quantile(1) > 25*time.Millisecond {
					t.Errorf("queue %v: a suspension of %v, the timeout is 20 ms", q.Queue, q.Suspension.Length.Quantile(1))
				}
				started, resumed = started+of.Started, resumed+of.Resumed
				timer, interrupts, unmasked = timer+q.TimerSoftirq.Polls, interrupts+*q.Interrupts, unmasked+*q.Unmasked
			}
			app := sample.Apps[0]
			var events, calls, busy uint64
			for n, count := range app.Waits {
				calls += count
				events += uint64(n) * count
			}
			for _, q := range sample.Queues {
				busy += q.Busy.Polls
			}
			if *app.Events < events || *app.Full > calls || app.BusyPolls.Polls != busy {
				t.Errorf("%d events in waits of %d, %d full of %d, %d busy polls of %d", *app.Events, events, *app.Full, calls, app.BusyPolls.Polls, busy)
			}
			suspends := c.Wait.Prefer && c.NAPI.IRQSuspendTimeout > 0
			if suspends != (started > 0) || (suspends && resumed < started*9/10) {
				t.Errorf("%d suspensions began and %d were resumed", started, resumed)
			}
			if deferred := c.NAPI.GROFlushTimeout > 0 && c.Wait.BusyPoll == 0; deferred != (timer > 0) && c.Wait.BusyPoll == 0 {
				t.Errorf("%d polls of the timer", timer)
			}
			if deferred := c.NAPI.GROFlushTimeout > 0; deferred && interrupts > 1000 || !deferred && interrupts < 1000 {
				t.Errorf("%d interrupts", interrupts)
			}
			if c.NAPI.DeferHardIRQs == 100 && unmasked > interrupts {
				t.Errorf("the defer count of 100 ran out %d times", unmasked)
			}
		})
	}
}
