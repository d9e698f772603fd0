package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/sim"
	"autotune/tuner"
)

var (
	_ tuner.Source   = (*sim.Simulator)(nil)
	_ tuner.Actuator = (*sim.Simulator)(nil)
)

func newSimulator(t *testing.T, o sim.Options) *sim.Simulator {
	t.Helper()
	s, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func next(t *testing.T, s *sim.Simulator) model.Sample {
	t.Helper()
	sample, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

func caseNamed(t *testing.T, name string) sim.Case {
	t.Helper()
	c, err := sim.CaseByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSamplesHoldWhatALiveProbeWouldSee(t *testing.T) {
	const window = 100 * time.Millisecond
	for _, name := range []string{"base", "defer50", "suspend20"} {
		t.Run(name, func(t *testing.T) {
			c := caseNamed(t, name)
			s := newSimulator(t, sim.Options{Case: c, Load: sim.Constant(400e3), Seed: 1, Window: window, Warmup: window})
			for i := range 3 {
				sample := next(t, s)
				if want := window * time.Duration(i+2); sample.At != want || sample.Span != window {
					t.Fatalf("sample ends at %v and spans %v, want %v and %v", sample.At, sample.Span, want, window)
				}
				checkSample(t, sample, c)
			}
		})
	}
}

func checkSample(t *testing.T, sample model.Sample, c sim.Case) {
	t.Helper()
	if len(sample.Queues) != 8 || len(sample.CPUs) != 8 || len(sample.Apps) != 1 {
		t.Fatalf("%d queues, %d CPUs, %d applications, want 8, 8, 1", len(sample.Queues), len(sample.CPUs), len(sample.Apps))
	}
	if !slices.IsSortedFunc(sample.Queues, func(a, b model.QueueSample) int { return a.Queue.Compare(b.Queue) }) {
		t.Error("queues are not in order")
	}
	var delays, packets uint64
	for _, q := range sample.Queues {
		polls := q.Polls()
		var work, inWork uint64
		for n, count := range q.Work {
			work += count
			inWork += uint64(n) * count
		}
		if work != polls.Polls || inWork != polls.Packets {
			t.Errorf("queue %v: work histogram has %d polls with %d packets, counters %d with %d", q.Queue, work, inWork, polls.Polls, polls.Packets)
		}
		if q.Timer == nil || q.RingWait == nil || q.SocketWait == nil || q.Service == nil || q.Delay == nil {
			t.Fatalf("queue %v: something observable is nil", q.Queue)
		}
		if q.ThreadTime != nil || q.Thread.Polls != 0 {
			t.Errorf("queue %v: has a NAPI thread", q.Queue)
		}
		if sample.Active[q.Queue] != c.NAPI {
			t.Errorf("queue %v: active %v, want %v", q.Queue, sample.Active[q.Queue], c.NAPI)
		}
		// The median of the sum is at least each part's.
		for part, h := range map[string]*model.Histogram{"ring wait": q.RingWait, "socket wait": q.SocketWait, "service": q.Service} {
			if h.Quantile(0.5) > q.Delay.Quantile(0.5) {
				t.Errorf("queue %v: median %s %v above the delay's %v", q.Queue, part, h.Quantile(0.5), q.Delay.Quantile(0.5))
			}
		}
		if busy := q.Busy.Polls > 0; busy != c.Wait.Prefer {
			t.Errorf("queue %v: %d busy polls", q.Queue, q.Busy.Polls)
		}
		delays += q.Delay.Count()
		packets += polls.Packets
	}
	if sample.Latency == nil || sample.Latency.Source != "server-side delay" || sample.Latency.Histogram.Count() != delays {
		t.Errorf("latency %v does not hold the %d delays", sample.Latency, delays)
	}
	if rate := float64(delays) / sample.Span.Seconds(); math.Abs(rate/400e3-1) > 0.05 {
		t.Errorf("%.0f requests/s, offered 400000", rate)
	}
	if perRequest := float64(packets) / float64(delays); math.Abs(perRequest-2) > 0.05 {
		t.Errorf("%.2f packets per request, want 2", perRequest)
	}
	for _, cpu := range sample.CPUs {
		if cpu.NetRX == nil || cpu.NetRXIdle == nil || *cpu.NetRXIdle > *cpu.NetRX || *cpu.NetRX > cpu.Busy || cpu.Busy > sample.Span*11/10 {
			t.Errorf("CPU %d: busy %v, NET_RX %v, of it idle %v, in %v", cpu.CPU, cpu.Busy, cpu.NetRX, cpu.NetRXIdle, sample.Span)
		}
	}
	for _, cpu := range sample.CPUs {
		if cpu.HardIRQ == nil || cpu.HardIRQIdle == nil || *cpu.HardIRQIdle > *cpu.HardIRQ || *cpu.HardIRQ+*cpu.NetRX > cpu.Busy {
			t.Errorf("CPU %d: busy %v, NET_RX %v, interrupts %v, of it idle %v", cpu.CPU, cpu.Busy, cpu.NetRX, cpu.HardIRQ, cpu.HardIRQIdle)
		}
	}
	app := sample.Apps[0]
	if len(app.Contexts) != 8 || app.Waits == nil || app.CPU <= 0 {
		t.Fatalf("application %+v", app)
	}
	for i, context := range app.Contexts {
		if !slices.Equal(context.NAPIIDs, []uint32{sample.Queues[i].NAPIID}) || context.Prefer != c.Wait.Prefer {
			t.Errorf("context %+v does not belong to NAPI %d", context, sample.Queues[i].NAPIID)
		}
	}
	if _, err := json.Marshal(sample); err != nil {
		t.Errorf("sample does not marshal: %v", err)
	}
}

func TestSamplesAddUpWhateverTheWindow(t *testing.T) {
	total := func(window time.Duration) (served, polls uint64, busy time.Duration) {
		s := newSimulator(t, sim.Options{
			Case: caseNamed(t, "defer20"), Load: sim.Constant(700e3), Seed: 4,
			Window: window, Duration: 60 * time.Millisecond,
		})
		for {
			sample, err := s.Next(context.Background())
			if errors.Is(err, io.EOF) {
				return served, polls, busy
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, q := range sample.Queues {
				served += q.Delay.Count()
				polls += q.Polls().Polls
				busy += sample.CPUs[i].Busy
			}
		}
	}
	s1, p1, b1 := total(60 * time.Millisecond)
	s2, p2, b2 := total(time.Millisecond)
	near := func(a, b float64) bool { return math.Abs(a/b-1) < 0.01 }
	if !near(float64(s1), float64(s2)) || !near(float64(p1), float64(p2)) || !near(float64(b1), float64(b2)) {
		t.Errorf("one window: %d served, %d polls, %v busy; sixty: %d, %d, %v", s1, p1, b1, s2, p2, b2)
	}
}

func TestApplyChangesWhatTheSimulatorDoes(t *testing.T) {
	s := newSimulator(t, sim.Options{Load: sim.Constant(200e3), Seed: 2, Window: 100 * time.Millisecond, Warmup: 100 * time.Millisecond})
	before := next(t, s)
	deferral := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond}
	want := model.Config{}
	for q := range before.Active {
		want[q] = deferral
	}
	for range 2 { // idempotent
		got, err := s.Apply(context.Background(), want)
		if err != nil {
			t.Fatal(err)
		}
		for q := range want {
			if got[q] != deferral {
				t.Fatalf("queue %v reads back as %v", q, got[q])
			}
		}
	}
	next(t, s)
	after := next(t, s)
	if b, a := before.Latency.Histogram.Quantile(0.5), after.Latency.Histogram.Quantile(0.5); a < 2*b {
		t.Errorf("median delay went from %v to %v: a flush timeout of 200 us does more", b, a)
	}
	for i := range after.Queues {
		if b, a := before.Queues[i].Polls().Polls, after.Queues[i].Polls().Polls; a > b*2/3 {
			t.Errorf("queue %d: polls went from %d to %d, want fewer than two thirds", i, b, a)
		}
		if fires := after.Queues[i].Timer.Fires; fires < 400 || fires > 520 {
			t.Errorf("queue %d: %d timer fires in 100 ms, want about 490", i, fires)
		}
	}
}

func TestApplyRefusesWhatTheKernelRefuses(t *testing.T) {
	s := newSimulator(t, sim.Options{Load: sim.Constant(1000), Seed: 2})
	good, bad, gone := sim.SimulatedQueue(0), sim.SimulatedQueue(1), sim.SimulatedQueue(99)
	set := model.Settings{DeferHardIRQs: 2, GROFlushTimeout: time.Microsecond}
	got, err := s.Apply(context.Background(), model.Config{
		good: set, bad: {DeferHardIRQs: 1 << 31}, gone: set,
	})
	if !errors.Is(err, model.ErrOutOfBounds) || !errors.Is(err, model.ErrGone) {
		t.Errorf("error %v, want both out of bounds and gone", err)
	}
	if got[good] != set || got[bad] != (model.Settings{}) {
		t.Errorf("read back %v", got)
	}
	if _, ok := got[gone]; ok {
		t.Error("a queue that does not exist was read back")
	}
}

func TestSourceEndsAndObeysItsContext(t *testing.T) {
	s := newSimulator(t, sim.Options{Load: sim.Constant(1000), Window: 10 * time.Millisecond, Duration: 25 * time.Millisecond})
	var spans []time.Duration
	for {
		sample, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, sample.Span)
	}
	if want := []time.Duration{10e6, 10e6, 5e6}; !slices.Equal(spans, want) {
		t.Errorf("spans %v, want %v", spans, want)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the context ended", err)
	}
}

func TestClientLatencyIsNamed(t *testing.T) {
	o := sim.Options{Load: sim.Constant(100e3), Seed: 3, Window: 50 * time.Millisecond}
	server := next(t, newSimulator(t, o))
	o.Latency = sim.LatencyClient
	client := next(t, newSimulator(t, o))
	if client.Latency.Source == server.Latency.Source {
		t.Errorf("both are from %q", client.Latency.Source)
	}
	if s, c := server.Latency.Histogram.Quantile(0.5), client.Latency.Histogram.Quantile(0.5); c < s+20*time.Microsecond {
		t.Errorf("median at the client %v, at the server %v: the round trip is missing", c, s)
	}
}

// TestQueuesShowTheLatencyThatTheSampleDoes checks that a policy that decides
// queue by queue sees what the objective is judged by, of sampled connections.
func TestQueuesShowTheLatencyThatTheSampleDoes(t *testing.T) {
	for _, source := range []sim.LatencySource{sim.LatencyServer, sim.LatencyClient} {
		o := sim.Options{Load: sim.Constant(200e3), Seed: 3, Window: 100 * time.Millisecond, Latency: source}
		all := next(t, newSimulator(t, o))
		var merged model.Histogram
		for i := range all.Queues {
			merged.Merge(all.Queues[i].Delay)
		}
		if merged != all.Latency.Histogram {
			t.Errorf("%s: the queues' delays do not add up to the sample's", all.Latency.Source)
		}
		o.SampleEvery = 8
		some := next(t, newSimulator(t, o))
		if n, of := some.Latency.Histogram.Count(), all.Latency.Histogram.Count(); n < of/16 || n > of/4 {
			t.Errorf("%s: %d delays of one connection in eight, %d of all", all.Latency.Source, n, of)
		}
	}
}
