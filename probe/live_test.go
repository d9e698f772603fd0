package probe

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
)

const liveInterval = 100 * time.Millisecond

// within fails the test unless got lies between low and high.
func within[T int | uint64 | float64 | time.Duration](tb testing.TB, what string, got, low, high T) {
	tb.Helper()
	if got < low || got > high {
		tb.Errorf("%s is %v, want %v to %v", what, got, low, high)
	}
}

// settle ends the load, reads windows until the last packet was counted, adds
// them to the totals, and returns how many packets the device then had received.
func (b *bed) settle(tb testing.TB, s *Source, total *totals) uint64 {
	tb.Helper()
	if b.load != nil {
		if _, err := b.load.Stop(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	received := func() uint64 {
		n, err := b.RxPackets()
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	// A window that begins after one reading of the device and ends before an
	// equal one has no packet that is only half counted.
	for range 50 {
		before, counted := received(), total.polls().Packets
		total.add(next(tb, s))
		if total.polls().Packets == counted && received() == before {
			return before
		}
	}
	tb.Fatal("packets keep coming although the load has ended")
	return 0
}

// losses names the programs that did not run when they should have.
func losses(tb testing.TB, s *Source) map[string]uint64 {
	tb.Helper()
	found := make(map[string]uint64)
	for _, a := range s.kernel.(*programs).attached {
		stats, err := a.program.Stats()
		if err != nil {
			tb.Fatal(err)
		}
		if stats.RecursionMisses != 0 {
			found[a.name] = stats.RecursionMisses
		}
	}
	return found
}

func deferral(flush time.Duration) model.Settings {
	return model.Settings{DeferHardIRQs: 100, GROFlushTimeout: flush}
}

func TestPollsAreCountedByLoop(t *testing.T) {
	for _, tt := range []struct {
		name     string
		bed      testbed.Options
		busy     *workload.BusyPoll
		settings model.Settings
		// loop picks the loop that should have done the work; share is the
		// least share of the packets that it must have had.
		loop  func(*totals) model.PollCounts
		share float64
	}{
		{
			name: "softirq", bed: testbed.Options{},
			loop: func(t *totals) model.PollCounts { return t.softirq }, share: 1,
		},
		{
			name: "softirq, two queues, deferred", bed: testbed.Options{Queues: 2}, settings: deferral(200 * time.Microsecond),
			loop: func(t *totals) model.PollCounts { return t.softirq }, share: 1,
		},
		{
			name: "thread", bed: testbed.Options{Threaded: true, ServerCPU: 1},
			loop: func(t *totals) model.PollCounts { return t.thread }, share: 1,
		},
		{
			name: "thread, four queues, deferred", bed: testbed.Options{Queues: 4, Threaded: true, ServerCPU: 1}, settings: deferral(200 * time.Microsecond),
			loop: func(t *totals) model.PollCounts { return t.thread }, share: 1,
		},
		{
			name: "application", bed: testbed.Options{Threaded: true, ServerCPU: 1},
			busy:     &workload.BusyPoll{Span: 200 * time.Microsecond, Budget: 8, Prefer: true},
			settings: model.Settings{DeferHardIRQs: 100, GROFlushTimeout: time.Millisecond, IRQSuspendTimeout: 20 * time.Millisecond},
			loop:     func(t *totals) model.PollCounts { return t.busy }, share: 0.2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.Attempt(t, func(t testing.TB) {
				b := newBed(t, tt.bed)
				b.set(t, tt.settings)
				b.serve(t, tt.busy)
				s := b.open(t, Options{Interval: liveInterval})
				hidden := startUnseen(t)
				before, err := b.RxPackets()
				if err != nil {
					t.Fatal(err)
				}
				b.phase(t, "load", 5000)
				total := collect(t, s, 8)
				received := b.settle(t, s, &total) - before
				polls := total.polls()
				t.Log(total.String())
				if received < 1000 {
					t.Fatalf("only %d packets were received", received)
				}
				hidden.compare(t, b, polls.Packets, received)
				if got := float64(tt.loop(&total).Packets) / float64(polls.Packets); got < tt.share {
					t.Errorf("the loop had %.3f of the packets, want at least %.3f", got, tt.share)
				}
				if tt.share == 1 && tt.loop(&total) != polls {
					t.Errorf("another loop polled: %+v of %+v", tt.loop(&total), polls)
				}
				if total.lost != 0 {
					t.Errorf("%d events were lost: %v", total.lost, losses(t, s))
				}
				var inPolls, weighted uint64
				for i, n := range total.work {
					inPolls += n
					weighted += uint64(i) * n
				}
				if inPolls != polls.Polls || weighted != polls.Packets {
					t.Errorf("work histogram of %d polls and %d packets, counted %d and %d", inPolls, weighted, polls.Polls, polls.Packets)
				}
				if total.work[0] != polls.Empty {
					t.Errorf("%d polls without work, %d counted as empty", total.work[0], polls.Empty)
				}
				// Packets of the first poll and those that nothing announced have
				// no known wait.
				within(t, "packets with a ring wait by packets", float64(total.ring.Count())/float64(polls.Packets), 0.98, 1.001)
			})
		})
	}
}

func TestTimersFollowTheFlushTimeout(t *testing.T) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval})
	b.phase(t, "load", 5000)
	for _, flush := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
		t.Run(flush.String(), func(t *testing.T) {
			testbed.Attempt(t, func(t testing.TB) {
				settings := deferral(flush)
				if flush == 0 {
					settings = model.Settings{}
				}
				b.set(t, settings)
				next(t, s)
				next(t, s)
				total := collect(t, s, 10)
				t.Log(total.String())
				if flush == 0 {
					if total.timer.Arms != 0 || total.timer.Fires != 0 {
						t.Errorf("timers %+v while interrupts are not deferred", total.timer)
					}
					return
				}
				if got := total.last.Queues[0]; total.last.Active[got.Queue] != settings {
					t.Errorf("read back %v, want %v", total.last.Active[got.Queue], settings)
				}
				// Each fire starts a poll that arms the timer again, so a period
				// is the timeout and what comes late; a full poll goes on at once.
				most := float64(total.span) / float64(flush)
				polls := total.polls()
				within(t, "fires by the most that fit", float64(total.timer.Fires)/most, 0.1, 1.01)
				within(t, "arms by fires", float64(total.timer.Arms)/float64(total.timer.Fires), 0.95, 1.05)
				within(t, "arms by polls that were not full", float64(total.timer.Arms)/float64(polls.Polls-polls.Full), 0.9, 1.02)
				// Packets come at any time while the timer runs.
				within(t, "median ring wait", total.ring.Quantile(0.5), flush*3/10, flush*2)
			})
		})
	}
}

// The client times a request from the moment it is due, so what the client waits
// for a CPU is in its latency and not in ours. Only a round in which it kept up
// compares the two, and requests that overlapped a gap are left out.
func TestDelayFollowsTheClients(t *testing.T) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval})
	for _, flush := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
		t.Run(flush.String(), func(t *testing.T) {
			// The client outlives an attempt, and sums up phases by name.
			tried := 0
			testbed.Attempt(t, func(t testing.TB) {
				b.set(t, deferral(flush))
				const rounds = 20
				for range rounds {
					tried++
					name := fmt.Sprintf("%v round %d", flush, tried)
					b.phase(t, name, 2000)
					next(t, s)
					total := collect(t, s, 6)
					b.phase(t, "idle", 0)
					total.add(next(t, s))
					client := workload.Summarize(b.load.Intervals(), name)
					if client.MaxBacklog > 16 || client.Latency.Count() < 300 {
						t.Logf("%s: the client did not keep up: %d requests waited for a connection, %d were timed well",
							name, client.MaxBacklog, client.Latency.Count())
						continue
					}
					t.Logf("client p50 %v p90 %v of %d", client.Latency.Quantile(0.5), client.Latency.Quantile(0.9), client.Latency.Count())
					t.Log(total.String())
					for _, q := range []float64{0.5, 0.9} {
						ratio := float64(total.delay.Quantile(q)) / float64(client.Latency.Quantile(q))
						within(t, fmt.Sprintf("delay by the client's latency, quantile %v", q), ratio, 0.6, 1.4)
					}
					within(t, "delays by packets", float64(total.delay.Count())/float64(total.polls().Packets), 0.7, 1.02)
					if latency := total.latency; latency.Count() != total.delay.Count() {
						t.Errorf("latency of %d values, delays of %d", latency.Count(), total.delay.Count())
					}
					return
				}
				t.Errorf("the client kept up in none of %d rounds: the machine is too busy to measure", rounds)
			})
		})
	}
}

func TestOneSocketInSoManyIsFollowed(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.serve(t, nil)
		s := b.open(t, Options{Interval: liveInterval, SampleEvery: 4})
		b.phase(t, "load", 5000)
		next(t, s)
		var counts []uint64
		var total totals
		for range 20 {
			sample := next(t, s)
			total.add(sample)
			counts = append(counts, sample.Queues[0].Delay.Count())
			if got := sample.Queues[0].SampleEvery; got != 4 {
				t.Fatalf("one socket in %d, want 4", got)
			}
		}
		t.Log(counts, total.String())
		within(t, "share of requests followed", float64(total.delay.Count())/float64(total.polls().Packets), 0.15, 0.35)
		if slices.Min(counts) == slices.Max(counts) {
			t.Errorf("the same number of requests in every window, %v: the salt does not rotate", counts)
		}
		// A request that starts in one window may end in the next.
		within(t, "reads without a delay", float64(total.socket.Count())/float64(total.delay.Count()), 0.98, 1.02)
	})
}

func TestApplicationsAndTheirContexts(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.serve(t, &workload.BusyPoll{Span: 50 * time.Microsecond, Budget: 16, Prefer: true})
		s := b.open(t, Options{Interval: liveInterval, Contexts: true, EpollEvents: true})
		b.phase(t, "load", 2000)
		next(t, s)
		total := collect(t, s, 8)
		t.Log(total.String(), losses(t, s))
		apps := total.last.Apps
		if len(apps) != 1 || apps[0].PID != b.server.PID() {
			t.Fatalf("processes %+v, want the server %d alone", apps, b.server.PID())
		}
		within(t, "CPU time of the server", total.appCPU, time.Millisecond, total.span*2)
		var waits, events uint64
		for returned, n := range total.waits {
			waits += n
			events += uint64(returned) * n
		}
		if waits == 0 {
			t.Error("no return of epoll_wait was counted")
		}
		within(t, "events by requests", float64(events)/float64(total.polls().Packets), 0.5, 1.2)

		napis, err := b.NAPIs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(apps[0].Contexts, func(c model.EpollContext) bool { return c.Prefer })
		if i < 0 {
			t.Fatalf("contexts %+v, want one that prefers busy polling", apps[0].Contexts)
		}
		got := apps[0].Contexts[i]
		if got.BusyPoll != 50*time.Microsecond || got.Budget != 16 || !slices.Equal(got.NAPIIDs, []uint32{napis[0].ID}) {
			t.Errorf("context %+v, want 50us, budget 16 and the NAPI %d", got, napis[0].ID)
		}
	})
}

func TestMixedContextsShowAllTheirInstances(t *testing.T) {
	b := newBed(t, testbed.Options{Queues: 2})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval, Contexts: true})
	b.phase(t, "load", 5000)
	napis, err := b.NAPIs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []uint32{napis[0].ID, napis[1].ID}
	// A socket shows its NAPI only once it has received.
	for range 10 {
		for _, app := range next(t, s).Apps {
			for _, c := range app.Contexts {
				if slices.Equal(c.NAPIIDs, want) {
					return
				}
			}
		}
	}
	t.Errorf("no context with sockets of both NAPIs, %v", want)
}

func TestLinkFlapStartsAnew(t *testing.T) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval})
	b.phase(t, "load", 5000)
	collect(t, s, 3)
	before := next(t, s)
	if len(before.Queues) != 1 {
		t.Fatalf("%d queues, want 1", len(before.Queues))
	}
	if err := b.LinkFlap(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := next(t, s)
	if len(changed.Queues) != 0 {
		t.Errorf("the window of the change holds %+v", changed.Queues[0].Polls())
	}
	for range 20 {
		after := next(t, s)
		if len(after.Queues) != 1 {
			continue
		}
		q := after.Queues[0]
		if q.NAPIID == before.Queues[0].NAPIID {
			t.Fatalf("NAPI %d as before", q.NAPIID)
		}
		// More than the load offers would be counts of the instance before.
		within(t, "packets in a window after", float64(q.Polls().Packets), 0, 10*5000*after.Span.Seconds())
		if q.Thread.Packets > 100 {
			return
		}
	}
	t.Error("no packets of the new instance were counted")
}

func TestDatagramsAreTimed(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		listen := &net.UDPAddr{IP: b.Server().Addr.AsSlice()}
		var server, client *net.UDPConn
		if err := b.Server().Do(func() (err error) {
			server, err = net.ListenUDP("udp4", listen)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if err := b.Client().Do(func() (err error) {
			client, err = net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		go func() {
			buf := make([]byte, 64)
			for {
				n, from, err := server.ReadFromUDP(buf)
				if err != nil {
					return
				}
				if _, err := server.WriteToUDP(buf[:n], from); err != nil {
					return
				}
			}
		}()
		s := b.open(t, Options{Interval: liveInterval})
		const requests = 200
		buf := make([]byte, 64)
		for i := range requests {
			if err := client.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Read(buf); err != nil {
				t.Fatalf("reply %d: %v", i, err)
			}
		}
		var total totals
		b.settle(t, s, &total)
		t.Log(total.String())
		// The socket shows its NAPI from the first datagram on.
		within(t, "delays of datagrams", total.delay.Count(), requests*9/10, requests)
	})
}
