package busypoll

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

// rebinds is how often the listening helper closes its socket and binds the
// port again.
const rebinds = 300

// rebind watches a listener with an epoll context, and on each line of input
// that says "go" closes it and binds its port again, rebinds times. It prints
// how often the port was still taken.
func rebind() error {
	epoll, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	port := 0
	listener, err := listen(epoll, &port)
	if err != nil {
		return err
	}
	fmt.Println(epoll, listener)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		taken := 0
		for range rebinds {
			if err := unix.Close(listener); err != nil {
				return err
			}
			if listener, err = listen(epoll, &port); errors.Is(err, unix.EADDRINUSE) {
				taken++
				other := 0
				listener, err = listen(epoll, &other)
			}
			if err != nil {
				return err
			}
		}
		fmt.Println(taken)
	}
	return nil
}

// listen opens a listener on loopback, on a free port where port is 0.
func listen(epoll int, port *int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: *port}); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Listen(fd, 1); err != nil {
		return 0, err
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	*port = bound.(*unix.SockaddrInet4).Port
	return fd, nil
}

// TestListenerClosedDuringASetReallyCloses has a process close its listener and
// bind the port again, over and over, while its epoll context is being set. As
// a check of the check, a duplicate of the listener does keep the port.
func TestListenerClosedDuringASetReallyCloses(t *testing.T) {
	testbed.Require(t)
	cmd := helper(t, "rebind", nil)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	out := bufio.NewReader(stdout)
	h := Handle{PID: cmd.Process.Pid, Kind: KindEpoll}
	var listener int
	if _, err := fmt.Fscanln(out, &h.FD, &listener); err != nil {
		t.Fatal(err)
	}
	round := func(meanwhile func(stop <-chan int)) int {
		t.Helper()
		stop, done := make(chan int), make(chan struct{})
		go func() {
			defer close(done)
			meanwhile(stop)
		}()
		if _, err := fmt.Fprintln(in, "go"); err != nil {
			t.Fatal(err)
		}
		line, err := out.ReadString('\n')
		close(stop)
		<-done
		taken, numberErr := strconv.Atoi(strings.TrimSpace(line))
		if err := errors.Join(err, numberErr); err != nil {
			t.Fatal(err)
		}
		return taken
	}
	// A round takes milliseconds, in which a busy machine may not run the one
	// that sets.
	const enough = 10
	var sets, taken int
	for rounds := 0; rounds < 20 && sets < enough && !t.Failed(); rounds++ {
		taken += round(func(stop <-chan int) {
			now, err := Live{}.Get(h)
			for err == nil {
				select {
				case <-stop:
					return
				default:
				}
				var after Params
				next := Params{Usecs: uint32(sets%100 + 1), Prefer: sets%2 == 0}
				after, err = Live{}.Swap(h, now, next)
				if err == nil && after != next {
					err = fmt.Errorf("%v, want %v", after, next)
				}
				now = next
				sets++
			}
			t.Errorf("set: %v", err)
		})
		t.Logf("%d sets while the listener was closed %d times", sets, (rounds+1)*rebinds)
	}
	if taken != 0 || sets < enough {
		t.Errorf("the port was still taken %d times during %d sets", taken, sets)
	}

	pidfd, err := unix.PidfdOpen(h.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	held, err := unix.PidfdGetfd(pidfd, listener, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	if round(func(<-chan int) {}) == 0 {
		t.Error("a duplicate of the listener did not keep its port: the check above shows nothing")
	}
}
