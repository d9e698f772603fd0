package sim

import (
	"context"
	"testing"
	"time"

	"autotune/model"
)

func runCase(t *testing.T, p *Preset, c Case, load Load) Result {
	t.Helper()
	return runCaseFor(t, p, c, load, 200*time.Millisecond)
}

func runCaseFor(t *testing.T, p *Preset, c Case, load Load, duration time.Duration) Result {
	t.Helper()
	r, err := Run(context.Background(), Options{
		Preset: p, Case: c, Load: load, Seed: 4, Duration: duration, Warmup: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Cores that do nothing but poll slow each other down by 1/(1 - contention).
func TestBusyPollsContend(t *testing.T) {
	polls := func(contention float64) float64 {
		p := mustPreset(t, DefaultPreset)
		p.Cost.BusyPollContention = contention
		return runCase(t, p, mustCase(t, "fullbusy"), Constant(800)).Polls
	}
	alone, together := polls(0), polls(0.6)
	if ratio := together / alone; !within(ratio, 0.4, 0.03) {
		t.Errorf("%.0f polls/s without contention, %.0f with 0.6: ratio %.3f, want 0.4", alone, together, ratio)
	}
}

// What a core spends on becoming idle costs cycles, but neither utilisation nor
// latency.
func TestIdleEntryCostsCyclesOnly(t *testing.T) {
	c := mustCase(t, "defer200")
	run := func(entry time.Duration) Result {
		p := mustPreset(t, DefaultPreset)
		p.Cost.IdleEntry, p.Scheduling.Probability = entry, 0
		return runCaseFor(t, p, c, Constant(80e3), 2*time.Second)
	}
	without, with := run(0), run(2*time.Microsecond)
	if !within(with.CPUPercent, without.CPUPercent, 0.01) || !within(with.P99Us, without.P99Us, 0.01) {
		t.Errorf("CPU %.2f%% and p99 %.1f us without, %.2f%% and %.1f us with", without.CPUPercent, without.P99Us, with.CPUPercent, with.P99Us)
	}
	if with.CyclesPerQuery < 1.05*without.CyclesPerQuery {
		t.Errorf("%.0f cycles per request without, %.0f with", without.CyclesPerQuery, with.CyclesPerQuery)
	}
}

// A softirq that meets a running thread takes longer than one that meets an
// idle core.
func TestColdSoftirqsTakeLonger(t *testing.T) {
	softirq := func(cold time.Duration, load Constant) float64 {
		p := mustPreset(t, DefaultPreset)
		p.Cost.SoftirqCold, p.Scheduling.Probability = cold, 0
		return runCase(t, p, mustCase(t, "defer10"), load).SoftirqPercent
	}
	if idle := softirq(time.Microsecond, 8e3) / softirq(0, 8e3); idle > 1.05 {
		t.Errorf("%.2f times the softirq time on idle cores", idle)
	}
	if busy := softirq(time.Microsecond, 500e3) / softirq(0, 500e3); busy < 1.05 {
		t.Errorf("%.2f times the softirq time on busy cores, want at least 1.05", busy)
	}
}

// Each completion queue interrupts on its own: an event of one leaves the
// other armed, and completing the NAPI arms both.
func TestCompletionQueuesAreArmedApart(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	p.NIC.AdaptiveRx, p.NIC.AdaptiveTx = false, false
	p.NIC.RxTime, p.NIC.RxPackets, p.NIC.TxTime, p.NIC.TxPackets = 1000, 1, 1000, 1
	l := newLane(p, mustCase(t, "base"), 1, newArrivals(Constant(0), QueueShare{Fraction: 1}, 0), newRandom(1))
	l.tx.push(0)
	at, cause := l.event()
	if at != 0 || cause != causeTx {
		t.Fatalf("event %v at %d, want the transmit queue's at 0", cause, at)
	}
	l.raised(cause, at)
	if l.txArmed || !l.rxArmed {
		t.Fatalf("armed: receive %v, transmit %v after an event of the transmit queue", l.rxArmed, l.txArmed)
	}
	if _, cause := l.event(); cause != causeNone {
		t.Errorf("a disarmed queue raised another event")
	}
	l.complete(100, 0)
	if !l.txArmed || !l.rxArmed {
		t.Errorf("armed: receive %v, transmit %v after completion", l.rxArmed, l.txArmed)
	}
}

// The hrtimer runs where it was armed: a thread that busy polled has the
// softirq on its own core afterwards, whichever core that is.
func TestTimerFollowsTheThread(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	l := newLane(p, mustCase(t, "suspend20"), 1, newArrivals(Constant(0), QueueShare{Fraction: 1}, 0), newRandom(1))
	l.displace(true)
	l.stopBusyPoll()
	if l.displaced || !l.napiAway || l.timer == never {
		t.Errorf("displaced %v, away %v, timer at %d after a busy poll that armed it", l.displaced, l.napiAway, l.timer)
	}
	if l.interrupt(causeRx, l.now, l.now); l.napiAway {
		t.Error("an interrupt did not bring the NAPI back to its core")
	}
	own := newLane(p, Case{Wait: Wait{Prefer: true}, NAPI: model.Settings{}}, 1, newArrivals(Constant(0), QueueShare{Fraction: 1}, 0), newRandom(1))
	own.displace(true)
	own.stopBusyPoll()
	if !own.displaced {
		t.Error("a NAPI that is left to interrupts followed the thread")
	}
}

// A driver that finds itself on a core outside the interrupt's affinity ends
// polling after a full poll, and says that it had one packet less.
func TestFullPollsEndAwayFromTheInterrupt(t *testing.T) {
	for _, tc := range []struct {
		name        string
		away, bound bool
		polls, left int
		reported    int // the work of the first poll
	}{
		{"at the interrupt's core", false, true, 2, 0, 64},
		{"away", true, true, 1, 36, 63},
		{"away, another driver", true, false, 2, 0, 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := mustPreset(t, DefaultPreset)
			p.NIC.AffinityBound = tc.bound
			l := newLane(p, mustCase(t, "defer200"), 100, newArrivals(Constant(0), QueueShare{Fraction: 1}, 0), newRandom(1))
			l.rxArmed, l.txArmed, l.napiAway = false, false, tc.away
			for i := range 100 {
				l.ring.push(packet{conn: int32(i)})
			}
			l.softirq(0, false)
			got := l.count.softirqPolls
			if int(got.Polls) != tc.polls || l.ring.len() != tc.left || l.count.work[tc.reported] != 1 {
				t.Errorf("%d polls with %d packets left, %d of %d: want %d with %d left", got.Polls, l.ring.len(),
					l.count.work[tc.reported], tc.reported, tc.polls, tc.left)
			}
			if int(got.Packets) != 100-tc.left {
				t.Errorf("counted %d packets, want %d", got.Packets, 100-tc.left)
			}
			if l.timer == never {
				t.Error("the NAPI completed without its timer")
			}
		})
	}
}

// A thread that is away with its NAPI shares its core with another queue's
// softirqs, where that queue's NAPI is at its interrupt.
func TestSoftirqsOfTheQueueNextDoorTakeTime(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	l := newLane(p, mustCase(t, "napibusy"), 560, newArrivals(Constant(0), QueueShare{Fraction: 0.125}, 0), newRandom(1))
	l.rxArmed, l.txArmed = false, false
	for i := range int64(200) { // 30 us of every 100
		l.near.current(i*100_000, true).note(30_000, 40)
	}
	l.threadAway, l.napiAway, l.now = true, true, 20_000_000
	l.runThread(7_000_000)
	if taken := l.now - 27_000_000; taken < 2_000_000 || taken > 5_000_000 {
		t.Errorf("softirqs that take 30%% took %.1f ms from 7 ms of work, want 3 or little more", float64(taken)/1e6)
	}
	if l.count.thread > 8_000_000 {
		t.Errorf("%d ns are the thread's, which had work for 7 ms", l.count.thread)
	}
	l.near.quiet = true
	before := l.now
	if l.runThread(1_000_000); l.now != before+1_000_000 {
		t.Errorf("1 ms of work took %d ns on a core without softirqs", l.now-before)
	}
}

func TestOneQueueCanCarryHalfOfTheLoad(t *testing.T) {
	got := shareConnections(Host{Queues: 4, Connections: 1000, HeaviestShare: 0.5})
	sum := 0
	for _, n := range got {
		sum += n
	}
	if len(got) != 4 || sum != 1000 || got[3] != 500 {
		t.Errorf("shares %v, want 4 of 1000 in all, the last of 500", got)
	}
}
