//go:build linux

package workload_test

import (
	"fmt"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
)

// cell is one setting at one rate, measured once.
type cell struct {
	summary workload.PhaseSummary
	// cost is the CPU time of the server's process and the NAPI threads per
	// request.
	cost time.Duration
	// stolen and preempted are the server's gaps.
	stolen, preempted uint64
}

// measure runs one phase and measures it once it has settled.
func (r *rig) measure(tb testing.TB, name string, s setting, rate float64, span time.Duration) cell {
	tb.Helper()
	s.apply(tb, r.bed)
	threads, err := r.bed.NAPIThreads()
	if err != nil {
		tb.Fatal(err)
	}
	spent := func() time.Duration {
		used, err := workload.CPUTime(append(threads, r.server.PID())...)
		if err != nil {
			tb.Fatal(err)
		}
		return used
	}
	const settle = 300 * time.Millisecond
	start, err := r.client.Phase(tb.Context(), workload.Phase{Name: name, Rate: rate, Settle: settle, Fresh: true})
	if err != nil {
		tb.Fatal(err)
	}
	<-time.After(settle)
	before := spent()
	<-time.After(span)
	used := spent() - before
	// What is measured ends with the next phase.
	end, err := r.client.Phase(tb.Context(), workload.Phase{Name: "between", Rate: rate})
	if err != nil {
		tb.Fatal(err)
	}
	c := cell{summary: workload.Summarize(r.client.Intervals(), name)}
	if c.summary.Completed == 0 {
		tb.Fatalf("%s: no request was answered", name)
	}
	c.cost = time.Duration(float64(used) / (c.summary.AchievedRate * span.Seconds()))
	for _, in := range r.server.Intervals() {
		if in.Start < start || in.End > end {
			continue
		}
		for _, gap := range in.Gaps.Listed {
			if gap.Cause == workload.GapStolen {
				c.stolen++
			} else {
				c.preempted++
			}
		}
	}
	return c
}

func (c cell) String() string {
	s := c.summary
	return fmt.Sprintf("%.0f of %.0f requests/s, %v CPU per request, p50 %v, p90 %v, p99 %v, %.1f%% excluded, raw p90 %v p99 %v, server's gaps %d stolen %d preempted",
		s.AchievedRate, s.OfferedRate, c.cost, s.Latency.Quantile(0.5), s.Latency.Quantile(0.9), s.Latency.Quantile(0.99),
		100*float64(s.Excluded)/float64(s.Completed), s.RawLatency.Quantile(0.9), s.RawLatency.Quantile(0.99), c.stolen, c.preempted)
}

func (c cell) median() time.Duration { return c.summary.RawLatency.Quantile(0.5) }

// quietest returns the cell with the least median latency: other work on the
// same CPUs only ever adds to it.
func quietest(cells []cell) cell {
	best := cells[0]
	for _, c := range cells[1:] {
		if c.median() < best.median() {
			best = c
		}
	}
	return best
}

func TestFlushTimeoutTradesLatencyForCPU(t *testing.T) {
	testbed.Require(t)
	r := newRig(t, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 8})
	const rate = 5000
	short, long := base(), deferred(2*time.Millisecond)
	cells := map[string][]cell{}
	var failure string
	// Alone on the machine one round decides: p50 is 15 times base. More are
	// run where other work disturbs them.
	for round := range 8 {
		for _, s := range []setting{short, long} {
			c := r.measure(t, fmt.Sprintf("%s round %d", s.name, round), s, rate, time.Second)
			t.Logf("%s: %v", s.name, c)
			cells[s.name] = append(cells[s.name], c)
		}
		failure = ""
		plain, late := quietest(cells[short.name]), quietest(cells[long.name])
		if got, least := late.median(), 5*plain.median(); got < least {
			failure = fmt.Sprintf("p50 is %v with a flush timeout of 2 ms, want at least 5 times base, %v", got, least)
		} else if late.cost >= plain.cost {
			failure = fmt.Sprintf("%v CPU per request with a flush timeout of 2 ms, want less than base, %v", late.cost, plain.cost)
		}
		if failure == "" {
			break
		}
	}
	if failure != "" {
		t.Error(failure)
	}
	r.stop(t)
}

// BenchmarkTradeOff shows that no fixed setting is best at every load. Each
// operation is a second of load, and the rounds interleave the settings:
//
//	go test -run '^$' -bench TradeOff -benchtime 4x ./experiments/workload
//
// It needs both CPUs for itself: other work makes an idle CPU busy, which
// changes what a wake costs.
func BenchmarkTradeOff(b *testing.B) {
	testbed.Require(b)
	r := newRig(b, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 9})
	settings := []setting{base(), deferred(50 * time.Microsecond), deferred(100 * time.Microsecond), deferred(200 * time.Microsecond)}
	for round := range 3 {
		for _, rate := range []int{2000, 5000, 40000} {
			for i := range settings {
				s := settings[(i+round)%len(settings)]
				name := fmt.Sprintf("rate=%d/%s/round=%d", rate, s.name, round)
				b.Run(name, func(b *testing.B) {
					c := r.measure(b, fmt.Sprint(name, " ", b.N), s, float64(rate), time.Duration(b.N)*time.Second)
					b.Logf("%v", c)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(c.cost.Nanoseconds()), "cpu-ns/request")
					b.ReportMetric(float64(c.summary.Latency.Quantile(0.5).Microseconds()), "p50-us")
					b.ReportMetric(float64(c.summary.Latency.Quantile(0.9).Microseconds()), "p90-us")
					b.ReportMetric(c.summary.AchievedRate, "requests/s")
				})
			}
		}
	}
}
