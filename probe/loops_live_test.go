package probe

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"

	"golang.org/x/sys/unix"
)

// attempt runs a measurement until it agrees with the other count, at most a
// few times: on a machine shared with others one of the two may be read late.
func attempt(t *testing.T, measure func(tb testing.TB) error) {
	t.Helper()
	testbed.Attempt(t, func(tb testing.TB) {
		if err := measure(tb); err != nil {
			tb.Error(err)
		}
	})
}

// datagrams is a sender on the client's end and a receiver on the server's.
type datagrams struct {
	server, client *net.UDPConn
}

func (b *bed) datagrams(tb testing.TB) datagrams {
	tb.Helper()
	var d datagrams
	if err := b.Server().Do(func() (err error) {
		d.server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: b.Server().Addr.AsSlice()})
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.server.Close() })
	if err := d.server.SetReadBuffer(8 << 20); err != nil {
		tb.Fatal(err)
	}
	if err := b.Client().Do(func() (err error) {
		d.client, err = net.DialUDP("udp4", nil, d.server.LocalAddr().(*net.UDPAddr))
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.client.Close() })
	return d
}

// send sends n datagrams, one per interval where that is not 0.
func (d datagrams) send(tb testing.TB, n int, interval time.Duration) {
	tb.Helper()
	payload := bytes.Repeat([]byte{'x'}, 32)
	var ticker *time.Ticker
	if interval > 0 {
		ticker = time.NewTicker(interval)
		defer ticker.Stop()
	}
	for range n {
		if ticker != nil {
			<-ticker.C
		}
		if _, err := d.client.Write(payload); err != nil {
			tb.Fatal(err)
		}
	}
}

// One packet in a while: it is announced by an interrupt, whose poll loads the
// defer count N and arms the timer. Each fire then finds nothing and counts
// down; N fires later the count is used up and the interrupt is on again.
func TestTimerArithmeticOfSparseTraffic(t *testing.T) {
	for _, threaded := range []bool{false, true} {
		t.Run(fmt.Sprintf("threaded %t", threaded), func(t *testing.T) {
			attempt(t, func(t testing.TB) error {
				b := newBed(t, testbed.Options{Threaded: threaded, ServerCPU: 1})
				s := b.open(t, Options{Interval: liveInterval})
				b.set(t, model.Settings{DeferHardIRQs: sparseDefer, GROFlushTimeout: 500 * time.Microsecond})
				threads, err := b.NAPIThreads()
				if err != nil {
					t.Fatal(err)
				}
				favour(t, threads...)
				d := b.datagrams(t)
				d.send(t, 1, 0)
				var total totals
				b.settle(t, s, &total)
				// A poll is not counted where it interrupts a process that the
				// kernel hides from the programs (see unseen), and a few packets
				// soon have a round without one.
				for range 5 {
					if err = b.sparse(t, s, d, threaded); err == nil {
						return nil
					}
					t.Log(err)
				}
				return err
			})
		})
	}
}

// sparseDefer is the defer count of [bed.sparse].
const sparseDefer = 5

// sparse sends packets one by one, and returns an error unless each was followed
// by as many fires as the defer count says.
func (b *bed) sparse(t testing.TB, s *Source, d datagrams, threaded bool) error {
	t.Helper()
	const count, n = 20, sparseDefer
	var total totals
	d.send(t, count, 20*time.Millisecond)
	b.settle(t, s, &total)
	t.Log(total.String(), fmt.Sprintf("%+v unmasked %d timer-started %+v %+v", total.takeovers, total.unmasked, total.timerSoftirq, total.timerThread))

	started, other := total.timerSoftirq, total.softirq
	if threaded {
		started, other = total.timerThread, total.thread
	}
	// What else comes (neighbour discovery) follows the same rule. A
	// packet that came late, while the one before was not yet
	// forgotten, was found by the timer and loaded the count again.
	woken, late := other.Polls-started.Polls, started.Packets
	if woken+late < count || woken > count+10 || late > count/10 {
		return fmt.Errorf("%d polls were started by an interrupt, and %d packets found by the timer, want %d and few", woken, late, count)
	}
	if started.Polls < woken*n || started.Polls > (woken+late)*n {
		return fmt.Errorf("polls started by the timer: %+v, want %d for each of %d", started, n, woken)
	}
	if got, want := total.timer, (model.TimerCounts{Arms: started.Polls, Fires: started.Polls}); got != want {
		return fmt.Errorf("timer %+v, want %+v", got, want)
	}
	if total.unmasked != woken {
		return fmt.Errorf("the interrupt came back %d times, want %d", total.unmasked, woken)
	}
	takeovers := model.Takeovers{InterruptToTimer: woken, TimerToInterrupt: total.takeovers.TimerToInterrupt}
	if total.takeovers != takeovers || woken-takeovers.TimerToInterrupt > 1 {
		return fmt.Errorf("takeovers %+v, want %d each way", total.takeovers, woken)
	}
	return nil
}

// Wake-ups are many, and only those of NAPI threads tell anything.
func TestWakeUpsAreObservedWhereANAPIHasAThread(t *testing.T) {
	for _, threaded := range []bool{false, true} {
		b := newBed(t, testbed.Options{Threaded: threaded, ServerCPU: 1})
		s := b.open(t, Options{Interval: liveInterval})
		p := s.kernel.(*programs)
		for i := range p.attached {
			if a := &p.attached[i]; a.name == bpf.ReceiveProgSchedWaking && (a.link != nil) != threaded {
				t.Errorf("threaded %t: %s is attached: %t", threaded, a.name, a.link != nil)
			}
		}
		if !p.observes(signalThreadWakes) {
			t.Errorf("threaded %t: wake-ups are not observed", threaded)
		}
	}
}

func TestWithoutDeferralNoPollIsStartedByATimer(t *testing.T) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval})
	b.phase(t, "load", 3000)
	total := collect(t, s, 5)
	if total.timerThread.Polls != 0 || total.unmasked != 0 || total.takeovers != (model.Takeovers{}) {
		t.Errorf("started by a timer: %+v, interrupt back %d times, takeovers %+v; want none", total.timerThread, total.unmasked, total.takeovers)
	}
	if total.thread.Packets == 0 {
		t.Error("no packets")
	}
}

// awaitReceived waits until the device has received so many packets, or for a
// while if some have been lost.
func (b *bed) awaitReceived(tb testing.TB, packets uint64) {
	tb.Helper()
	for range 500 {
		n, err := b.RxPackets()
		if err != nil {
			tb.Fatal(err)
		}
		if n >= packets {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// UDP has no answers, so the sender knows how many packets there were.
func TestDatagramsAreCounted(t *testing.T) {
	attempt(t, func(t testing.TB) error {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		s := b.open(t, Options{Interval: liveInterval})
		d := b.datagrams(t)
		before, err := b.RxPackets()
		if err != nil {
			t.Fatal(err)
		}
		const sent = 20000
		// Bursts, and no more of them at once than the receive ring holds,
		// however long the NAPI thread waits for its CPU.
		for n := 20; n <= sent; n += 20 {
			d.send(t, 20, 0)
			time.Sleep(200 * time.Microsecond)
			b.awaitReceived(t, before+uint64(max(0, n-100)))
		}
		var total totals
		received := b.settle(t, s, &total) - before
		polled := total.polls().Packets
		t.Logf("%d sent, %d received by the device, %d polled", sent, received, polled)
		if off := math.Abs(float64(polled)/float64(received) - 1); off > 0.0001 {
			return fmt.Errorf("%d packets polled, %d received: differ by %.4f%%, want at most 0.01%%", polled, received, 100*off)
		}
		// Some packets of other protocols come as well.
		if polled < sent*999/1000 || polled > sent*1001/1000 {
			return fmt.Errorf("%d packets polled of %d sent: differ by more than 0.1%%", polled, sent)
		}
		return nil
	})
}

func TestSuspensionIsFollowed(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		const safety = 20 * time.Millisecond
		b.set(t, model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond, IRQSuspendTimeout: safety})
		b.serve(t, &workload.BusyPoll{Span: 50 * time.Microsecond, Budget: 64, Prefer: true})
		s := b.open(t, Options{Interval: liveInterval})
		b.phase(t, "load", 3000)
		next(t, s)
		next(t, s)
		total := collect(t, s, 8)
		t.Log(total.String(), fmt.Sprintf("suspension %d %d %d %d, median %v, takeovers %+v", total.suspension.Started, total.suspension.Resumed, total.suspension.Expired, total.suspension.Flushed, total.suspended.Quantile(0.5), total.takeovers))
		p := total.suspension
		if p.Started < 100 || p.Resumed < p.Started/2 {
			t.Errorf("%d suspensions began and %d were resumed, want at least 100 and most", p.Started, p.Resumed)
		}
		ended := p.Resumed + p.Expired + p.Flushed
		if ended+1 < p.Started || ended > p.Started+1 || total.suspended.Count() != ended {
			t.Errorf("%d suspensions began, %d ended, %d have a length", p.Started, ended, total.suspended.Count())
		}
		if total.takeovers.ApplicationToInterrupt == 0 || total.takeovers.InterruptToApplication+total.takeovers.TimerToApplication == 0 {
			t.Errorf("takeovers %+v, want some to the application and back", total.takeovers)
		}

		within(t, "busy polls of the process by those of the NAPI", float64(total.busyPolls.Polls)/float64(total.busy.Polls), 0.95, 1.01)

		// An application that stalls while it handles events is told apart. The
		// instant of the stop decides whether it does, so there are several.
		b.phase(t, "busy", 15000)
		before := p.Expired
		for range 60 {
			if err := unix.Kill(b.server.PID(), unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * safety)
			if err := unix.Kill(b.server.PID(), unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			total.add(next(t, s))
			if total.suspension.Expired > before {
				break
			}
		}
		if total.suspension.Expired == before {
			t.Errorf("no suspension ended with the safety timer although the application was stopped: %d resumed, %d flushed", total.suspension.Resumed, total.suspension.Flushed)
		}
		if got := total.suspended.Quantile(1); got < safety || got > 5*safety {
			t.Errorf("the longest suspension took %v, want about %v", got, safety)
		}
	})
}
