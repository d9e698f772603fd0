//go:build linux

package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RunServer is the main loop of a server's process: it reads its
// [ServerConfig] from input, serves until it is told to stop or input ends,
// and reports on output. Both should be pipes. It pins the process and
// switches its garbage collector off, so the process should do nothing else.
// An error is reported on output as well as returned.
func RunServer(input, output *os.File) error {
	l, err := newLoop(input, output)
	if err != nil {
		return err
	}
	err = runServer(l)
	if err != nil {
		err = errors.Join(err, l.send(message[ServerInterval, ServerTotals]{Error: err.Error()}))
	}
	return errors.Join(err, l.close())
}

func runServer(l *loop) error {
	var config ServerConfig
	if err := l.configure(&config); err != nil {
		return err
	}
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	s := &serverLoop{
		loop:   l,
		config: config,
		gaps:   newGaps(),
		reply:  make([]byte, config.MessageSize),
	}
	return s.run()
}

type serverLoop struct {
	*loop
	config   ServerConfig
	listener int
	// conns is indexed by descriptor.
	conns []serverConn
	reply []byte

	start         time.Duration
	requests      uint64
	wakes         uint64
	gaps          Gaps
	totals        ServerTotals
	last          time.Duration // when the loop was last seen running
	switches      int64
	lastStolenEnd time.Duration
	answered      bool // since the last return of epoll_wait
	stopping      bool
}

type serverConn struct {
	buffer []byte
	have   int
}

func (s *serverLoop) run() (err error) {
	addr, err := s.listen()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeConns()) }()
	if s.config.BusyPoll != nil {
		if err := s.setBusyPoll(*s.config.BusyPoll); err != nil {
			return err
		}
	}
	if err := s.settle(s.config.CPU, s.config.RuntimeCPU, 0); err != nil {
		return err
	}
	if s.config.Realtime {
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if err := unix.SchedSetAttr(0, attr, 0); err != nil {
			return fmt.Errorf("make the server's thread real-time: %w", err)
		}
	}
	tick, err := newTick(s.config.Interval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(tick)) }()
	if err := s.watch(tick, tickToken); err != nil {
		return err
	}
	if err := s.watch(int(s.input.file.Fd()), inputToken); err != nil {
		return err
	}
	if err := s.send(message[ServerInterval, ServerTotals]{Ready: &ready{Addr: addr}}); err != nil {
		return err
	}
	s.start = s.clock.now()
	var expirations [8]byte
	for !s.stopping {
		events, err := s.wait(nil)
		if err != nil {
			return err
		}
		s.last = s.clock.now()
		s.switches = involuntary()
		s.answered = false
		for i := range events {
			switch token := events[i].Fd; token {
			case listenerToken:
				err = s.accept()
			case inputToken:
				err = s.commands(s.do)
				if errors.Is(err, io.EOF) {
					s.stopping, err = true, nil
				}
				s.last = s.clock.now()
			case tickToken:
				if _, errno := rawRead(tick, expirations[:]); errno == 0 {
					err = s.report()
				}
				s.last = s.clock.now()
			default:
				err = s.serve(int(token))
			}
			if err != nil {
				return err
			}
		}
		if s.answered {
			s.wakes++
			s.notice()
		}
	}
	if err := s.report(); err != nil {
		return err
	}
	return s.send(message[ServerInterval, ServerTotals]{Totals: &s.totals})
}

func (s *serverLoop) listen() (netip.AddrPort, error) {
	fd, err := socket()
	if err != nil {
		return netip.AddrPort{}, err
	}
	s.listener = fd
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return netip.AddrPort{}, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(s.config.Addr)); err != nil {
		return netip.AddrPort{}, fmt.Errorf("bind %v: %w", s.config.Addr, err)
	}
	if err := unix.Listen(fd, maxConnections); err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen on %v: %w", s.config.Addr, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return netip.AddrPort{}, fmt.Errorf("make the listener non-blocking: %w", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the bound address: %w", err)
	}
	inet, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("bound address is a %T, want IPv4", bound)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(inet.Addr), uint16(inet.Port)), s.watch(fd, listenerToken)
}

func (s *serverLoop) accept() error {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return errors.Join(fmt.Errorf("set TCP_NODELAY: %w", err), unix.Close(fd))
		}
		for fd >= len(s.conns) {
			s.conns = append(s.conns, serverConn{})
		}
		s.conns[fd] = serverConn{buffer: make([]byte, s.config.MessageSize)}
		if err := s.watch(fd, int32(fd)); err != nil {
			return err
		}
	}
}

// serve reads what a connection sent, and answers if that completes a request.
func (s *serverLoop) serve(fd int) error {
	conn := &s.conns[fd]
	n, errno := rawRead(fd, conn.buffer[conn.have:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case errno != 0 || n == 0: // reset or closed by the client
		return s.drop(fd)
	}
	conn.have += n
	if conn.have < s.config.MessageSize {
		return nil
	}
	conn.have = 0
	now := s.notice()
	for end := now + s.config.ServiceTime; now < end; now = s.clock.now() {
	}
	s.notice()
	binary.LittleEndian.PutUint64(s.reply, uint64(s.lastStolenEnd))
	n, errno = rawWrite(fd, s.reply)
	switch {
	case errno == unix.EPIPE || errno == unix.ECONNRESET:
		return s.drop(fd)
	case errno != 0:
		return fmt.Errorf("write a reply: %w", errno)
	case n != len(s.reply):
		return fmt.Errorf("write a reply: %d of %d bytes fit, use a smaller message size", n, len(s.reply))
	}
	s.requests++
	s.answered = true
	return nil
}

// notice reads the clock and logs a gap if more time has passed since it was
// last read than the work in between can have taken.
func (s *serverLoop) notice() time.Duration {
	now := s.clock.now()
	if span := now - s.last; span > GapThreshold+s.config.ServiceTime {
		cause := GapStolen
		if switches := involuntary(); switches != s.switches {
			cause = GapPreempted
			s.switches = switches
		}
		if cause == GapStolen {
			s.lastStolenEnd = now
		}
		s.gaps.add(Gap{Start: s.last, Span: span, Cause: cause})
	}
	s.last = now
	return now
}

func (s *serverLoop) drop(fd int) error {
	s.conns[fd] = serverConn{}
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close a connection: %w", err)
	}
	return nil
}

func (s *serverLoop) closeConns() error {
	errs := []error{unix.Close(s.listener)}
	for fd, conn := range s.conns {
		if conn.buffer != nil {
			errs = append(errs, s.drop(fd))
		}
	}
	return errors.Join(errs...)
}

func (s *serverLoop) do(c command) error {
	if c.Phase != nil {
		return errors.New("a server has no phases")
	}
	s.stopping = s.stopping || c.Stop
	return nil
}

func (s *serverLoop) report() error {
	now := s.clock.now()
	err := s.send(message[ServerInterval, ServerTotals]{Interval: &ServerInterval{
		Start:    s.start,
		End:      now,
		Requests: s.requests,
		Wakes:    s.wakes,
		Gaps:     s.gaps,
	}})
	s.totals.Requests += s.requests
	s.totals.Wakes += s.wakes
	s.totals.Gaps += s.gaps.Count
	s.totals.GapTime += s.gaps.Total
	s.start, s.requests, s.wakes = now, 0, 0
	s.gaps.reset()
	return err
}

// epollParams mirrors struct epoll_params, include/uapi/linux/eventpoll.h.
type epollParams struct {
	busyPollUsecs  uint32
	busyPollBudget uint16
	preferBusyPoll uint8
	_              uint8
}

// epiocsparams is EPIOCSPARAMS: _IOW(0x8A, 0x01, struct epoll_params).
const epiocsparams = 0x40088a01

func (s *serverLoop) setBusyPoll(busyPoll BusyPoll) error {
	params := epollParams{
		busyPollUsecs:  uint32(busyPoll.Span / time.Microsecond),
		busyPollBudget: busyPoll.Budget,
	}
	if busyPoll.Prefer {
		params.preferBusyPoll = 1
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.epoll), epiocsparams, uintptr(unsafe.Pointer(&params)))
	if errno != 0 {
		return fmt.Errorf("set busy polling of the epoll context (EPIOCSPARAMS needs Linux 6.9, a budget above 64 CAP_NET_ADMIN): %w", errno)
	}
	return nil
}

// newTick makes a timer that is readable once per interval. A timeout of
// epoll_wait would arm a timer at every wait instead.
func newTick(interval time.Duration) (int, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("make the interval timer: %w", err)
	}
	period := unix.NsecToTimespec(int64(interval))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: period, Value: period}, nil); err != nil {
		return -1, errors.Join(fmt.Errorf("start the interval timer: %w", err), unix.Close(fd))
	}
	return fd, nil
}
