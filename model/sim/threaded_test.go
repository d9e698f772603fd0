package sim_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/sim"
)

// threadedSample is a second of the test bed's simulated host, whose NAPI has a
// kernel thread and whose application prefers busy polling.
func threadedSample(t *testing.T, p *sim.Preset, setting string) model.Sample {
	t.Helper()
	parsed, err := sim.ParseSetting(setting)
	if err != nil {
		t.Fatal(err)
	}
	s := newSimulator(t, sim.Options{
		Preset: p, Case: sim.Case{NAPI: parsed.NAPI, Wait: sim.Wait{Prefer: true, Budget: 64}},
		Load: sim.Constant(8000), Seed: 1, Window: time.Second, Warmup: 50 * time.Millisecond, Workers: 1,
	})
	return next(t, s)
}

func bedPreset(t *testing.T) *sim.Preset {
	t.Helper()
	p, err := sim.LoadPreset("veth")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The thread of a NAPI is a task of its own: no time is both its and the
// application's, as it would be with a softirq that interrupts the application.
func TestTheTimeOfANAPIThreadIsNotTheApplications(t *testing.T) {
	for _, setting := range []string{"defer=0,flush=0s", "defer=100,flush=60us", "defer=100,flush=60us,suspend=20ms"} {
		s := threadedSample(t, bedPreset(t), setting)
		sum, busy := *s.Queues[0].ThreadTime+s.Apps[0].CPU, s.CPUs[0].Busy
		if off := (sum - busy).Abs(); off > busy/20 {
			t.Errorf("%s: thread and application took %v, their CPU was busy for %v", setting, sum, busy)
		}
	}
}

// A timer is armed once by each poll of the thread, by each epoll_wait that
// gives the NAPI back, and by each that suspends the interrupt.
func TestATimerIsArmedOnceWhenABusyPollEnds(t *testing.T) {
	for setting, perWait := range map[string]float64{"defer=100,flush=60us": 1, "defer=100,flush=60us,suspend=20ms": 2} {
		q := threadedSample(t, bedPreset(t), setting).Queues[0]
		calls := float64(q.Busy.Polls) / 2 // busy_poll_stop polls once more
		want := float64(q.Thread.Polls) + perWait*calls
		if got := float64(q.Timer.Arms); got < 0.97*want || got > 1.03*want {
			t.Errorf("%s: armed %.0f times, want about %.0f", setting, got, want)
		}
	}
}

// Where the sender schedules the NAPI, packets are known to wait while the
// receiving core leaves idle.
func TestTheWakeUpOfACoreIsInTheWaitOfPacketsThatTheSenderSchedulesFor(t *testing.T) {
	wait := func(bySender bool, extra time.Duration) time.Duration {
		p := bedPreset(t)
		p.NIC.ScheduledBySender = bySender
		p.Cost.IdleExitNIC += extra
		q := threadedSample(t, p, "defer=0,flush=0s").Queues[0]
		return q.RingWait.Quantile(0.5)
	}
	const extra = 40 * time.Microsecond
	if before, after := wait(true, 0), wait(true, extra); after < before+extra/2 {
		t.Errorf("scheduled by the sender, packets wait %v and, where cores wake %v later, %v", before, extra, after)
	}
	if before, after := wait(false, 0), wait(false, extra); after > before+extra/2 {
		t.Errorf("scheduled by an interrupt, packets wait %v and, where cores wake %v later, %v", before, extra, after)
	}
}

// What an hrtimer's interrupt takes is paid for where timers poll only.
func TestATimersInterruptCostsWhatTimersPoll(t *testing.T) {
	cost := func(setting string, extra time.Duration) time.Duration {
		p := bedPreset(t)
		p.Cost.InterruptTimer += extra
		s := threadedSample(t, p, setting)
		return s.CPUs[0].Busy
	}
	const extra = 2 * time.Microsecond
	if before, after := cost("defer=0,flush=0s", 0), cost("defer=0,flush=0s", extra); after != before {
		t.Errorf("without timers it took %v instead of %v", after, before)
	}
	fires := threadedSample(t, bedPreset(t), "defer=100,flush=60us").Queues[0].Timer.Fires
	want := time.Duration(fires) * extra
	if got := cost("defer=100,flush=60us", extra) - cost("defer=100,flush=60us", 0); got < want*7/10 || got > want*11/10 {
		t.Errorf("%d timers took %v more, want about %v", fires, got, want)
	}
}
