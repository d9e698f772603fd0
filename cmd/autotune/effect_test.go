package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/tuner"
)

// effect is what one setting did to a constant load.
type effect struct {
	clientP50, clientP90 time.Duration
	probeP50, probeP90   time.Duration
	// cost is the CPU time of server and NAPI thread per request.
	cost time.Duration
}

func (e effect) String() string {
	return fmt.Sprintf("client p50 %v p90 %v, probes p50 %v p90 %v, CPU %v per request", e.clientP50, e.clientP90, e.probeP50, e.probeP90, e.cost)
}

func TestALongFlushTimeoutRaisesLatencyAndLowersCPU(t *testing.T) {
	// Under the usual scheduling any other work on the server's CPU, however
	// nice, delays a wake-up by more than the flush timeout does.
	bed := newRealtimeBed(t, 1)
	load := newLoadOf(t, bed, workload.ServerConfig{Realtime: true})
	testbed.Alone(t)
	threads, err := bed.NAPIThreads()
	if err != nil {
		t.Fatal(err)
	}
	pids := append(threads, load.server.PID())

	measure := func(phase, policy string) effect {
		t.Helper()
		b := startRun(t, "--apply", "--verbose", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "500ms",
			"--slo", "1s", "--slo-quantile", "0.9", "--policy", policy, bed.Server().Ifname)
		load.offer(t, "warm-up", 5000)
		// The window after the setting was applied is whole under it.
		windows := 0
		b.await("three windows", func(tuner.Entry) bool { windows++; return windows >= 3 })
		began, err := workload.CPUTime(pids...)
		if err != nil {
			t.Fatal(err)
		}
		load.offer(t, phase, 5000)
		timer := time.NewTimer(3 * time.Second)
		<-timer.C
		ended, err := workload.CPUTime(pids...)
		if err != nil {
			t.Fatal(err)
		}
		load.offer(t, "idle", 0)
		if code, stderr := b.stop(os.Interrupt); code != exitDone {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		s := workload.Summarize(load.client.Intervals(), phase)
		if s.Completed == 0 {
			t.Fatal("no request was answered")
		}
		e := effect{clientP50: s.Latency.Quantile(0.5), clientP90: s.Latency.Quantile(0.9), cost: (ended - began) / time.Duration(s.Completed)}
		for _, entry := range b.entries {
			if ev := entry.Evidence; ev.QuantileDelay != nil && ev.MedianDelay != nil {
				e.probeP50, e.probeP90 = *ev.MedianDelay, *ev.QuantileDelay
			}
		}
		t.Logf("%-28s %v", policy, e)
		return e
	}

	// Interleaved. Other work on the machine can only hide the effect, so the
	// least disturbed of a few rounds decides.
	const rounds = 5
	for round := range rounds {
		base := measure(fmt.Sprintf("base %d", round), "base")
		long := measure(fmt.Sprintf("long %d", round), "static:defer=100,flush=2ms")
		var missed []string
		if long.clientP50 < 5*base.clientP50 {
			missed = append(missed, fmt.Sprintf("client p50 %v with a flush timeout of 2 ms, want at least 5 times the base's %v", long.clientP50, base.clientP50))
		}
		if long.cost >= base.cost {
			missed = append(missed, fmt.Sprintf("CPU %v per request with a flush timeout of 2 ms, want less than the base's %v", long.cost, base.cost))
		}
		if long.probeP50 < long.clientP50/2 || long.probeP50 > 2*long.clientP50 {
			missed = append(missed, fmt.Sprintf("the probes see a p50 of %v where the client sees %v", long.probeP50, long.clientP50))
		}
		if len(missed) == 0 {
			return
		}
		t.Logf("round %d of %d: %v", round+1, rounds, missed)
	}
	t.Error("no round showed the effect")
}
