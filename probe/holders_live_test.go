package probe

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"autotune/experiments/testbed"
)

const (
	// holding is the role of a process that only has contexts and sockets.
	holding = "holding"
	// contextsVariable says how many contexts, portVariable the first port.
	contextsVariable = "PROBE_TEST_CONTEXTS"
	portVariable     = "PROBE_TEST_PORT"
	// heldSockets is how many sockets each context watches.
	heldSockets = 8
	// firstHeldPort is the port of the first.
	firstHeldPort = 10000
)

// holdContexts runs the holding role until its input ends.
func holdContexts() error {
	contexts, err := strconv.Atoi(os.Getenv(contextsVariable))
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(os.Getenv(portVariable))
	if err != nil {
		return err
	}
	addr := [4]byte(net.ParseIP(os.Getenv(addrVariable)).To4())
	for range contexts {
		var fds [heldSockets]int
		for i := range fds {
			if fds[i], err = udpSocket(addr, port); err != nil {
				return err
			}
			port++
		}
		if _, err := watch(fds[:]...); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

// holders starts processes that have so many contexts each, and returns their
// IDs.
func (b *bed) holders(tb testing.TB, processes, contexts int) []int {
	tb.Helper()
	port, pids := firstHeldPort, make([]int, 0, processes)
	for range processes {
		cmd := roleCommand(holding)
		cmd.Env = append(cmd.Env, addrVariable+"="+b.Server().Addr.String(),
			contextsVariable+"="+strconv.Itoa(contexts), portVariable+"="+strconv.Itoa(port))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			tb.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := b.Server().Start(cmd); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := stdin.Close(); err != nil {
				tb.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				tb.Errorf("holder: %v", err)
			}
		})
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
			tb.Fatalf("holder: %q, %v", line, err)
		}
		pids = append(pids, cmd.Process.Pid)
		port += contexts * heldSockets
	}
	return pids
}

// feedHolders sends a datagram to each socket of the holders.
func (b *bed) feedHolders(tb testing.TB, contexts int) {
	tb.Helper()
	for port := firstHeldPort; port < firstHeldPort+contexts*heldSockets; port += heldSockets {
		var ports []int
		for i := range heldSockets {
			ports = append(ports, port+i)
		}
		b.feed(tb, ports...)
		if port%512 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// listed returns how many contexts of processes were listed, of those that are
// not opaque only such as have received by one NAPI, and how long the fastest of
// some listings took.
func listed(tb testing.TB, l *Lister, pids []int) (contexts int, fastest time.Duration) {
	tb.Helper()
	for range 9 {
		began := time.Now()
		listing, err := l.List(ListOptions{})
		took := time.Since(began)
		if err != nil {
			tb.Fatal(err)
		}
		if fastest == 0 || took < fastest {
			fastest = took
		}
		contexts = 0
		for _, c := range listing.Contexts {
			if slices.Contains(pids, c.PID) && (c.Opaque || len(c.NAPIIDs) == 1) {
				contexts++
			}
		}
	}
	return contexts, fastest
}

func TestThousandContextsAreListedSoon(t *testing.T) {
	const processes, each = 20, 50
	l := openLister(t)
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	pids := b.holders(t, processes, each)
	for name, tt := range map[string]struct {
		lister *Lister
		// The targets are 40 ms and 200 ms on a quiet machine.
		limit time.Duration
	}{
		"iterator": {l, 200 * time.Millisecond},
		"proc":     {&Lister{proc: procContexts{"/proc"}}, time.Second},
	} {
		got, took := listed(t, tt.lister, pids)
		// Datagrams may still be on their way, lost while the address of the
		// server was being resolved, or too many for a thread that waits for
		// its CPU.
		for deadline := time.Now().Add(30 * time.Second); got < processes*each && time.Now().Before(deadline); {
			b.feedHolders(t, processes*each)
			time.Sleep(100 * time.Millisecond)
			got, took = listed(t, tt.lister, pids)
		}
		t.Logf("%s: %d contexts with %d sockets each in %v", name, got, heldSockets, took)
		if got < processes*each || took > tt.limit {
			t.Errorf("%s: %d contexts in %v, want %d within %v", name, got, took, processes*each, tt.limit)
		}
	}
}

func BenchmarkListContexts(b *testing.B) {
	l := openLister(b)
	bed := newBed(b, testbed.Options{Threaded: true, ServerCPU: 1})
	pids := bed.holders(b, 200, 5)
	for tries, got := 0, 0; got < 1000 && tries < 5; tries++ {
		bed.feedHolders(b, 1000)
		got, _ = listed(b, l, pids)
	}
	for _, bb := range []struct {
		name    string
		lister  *Lister
		options ListOptions
	}{
		{"iterator", l, ListOptions{}},
		{"iterator and sockets", l, ListOptions{Sockets: true}},
		{"proc", &Lister{proc: procContexts{"/proc"}}, ListOptions{}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				listing, err := bb.lister.List(bb.options)
				if err != nil {
					b.Fatal(err)
				}
				if len(listing.Contexts) < 1000 {
					b.Fatalf("%d contexts listed", len(listing.Contexts))
				}
			}
		})
	}
	b.Run("iterator, one process", func(b *testing.B) {
		for b.Loop() {
			listing, err := l.iterator.listProcesses([]uint32{uint32(pids[0])}, ListOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if len(listing.Contexts) != 5 {
				b.Fatalf("%d contexts listed", len(listing.Contexts))
			}
		}
	})
}
