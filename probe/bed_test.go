package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary one of the two ends of the load.
const roleVariable = "PROBE_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "server":
		err = workload.RunServer(os.Stdin, os.Stdout)
	case "client":
		err = workload.RunClient(os.Stdin, os.Stdout)
	case idle:
		err = watchDevice()
	case holding:
		err = holdContexts()
	case counting:
		err = countEvents()
	case brief:
		err = receiveBriefly()
	case checkAsNobody:
		err = json.NewEncoder(os.Stdout).Encode(Check(context.Background()))
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ifindexVariable tells the idle role which device to watch.
const ifindexVariable = "PROBE_TEST_IFINDEX"

// roleCommand is the test binary in a role.
func roleCommand(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

// watchDevice runs the idle role on the device of ifindexVariable.
func watchDevice() error {
	ifindex, err := strconv.Atoi(os.Getenv(ifindexVariable))
	if err != nil {
		return err
	}
	client, err := netdev.New(netdev.Options{})
	if err != nil {
		return err
	}
	return errors.Join(watchIdle(context.Background(), device{client, model.Queue{Ifindex: ifindex}, ""}), client.Close())
}

// device is the inventory of one device; queues are matched by position.
type device struct {
	client *netdev.Client
	first  model.Queue
	ifname string
}

// NAPIs implements [Inventory].
func (d device) NAPIs(context.Context) ([]model.NAPI, error) {
	listed, err := d.client.NAPIs(d.first.Ifindex)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(listed, func(x, y netdev.NAPI) int { return int(x.ID) - int(y.ID) })
	napis := make([]model.NAPI, 0, len(listed))
	for i, n := range listed {
		settings, ok := n.Settings()
		if !ok {
			return nil, fmt.Errorf("NAPI %d reports no settings", n.ID)
		}
		queue := d.first
		queue.Index = i
		napis = append(napis, model.NAPI{
			Queue:    queue,
			ID:       n.ID,
			Ifname:   d.ifname,
			PID:      n.PID,
			Threaded: n.Threaded,
			Mapping:  model.MappingPosition,
			Settings: settings,
		})
	}
	return napis, nil
}

// bed is a test bed with a server under load.
type bed struct {
	*testbed.Bed
	client *netdev.Client
	server *workload.Server
	load   *workload.Client
}

func newBed(tb testing.TB, options testbed.Options) *bed {
	tb.Helper()
	testbed.Require(tb)
	options.Prefix = "probe"
	made, err := testbed.New(context.Background(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := made.Close(); err != nil {
			tb.Errorf("close the bed: %v", err)
		}
	})
	b := &bed{Bed: made}
	err = made.Server().Do(func() error {
		var err error
		b.client, err = netdev.New(netdev.Options{})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.client.Close(); err != nil {
			tb.Errorf("close netdev: %v", err)
		}
	})
	return b
}

// NAPIs implements [Inventory] for the server's end.
func (b *bed) NAPIs(ctx context.Context) ([]model.NAPI, error) {
	ns := b.Server()
	return device{b.client, model.Queue{Netns: ns.Inode, Ifindex: ns.Ifindex}, ns.Ifname}.NAPIs(ctx)
}

// set writes the settings of every NAPI of the server's end.
func (b *bed) set(tb testing.TB, s model.Settings) {
	tb.Helper()
	napis, err := b.NAPIs(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, n := range napis {
		update := netdev.NAPIUpdate{
			DeferHardIRQs:     &s.DeferHardIRQs,
			GROFlushTimeout:   &s.GROFlushTimeout,
			IRQSuspendTimeout: &s.IRQSuspendTimeout,
		}
		if err := b.client.SetNAPI(n.ID, update); err != nil {
			tb.Fatal(err)
		}
	}
}

// serve starts the server, and the client without load.
func (b *bed) serve(tb testing.TB, busyPoll *workload.BusyPoll) {
	tb.Helper()
	ctx := tb.Context()
	server, err := workload.StartServer(ctx, workload.Launch{Command: roleCommand("server"), Start: b.Server().Start}, workload.ServerConfig{
		Addr:       netip.AddrPortFrom(b.Server().Addr, 0),
		CPU:        1,
		RuntimeCPU: 0,
		BusyPoll:   busyPoll,
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	b.server = server
	load, err := workload.StartClient(ctx, workload.Launch{Command: roleCommand("client"), Start: b.Client().Start}, workload.ClientConfig{
		Addr:        server.Addr(),
		CPU:         0,
		RuntimeCPU:  1,
		Connections: 64,
		Sleep:       true,
		Seed:        1,
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	b.load = load
	threads, err := b.NAPIThreads()
	if err != nil {
		tb.Fatal(err)
	}
	if busyPoll == nil {
		favour(tb, append(threads, server.PID(), load.PID())...)
	}
}

// favour gives the threads of processes precedence over all that is not real
// time, so that what is measured is the kernel and not the neighbours. They must
// not spin.
func favour(tb testing.TB, pids ...int) {
	tb.Helper()
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			tb.Fatal(err)
		}
		for _, entry := range entries {
			tid, err := strconv.Atoi(entry.Name())
			if err != nil {
				tb.Fatal(err)
			}
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
			if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
				tb.Fatalf("give thread %d precedence: %v", tid, err)
			}
		}
	}
}

// phase offers load from now on.
func (b *bed) phase(tb testing.TB, name string, rate float64) {
	tb.Helper()
	if _, err := b.load.Phase(tb.Context(), workload.Phase{Name: name, Rate: rate}); err != nil {
		tb.Fatal(err)
	}
}

// open opens a source on the bed.
func (b *bed) open(tb testing.TB, options Options) *Source {
	tb.Helper()
	if options.Inventory == nil {
		options.Inventory = b
	}
	if options.Budget == 0 {
		options.Budget = -1
	}
	source, err := Open(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := source.Close(); err != nil {
			tb.Errorf("close the source: %v", err)
		}
	})
	for _, m := range source.Missing() {
		tb.Errorf("probe %s is missing (%s): %v", m.Name, m.Lost, m.Err)
	}
	return source
}

// next returns one window.
func next(tb testing.TB, s *Source) model.Sample {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	sample, err := s.Next(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return sample
}

// collect sums the queue samples of several windows.
func collect(tb testing.TB, s *Source, windows int) (total totals) {
	tb.Helper()
	for range windows {
		sample := next(tb, s)
		total.add(sample)
	}
	return total
}

// totals are the sums over windows and queues.
type totals struct {
	span                                 time.Duration
	softirq, thread, busy                model.PollCounts
	timer                                model.TimerCounts
	threadTime, netRX, netRXIdle, appCPU time.Duration
	ring, socket, service, delay         model.Histogram
	latency                              model.Histogram
	work, waits                          [model.WorkBuckets]uint64
	lost                                 uint64
	last                                 model.Sample

	timerSoftirq, timerThread model.PollCounts
	takeovers                 model.Takeovers
	unmasked                  uint64
	softirqTime               time.Duration
	suspension                model.Suspension
	suspended                 model.Histogram
	hardIRQ, hardIRQIdle      time.Duration
	ksoftirqd, cpuBusy        time.Duration
	epoll                     epollCounts
	busyPolls                 model.BusyPolls
}

func (t *totals) add(s model.Sample) {
	t.span += s.Span
	t.lost += s.Lost
	t.last = s
	if s.Latency != nil {
		t.latency.Merge(&s.Latency.Histogram)
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		t.softirq = t.softirq.Plus(q.Softirq)
		t.thread = t.thread.Plus(q.Thread)
		t.busy = t.busy.Plus(q.Busy)
		if q.Timer != nil {
			t.timer.Arms += q.Timer.Arms
			t.timer.Fires += q.Timer.Fires
		}
		if q.ThreadTime != nil {
			t.threadTime += *q.ThreadTime
		}
		t.addLoops(q)
		for i, n := range q.Work {
			t.work[i] += n
		}
		t.ring.Merge(q.RingWait)
		t.socket.Merge(q.SocketWait)
		t.service.Merge(q.Service)
		t.delay.Merge(q.Delay)
	}
	for _, c := range s.CPUs {
		t.cpuBusy += c.Busy
		for sum, d := range map[*time.Duration]*time.Duration{
			&t.hardIRQ: c.HardIRQ, &t.hardIRQIdle: c.HardIRQIdle, &t.ksoftirqd: c.Ksoftirqd,
		} {
			if d != nil {
				*sum += *d
			}
		}
		if c.NetRX != nil {
			t.netRX += *c.NetRX
			t.netRXIdle += *c.NetRXIdle
		}
	}
	for _, a := range s.Apps {
		t.appCPU += a.CPU
		t.busyPolls.Polls += a.BusyPolls.Polls
		t.busyPolls.Packets += a.BusyPolls.Packets
		if a.Waits != nil {
			t.epoll.events += *a.Events
			t.epoll.full += *a.Full
			t.epoll.empty += a.Waits[0]
			for i, n := range a.Waits {
				t.waits[i] += n
				t.epoll.waits += n
			}
		}
	}
}

// addLoops adds how the loops worked together.
func (t *totals) addLoops(q *model.QueueSample) {
	t.unmasked += *q.Unmasked
	if q.SoftirqTime != nil {
		t.softirqTime += *q.SoftirqTime
	}
	if q.Timer == nil {
		return
	}
	t.timerSoftirq = t.timerSoftirq.Plus(*q.TimerSoftirq)
	t.timerThread = t.timerThread.Plus(*q.TimerThread)
	t.takeovers.InterruptToTimer += q.Takeovers.InterruptToTimer
	t.takeovers.InterruptToApplication += q.Takeovers.InterruptToApplication
	t.takeovers.TimerToInterrupt += q.Takeovers.TimerToInterrupt
	t.takeovers.TimerToApplication += q.Takeovers.TimerToApplication
	t.takeovers.ApplicationToInterrupt += q.Takeovers.ApplicationToInterrupt
	t.takeovers.ApplicationToTimer += q.Takeovers.ApplicationToTimer
	t.suspension.Started += q.Suspension.Started
	t.suspension.Resumed += q.Suspension.Resumed
	t.suspension.Expired += q.Suspension.Expired
	t.suspension.Flushed += q.Suspension.Flushed
	t.suspended.Merge(&q.Suspension.Length)
}

func (t *totals) polls() model.PollCounts { return t.softirq.Plus(t.thread).Plus(t.busy) }

func (t *totals) String() string {
	q := func(h *model.Histogram) string {
		return fmt.Sprintf("n=%d p50=%v p90=%v p99=%v", h.Count(), h.Quantile(.5), h.Quantile(.9), h.Quantile(.99))
	}
	var waits uint64
	for _, n := range t.waits {
		waits += n
	}
	return fmt.Sprintf("span %v lost %d\n softirq %+v\n thread %+v\n busy %+v\n timer %+v\n ring    %s\n socket  %s\n service %s\n delay   %s\n net_rx %v (idle %v) thread %v app %v waits %d (empty %d)",
		t.span, t.lost, t.softirq, t.thread, t.busy, t.timer, q(&t.ring), q(&t.socket), q(&t.service), q(&t.delay),
		t.netRX, t.netRXIdle, t.threadTime, t.appCPU, waits, t.waits[0])
}
