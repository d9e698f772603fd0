package probe

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// udpSocket is a bound datagram socket with its own descriptor.
func udpSocket(addr [4]byte, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: addr})
}

// watch makes a context that watches sockets.
func watch(fds ...int) (int, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for _, fd := range fds {
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return -1, err
		}
	}
	return epoll, nil
}

// open returns a descriptor made by f, closed with the test.
func open(tb testing.TB, f func() (int, error)) int {
	tb.Helper()
	fd, err := f()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			tb.Errorf("close descriptor %d: %v", fd, err)
		}
	})
	return fd
}

// setParams sets the busy poll parameters of a context (EPIOCSPARAMS).
func setParams(tb testing.TB, epoll int, usecs uint32, budget uint16, prefer uint8) {
	tb.Helper()
	params := struct {
		usecs  uint32
		budget uint16
		prefer uint8
		pad    uint8
	}{usecs: usecs, budget: budget, prefer: prefer}
	const epiocsparams = 0x40088a01
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(epoll), epiocsparams, uintptr(unsafe.Pointer(&params))); errno != 0 {
		tb.Fatal(errno)
	}
}

func openLister(tb testing.TB) *Lister {
	tb.Helper()
	testbed.Require(tb)
	l, lacking := OpenLister("")
	if lacking != nil {
		tb.Fatal(lacking.Err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// own returns what a listing tells of this process's descriptors.
func own(tb testing.TB, l *Lister, fds ...int) ([]Context, []Socket) {
	tb.Helper()
	listing, err := l.List(ListOptions{PIDs: []int{os.Getpid()}, Sockets: true})
	if err != nil {
		tb.Fatal(err)
	}
	contexts := slices.DeleteFunc(listing.Contexts, func(c Context) bool { return !slices.Contains(fds, c.FD) })
	sockets := slices.DeleteFunc(listing.Sockets, func(s Socket) bool { return !slices.Contains(fds, s.FD) })
	return contexts, sockets
}

// feed sends one datagram each to ports of the bed's server, and returns the ID
// of the NAPI that they come by.
func (b *bed) feed(tb testing.TB, ports ...int) uint32 {
	tb.Helper()
	err := b.Client().Do(func() error {
		c, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, port := range ports {
			if _, err := c.WriteToUDP([]byte("x"), &net.UDPAddr{IP: b.Server().Addr.AsSlice(), Port: port}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	napis, err := b.NAPIs(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return napis[0].ID
}

func TestListerTellsWhatIsOpen(t *testing.T) {
	l := openLister(t)
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	var udp, silent, xdp int
	err := b.Server().Do(func() error {
		udp = open(t, func() (int, error) { return udpSocket(b.Server().Addr.As4(), 7301) })
		silent = open(t, func() (int, error) { return udpSocket(b.Server().Addr.As4(), 7302) })
		xdp = open(t, func() (int, error) { return unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for option, value := range map[int]int{unix.SO_BUSY_POLL: 50, unix.SO_PREFER_BUSY_POLL: 1, unix.SO_BUSY_POLL_BUDGET: 9} {
		if err := unix.SetsockoptInt(udp, unix.SOL_SOCKET, option, value); err != nil {
			t.Fatal(err)
		}
	}
	ep := open(t, func() (int, error) { return watch(udp, silent) })
	other := open(t, func() (int, error) { return watch() })
	setParams(t, ep, 64, 16, 1)
	napi := b.feed(t, 7301)
	poll := []unix.PollFd{{Fd: int32(udp), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 2000); n != 1 || err != nil {
		t.Fatalf("the datagram did not come: %d, %v", n, err)
	}

	contexts, sockets := own(t, l, udp, silent, xdp, ep, other)
	self, err := readProcess("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	process := cmpopts.IgnoreFields(Process{}, "Started")
	address := cmp.Options{cmpopts.IgnoreFields(Context{}, "Address"), cmpopts.IgnoreFields(Socket{}, "Address")}
	wantContexts := []Context{
		{Process: self, EpollContext: model.EpollContext{FD: ep, BusyPoll: 64 * time.Microsecond, Budget: 16, Prefer: true, NAPIIDs: []uint32{napi}}},
		{Process: self, EpollContext: model.EpollContext{FD: other, Budget: 0}},
	}
	wantSockets := []Socket{
		{Process: self, FD: udp, Kind: SocketUDP, NAPIID: napi, BusyPoll: 50 * time.Microsecond, Budget: 9, Prefer: true},
		{Process: self, FD: silent, Kind: SocketUDP},
		{Process: self, FD: xdp, Kind: SocketXDP},
	}
	if diff := cmp.Diff(wantContexts, contexts, process, address); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantSockets, sockets, process, address); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
	if a, b := contexts[0].Address, contexts[1].Address; a == b || a == 0 || b == 0 {
		t.Errorf("addresses %x and %x do not tell two contexts apart", a, b)
	}
	if got, want := contexts[0].StartTicks(), self.StartTicks(); got != want {
		t.Errorf("the process started at tick %d, /proc says %d", got, want)
	}

	whole, err := l.List(ListOptions{PIDs: []int{os.Getpid()}, Sockets: true})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := l.iterator.listProcesses([]uint32{uint32(os.Getpid()), 1 << 30}, ListOptions{Sockets: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, alone); diff != "" || l.iterator.wholeOnly {
		t.Errorf("listed alone, all processes at once %t (-whole +alone):\n%s", l.iterator.wholeOnly, diff)
	}
}

func TestListerReadsTheBudgetOfAnOwnSocket(t *testing.T) {
	l := openLister(t)
	fd := open(t, func() (int, error) { return udpSocket([4]byte{127, 0, 0, 1}, 0) })
	other := open(t, func() (int, error) { return watch() })
	for _, want := range []int{0, 9, 65535, 1} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, want); err != nil {
			t.Fatal(err)
		}
		if got, err := l.SocketBudget(fd); err != nil || int(got) != want {
			t.Errorf("budget %d, %v, want %d", got, err, want)
		}
	}
	for name, none := range map[string]int{"an epoll context": other, "no descriptor": 1 << 20} {
		if got, err := l.SocketBudget(none); !errors.Is(err, unix.ENOTSOCK) {
			t.Errorf("%s has a budget of %d, %v", name, got, err)
		}
	}
	// Reading one leaves listings whole.
	if contexts, sockets := own(t, l, fd, other); len(contexts) != 1 || len(sockets) != 1 {
		t.Errorf("%d contexts and %d sockets are listed, want one each", len(contexts), len(sockets))
	}
	byProc := &Lister{proc: procContexts{"/proc"}, lacking: &Missing{Err: unix.EPERM}}
	if _, err := byProc.SocketBudget(fd); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EPERM) {
		t.Errorf("without the iterator: %v", err)
	}
}

// The kernel keeps in the same place the CPU that sent by loopback.
func TestLoopbackSocketsHaveNoNAPI(t *testing.T) {
	l := openLister(t)
	addr := [4]byte{127, 0, 0, 1}
	fd := open(t, func() (int, error) { return udpSocket(addr, 0) })
	ep := open(t, func() (int, error) { return watch(fd) })
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := unix.Sendto(fd, []byte("x"), 0, name); err != nil {
			t.Fatal(err)
		}
	}
	contexts, sockets := own(t, l, fd, ep)
	if len(contexts) != 1 || len(contexts[0].NAPIIDs) != 0 {
		t.Errorf("contexts %+v, want one without NAPIs", contexts)
	}
	if len(sockets) != 1 || sockets[0].NAPIID != 0 {
		t.Errorf("sockets %+v, want one without a NAPI", sockets)
	}
}

// All that watch a socket are known up to a number that the iterator's loop
// bounds; beyond it none of the process is trusted.
func TestManyContextsMayWatchOneSocket(t *testing.T) {
	l := openLister(t)
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	var udp int
	err := b.Server().Do(func() error {
		udp = open(t, func() (int, error) { return udpSocket(b.Server().Addr.As4(), 7303) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	napi := b.feed(t, 7303)
	poll := []unix.PollFd{{Fd: int32(udp), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 2000); n != 1 || err != nil {
		t.Fatalf("the datagram did not come: %d, %v", n, err)
	}
	var eps []int
	for _, tt := range []struct {
		watchers int
		more     bool
	}{{8, false}, {9, false}, {256, false}, {257, true}} {
		for len(eps) < tt.watchers {
			eps = append(eps, open(t, func() (int, error) { return watch(udp) }))
		}
		contexts, sockets := own(t, l, append(eps, udp)...)
		if len(contexts) != tt.watchers || len(sockets) != 1 {
			t.Errorf("%d contexts and %d sockets listed, want %d and 1", len(contexts), len(sockets), tt.watchers)
		}
		for _, c := range contexts {
			if c.MoreNAPIs != tt.more || !tt.more && !slices.Equal(c.NAPIIDs, []uint32{napi}) || c.Mixed() != tt.more {
				t.Errorf("of %d: context %+v, want more: %v, of NAPI %d", tt.watchers, c, tt.more, napi)
				break
			}
		}
	}
}

func TestProcListsContextsOnly(t *testing.T) {
	ep := open(t, func() (int, error) { return watch() })
	l := &Lister{proc: procContexts{"/proc"}}
	self, err := readProcess("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	contexts, sockets := own(t, l, ep)
	want := []Context{{Process: self, EpollContext: model.EpollContext{FD: ep, Opaque: true}}}
	if diff := cmp.Diff(want, contexts); diff != "" || sockets != nil {
		t.Errorf("%d sockets; contexts (-want +got):\n%s", len(sockets), diff)
	}
	listing, err := l.List(ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(listing.Contexts, func(c Context) bool { return c.PID == os.Getpid() && c.FD == ep }) {
		t.Errorf("the context is not among the %d of all processes", len(listing.Contexts))
	}
}
