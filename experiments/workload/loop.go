//go:build linux

package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tokens of epoll events that are no connection's.
const (
	inputToken    = -1
	listenerToken = -2
	tickToken     = -3
)

// loop is what the server's and the client's loops have in common.
type loop struct {
	clock  clock
	epoll  int
	events []unix.EpollEvent
	input  lines
	output *os.File
}

func newLoop(input, output *os.File) (*loop, error) {
	clock, err := newClock()
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll context: %w", err)
	}
	return &loop{
		clock:  clock,
		epoll:  epoll,
		events: make([]unix.EpollEvent, 1024),
		input:  lines{file: input},
		output: output,
	}, nil
}

func (l *loop) close() error {
	if err := unix.Close(l.epoll); err != nil {
		return fmt.Errorf("close the epoll context: %w", err)
	}
	return nil
}

// configure reads the first line, with the configuration.
func (l *loop) configure(config any) error {
	line, err := l.input.next()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(config); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return nil
}

// settle pins the process's threads to runtimeCPU and the calling one to cpu,
// makes them as nice as asked, and switches the garbage collector off. The loops block in raw system calls,
// which the runtime does not notice, so nothing may wait for them to yield.
func (l *loop) settle(cpu, runtimeCPU, nice int) error {
	runtime.LockOSThread()
	// An explicit number also ends the runtime's own updates of it, which
	// would stop the world.
	runtime.GOMAXPROCS(2)
	runtime.GC()
	debug.SetGCPercent(-1)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return fmt.Errorf("own thread: %w", err)
		}
		if err := pin(tid, runtimeCPU); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		// Left alone unless asked: whoever started the process may have set it.
		if nice == 0 {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set the nice value of thread %d to %d: %w", tid, nice, err)
		}
	}
	if err := pin(0, cpu); err != nil {
		return err
	}
	if nice != 0 {
		// Between sessions only the nice values of their groups count. Where
		// there are no such groups there is no such file.
		err := os.WriteFile("/proc/self/autogroup", strconv.AppendInt(nil, int64(nice), 10), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set the nice value of the process's scheduling group to %d: %w", nice, err)
		}
	}
	// Sleeps of the client end when a request is due; the default slack of
	// 50 us would make it late.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	return nil
}

func pin(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pin thread %d to CPU %d: %w", tid, cpu, err)
	}
	return nil
}

func (l *loop) watch(fd int, token int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: token}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch descriptor %d: %w", fd, err)
	}
	return nil
}

// wait returns the events that are ready. A nil timeout waits for ever.
func (l *loop) wait(timeout *unix.Timespec) ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	if errno == unix.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, fmt.Errorf("epoll_pwait2: %w", errno)
	}
	return l.events[:n], nil
}

// send writes one message to the parent.
func (l *loop) send(message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode a report: %w", err)
	}
	if _, err := l.output.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	return nil
}

// commands does what came in, which may be more than one command.
func (l *loop) commands(do func(command) error) error {
	if err := l.input.fill(); err != nil {
		return err
	}
	for {
		line, ok := l.input.cut()
		if !ok {
			return nil
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			return fmt.Errorf("command %q: %w", line, err)
		}
		if err := do(c); err != nil {
			return err
		}
	}
}

// lines splits a pipe into lines without reading ahead of what is there, so
// that epoll can tell when there is more.
type lines struct {
	file   *os.File
	buffer []byte
}

// maxLine bounds a line from the parent.
const maxLine = 1 << 16

func (l *lines) fill() error {
	chunk := make([]byte, 4096)
	n, err := l.file.Read(chunk)
	l.buffer = append(l.buffer, chunk[:n]...)
	if err != nil {
		return err
	}
	if len(l.buffer) > maxLine {
		return fmt.Errorf("a line of more than %d bytes", maxLine)
	}
	return nil
}

func (l *lines) cut() ([]byte, bool) {
	line, rest, ok := bytes.Cut(l.buffer, []byte{'\n'})
	if ok {
		l.buffer = rest
	}
	return line, ok
}

func (l *lines) next() ([]byte, error) {
	for {
		if line, ok := l.cut(); ok {
			return line, nil
		}
		if err := l.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// involuntary returns how often the calling thread was switched out while it
// wanted to run.
func involuntary() int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0
	}
	return usage.Nivcsw
}

func rawRead(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	return int(n), errno
}

func rawWrite(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	return int(n), errno
}

// socket makes a TCP socket whose small messages are sent at once.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return -1, errors.Join(fmt.Errorf("set TCP_NODELAY: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(addr netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
}
