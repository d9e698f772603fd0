package sim

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func drawPreset(t *rapid.T) *Preset {
	p, err := LoadPreset(DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	for _, parameter := range Parameters() {
		if rapid.Bool().Draw(t, "move "+parameter.Name) {
			parameter.Set(p, parameter.fromUnit(rapid.Float64Range(0, 1).Draw(t, parameter.Name)))
		}
	}
	p.Host.Queues = rapid.IntRange(1, 4).Draw(t, "queues")
	p.Host.Connections = rapid.IntRange(p.Host.Queues, 800).Draw(t, "connections")
	p.NIC.Ring = rapid.IntRange(1, 256).Draw(t, "ring")
	p.NIC.AdaptiveRx = rapid.Bool().Draw(t, "adaptive rx")
	p.NIC.AdaptiveTx = rapid.Bool().Draw(t, "adaptive tx")
	p.NIC.RestartTimer = rapid.Bool().Draw(t, "restart timer")
	p.NIC.AffinityBound = rapid.Bool().Draw(t, "affinity bound")
	p.Scheduling.Hold = time.Duration(rapid.IntRange(0, 20).Draw(t, "hold")) * time.Millisecond
	p.Scheduling.CatchUp = time.Duration(rapid.IntRange(0, 20).Draw(t, "catch up")) * time.Millisecond
	p.Client.Retry = time.Duration(rapid.IntRange(1, 20).Draw(t, "retry")) * time.Millisecond
	return p
}

func drawCase(t *rapid.T) Case {
	micros := func(name string, top int) time.Duration {
		return time.Duration(rapid.IntRange(0, top).Draw(t, name)) * time.Microsecond
	}
	return Case{
		Name: "drawn",
		NAPI: model.Settings{
			DeferHardIRQs:     uint32(rapid.IntRange(0, 200).Draw(t, "defer")),
			GROFlushTimeout:   micros("flush", 1000),
			IRQSuspendTimeout: micros("suspend", 20_000),
		},
		Wait: Wait{
			BusyPoll:  micros("busy poll", 200),
			Budget:    rapid.IntRange(0, 256).Draw(t, "budget"),
			Prefer:    rapid.Bool().Draw(t, "prefer"),
			Timeout:   micros("timeout", 2000),
			MaxEvents: rapid.IntRange(0, 100).Draw(t, "max events"),
		},
	}
}

func drawLoad(t *rapid.T) Load {
	rate := rapid.Float64Range(100, 400e3).Draw(t, "rate")
	switch rapid.IntRange(0, 4).Draw(t, "load") {
	case 0:
		return ClosedLoop{}
	case 1:
		return MMPP{PerSecond: []float64{rate, rate / 10, 0}, Mean: 2 * time.Millisecond, Seed: 1}
	case 2:
		return OnOff{Low: 0, High: rate, On: time.Millisecond, Off: 3 * time.Millisecond, Seed: 4}
	case 3:
		return Flash{Base: rate / 10, Peak: rate, Start: 5 * time.Millisecond, Ramp: 5 * time.Millisecond, Hold: 5 * time.Millisecond}
	}
	return Constant(rate)
}

// Every request is with the client, on the wire, in the ring, in its socket or
// answered; every packet that arrived was polled, dropped or is in the ring.
func TestNothingIsLostUnderRandomSettings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Options{
			Preset: drawPreset(t), Case: drawCase(t), Load: drawLoad(t),
			Seed: rapid.Uint64().Draw(t, "seed"), Workers: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range s.lanes {
			before := l.now
			for l.now < int64(30*time.Millisecond) {
				l.step(int64(30 * time.Millisecond))
				if l.now < before {
					t.Fatalf("time went back from %d to %d in state %d", before, l.now, l.state)
				}
				before = l.now
			}
			checkConservation(t, l)
		}
	})
}

func checkConservation(t *rapid.T, l *lane) {
	c := &l.count
	polls := c.softirqPolls.Plus(c.busyPolls.PollCounts)
	if got := polls.Packets + c.dropped + uint64(l.ring.len()); got != c.arrived {
		t.Fatalf("%d packets arrived, but %d polled + %d dropped + %d in the ring", c.arrived, polls.Packets, c.dropped, l.ring.len())
	}
	outstanding, backlog := 0, uint64(0)
	for _, conn := range l.conns {
		if conn.outstanding {
			outstanding++
		}
		backlog += uint64(conn.backlog)
	}
	onTheWay := l.ready.len()
	for _, p := range l.flight.heap {
		if p.kind == packetRequest {
			onTheWay++
		}
	}
	for i := l.ring.head; i < l.ring.tail; i++ {
		if l.ring.at(i).kind == packetRequest {
			onTheWay++
		}
	}
	if onTheWay != outstanding {
		t.Fatalf("%d requests outstanding, but %d on the wire, in the ring or in sockets", outstanding, onTheWay)
	}
	if c.sent != c.served+uint64(outstanding) {
		t.Fatalf("%d requests sent, but %d served + %d outstanding", c.sent, c.served, outstanding)
	}
	if !l.closed && c.due != c.sent+backlog {
		t.Fatalf("%d requests due, but %d sent + %d held back by busy connections", c.due, c.sent, backlog)
	}
	if got := c.ringWait.Count(); got != c.served+uint64(l.ready.len()) {
		t.Fatalf("%d ring waits for %d served + %d ready", got, c.served, l.ready.len())
	}
	var histogram uint64
	for _, n := range c.work {
		histogram += n
	}
	if histogram != polls.Polls {
		t.Fatalf("work histogram has %d polls, counted %d", histogram, polls.Polls)
	}
	sent := int64(-1)
	for i := l.ready.head; i < l.ready.tail; i++ {
		d := l.ready.at(i)
		if d.visible < d.sent || d.polled < d.sent || d.sent < 0 {
			t.Fatalf("request arrived at %d, seen at %d, polled at %d", d.sent, d.visible, d.polled)
		}
		if d.polled < sent {
			t.Fatalf("requests ready out of order: %d after %d", d.polled, sent)
		}
		sent = d.polled
	}
	busy := c.softirq + c.thread + c.idleExit
	if limit := l.now + max(0, l.softNow-l.now); busy > 2*limit {
		t.Fatalf("%d ns of work in %d ns on two cores", busy, limit)
	}
	if l.host.Scheduling.Probability == 0 && busy > l.now {
		t.Fatalf("%d ns of work in %d ns on one core", busy, l.now)
	}
}

// A thread that stays on its NAPI's core never works more than the time that
// passed, and all time is accounted for.
func TestOneCoreDoesOneThingAtATime(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	p.Scheduling.Probability = 0
	for _, c := range Cases() {
		r, err := Run(context.Background(), Options{
			Preset: p, Case: c, Load: ClosedLoop{}, Seed: 1, Duration: 50 * time.Millisecond, Warmup: 20 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Utilisation > 1.0001 {
			t.Errorf("%s: utilisation %.4f above 1", c.Name, r.Utilisation)
		}
	}
}

func TestNoQueueStarves(t *testing.T) {
	for _, c := range Cases() {
		for _, load := range []Load{Constant(50e3), Constant(2e6), ClosedLoop{}} {
			s, err := New(Options{Case: c, Load: load, Seed: 8, Window: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			sample, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range sample.Queues {
				if q.Delay.Count() == 0 {
					t.Errorf("%s at %v: queue %v served nothing", c.Name, load, q.Queue)
				}
			}
		}
	}
}

// A full ring drops; dropped requests come back, and none is lost for ever.
func TestDroppedRequestsAreRetried(t *testing.T) {
	p := bare(10 * time.Microsecond)
	p.NIC.Ring = 2
	p.Host.Connections = 50
	p.Client.Retry = time.Millisecond
	c := Case{Name: "slow polls"}
	c.NAPI.DeferHardIRQs, c.NAPI.GROFlushTimeout = 100, 200*time.Microsecond
	s, err := New(Options{Preset: p, Case: c, Load: Constant(30e3), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.advance(t.Context(), time.Second)
	count := s.lanes[0].count
	if count.dropped == 0 || count.retried == 0 {
		t.Fatalf("%d drops and %d retries, want some of both", count.dropped, count.retried)
	}
	if count.served < 4_000 {
		t.Errorf("%d requests served in a second despite retries, want more than 4000", count.served)
	}
}

func TestSameSeedSameSamplesOnAnyNumberOfCores(t *testing.T) {
	run := func(workers int) []model.Sample {
		s, err := New(Options{
			Case: mustCase(t, "suspend20"), Load: MMPP{PerSecond: []float64{200e3, 700e3}, Mean: 5 * time.Millisecond, Seed: 2},
			Seed: 11, Window: 10 * time.Millisecond, Duration: 50 * time.Millisecond, Workers: workers,
		})
		if err != nil {
			t.Fatal(err)
		}
		return drain(t, s)
	}
	if diff := cmp.Diff(run(1), run(7)); diff != "" {
		t.Errorf("samples differ by the number of workers (-one +seven):\n%s", diff)
	}
}

func TestTableDoesNotDependOnWorkers(t *testing.T) {
	table := func(workers int) []Row {
		rows, err := Table(context.Background(), TableOptions{
			Cases: []string{"base", "suspend50"}, Loads: []string{"400K", "MAX"}, Runs: 2, Seed: 3,
			Span: 20 * time.Millisecond, Warmup: 5 * time.Millisecond, Workers: workers,
		})
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if diff := cmp.Diff(table(1), table(5)); diff != "" {
		t.Errorf("table differs by the number of workers (-one +five):\n%s", diff)
	}
}

// Buffers follow the largest occupancy, which connections bound: simulating
// longer, or beyond capacity, needs no more memory.
func TestMemoryDoesNotGrowWithSimulatedTime(t *testing.T) {
	for _, load := range []Load{Constant(3e6), ClosedLoop{}} {
		s, err := New(Options{Case: mustCase(t, "base"), Load: load, Seed: 1, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, until := range []time.Duration{100 * time.Millisecond, time.Second} {
			s.advance(t.Context(), until)
			for _, l := range s.lanes {
				// A request and an acknowledgement per connection, rounded up
				// to a power of two.
				limit := 4 * 2 * len(l.conns)
				for name, size := range map[string]int{
					"wire": cap(l.flight.heap), "ring": len(l.ring.buf), "sockets": len(l.ready.buf), "completions": len(l.tx.buf),
				} {
					if size > limit {
						t.Errorf("after %v the %s has room for %d, more than %d, with %d connections", until, name, size, limit, len(l.conns))
					}
				}
			}
		}
	}
}
