package probe

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"testing"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

const (
	// counting is the role of a server that counts what epoll_wait returns.
	counting = "counting"
	// countingSockets is how many sockets it watches, countingRoom for how
	// many events it has room, countingPort the port of the first.
	countingSockets = 6
	countingRoom    = 4
	countingPort    = 7200
)

// epollCounts is what the counting server saw.
type epollCounts struct{ waits, empty, events, full uint64 }

// countEvents runs the counting role. It makes its system calls itself: the
// runtime's network poller would wait by epoll as well.
func countEvents() error {
	addr := net.ParseIP(os.Getenv(addrVariable)).To4()
	epoll, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	for i := range countingSockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: countingPort + i, Addr: [4]byte(addr)}); err != nil {
			return err
		}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	var counts epollCounts
	var events [countingRoom]unix.EpollEvent
	buf := make([]byte, 64)
	for {
		n, err := unix.EpollWait(epoll, events[:], 20)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		counts.waits++
		counts.events += uint64(n)
		if n == 0 {
			counts.empty++
		}
		if n == countingRoom {
			counts.full++
		}
		for _, event := range events[:n] {
			size, _, err := unix.Recvfrom(int(event.Fd), buf, 0)
			if err != nil {
				return err
			}
			switch string(buf[:size]) {
			case "start":
				counts = epollCounts{}
			case "stop":
				fmt.Println(counts.waits, counts.empty, counts.events, counts.full)
				return nil
			}
		}
	}
}

const addrVariable = "PROBE_TEST_ADDR"

func TestEpollReturnsMatchTheServersOwnCount(t *testing.T) {
	attempt(t, func(t testing.TB) error {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		cmd := roleCommand(counting)
		cmd.Env = append(cmd.Env, addrVariable+"="+b.Server().Addr.String())
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Server().Start(cmd); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(stdout)
		if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("server: %q, %v", line, err)
		}
		var clients []*net.UDPConn
		if err := b.Client().Do(func() error {
			for i := range countingSockets {
				c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: b.Server().Addr.AsSlice(), Port: countingPort + i})
				if err != nil {
					return err
				}
				clients = append(clients, c)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		send := func(i int, text string) {
			if _, err := clients[i%countingSockets].Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		s := b.open(t, Options{Interval: liveInterval, EpollEvents: true})
		// The server is known from the second datagram on at the latest: a
		// socket shows its NAPI once it has received.
		var total totals
		for i := range countingSockets {
			send(i, "hello")
			send(i, "hello")
		}
		b.settle(t, s, &total)
		for range 3 {
			next(t, s)
		}
		// The server counts from the return after "start" to the one with
		// "stop"; the probe from a little before, in which returns are empty.
		total = totals{}
		send(0, "start")
		b.settle(t, s, &total)
		started := total.epoll
		for i := range 3000 {
			send(i, "x")
			if i%64 == 63 {
				total.add(next(t, s))
			}
		}
		b.settle(t, s, &total)
		got := epollCounts{events: total.epoll.events - started.events, full: total.epoll.full - started.full}
		nonEmpty := total.epoll.waits - total.epoll.empty - (started.waits - started.empty)
		send(0, "stop")
		var want epollCounts
		if _, err := fmt.Fscan(out, &want.waits, &want.empty, &want.events, &want.full); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Logf("server %+v, probe %+v, %d returns with events", want, got, nonEmpty)
		// The last return was that of "stop".
		if got.events != want.events-1 || got.full != want.full || nonEmpty != want.waits-want.empty-1 {
			return fmt.Errorf("%d events in %d returns, %d full; the server counted %d in %d, %d full",
				got.events, nonEmpty, got.full, want.events-1, want.waits-want.empty-1, want.full)
		}
		if want.full == 0 || total.epoll.empty == 0 {
			return fmt.Errorf("%d full and %d empty returns, want some", want.full, total.epoll.empty)
		}
		return nil
	})
}
