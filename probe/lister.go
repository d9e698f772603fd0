package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// Listing is the epoll contexts of processes, and their sockets where asked
// for. Both are ordered by process ID and descriptor.
type Listing struct {
	Contexts []Context
	// Sockets is nil where it was not asked for, or cannot be known.
	Sockets []Socket
}

// Process is whom a listed descriptor belongs to. The ID alone does not name a
// process for long; ID and start time do.
type Process struct {
	PID  int
	Comm string
	// Started is when the process started, since boot. /proc/PID/stat tells
	// the same in clock ticks, rounded down: compare [Process.StartTicks].
	Started time.Duration
}

// StartTicks returns Started in the unit of /proc/PID/stat (field 22).
func (p Process) StartTicks() uint64 {
	return uint64(p.Started / (time.Second / userHz))
}

// Context is one descriptor of an epoll context. A context that several
// processes share, or that has several descriptors, is listed under each.
type Context struct {
	Process
	// Address is that of the kernel's structure. It tells contexts apart: all
	// of them have the same inode. 0 where it is not known.
	Address uint64
	model.EpollContext
}

// SocketKind is what a socket speaks.
type SocketKind string

// The kinds of sockets that can be busy polled.
const (
	SocketTCP SocketKind = "tcp"
	SocketUDP SocketKind = "udp"
	SocketXDP SocketKind = "xdp"
)

// Socket is one descriptor of a socket that can be busy polled.
type Socket struct {
	Process
	FD   int
	Kind SocketKind
	// Address is that of the kernel's structure.
	Address uint64
	// NAPIID is the instance that it received from last; 0 when it has
	// received from none.
	NAPIID uint32
	// BusyPoll (SO_BUSY_POLL), Prefer (SO_PREFER_BUSY_POLL) and Budget
	// (SO_BUSY_POLL_BUDGET) are its options.
	BusyPoll time.Duration
	Budget   uint16
	Prefer   bool
}

// ListOptions say what to list.
type ListOptions struct {
	// PIDs restricts the listing to these processes; nil means all.
	PIDs []int
	// Sockets lists TCP, UDP and AF_XDP sockets too.
	Sockets bool
}

// Lister lists epoll contexts and sockets of running processes without taking
// a descriptor of any. It is not safe for concurrent use.
type Lister struct {
	iterator *contexts
	proc     procContexts
	lacking  *Missing
}

// OpenLister loads the iterator that the listing is made by. Where the kernel
// refuses it, contexts are found in procfs (empty means /proc), which tells
// only that they exist, and Missing says so and why. The caller closes the
// Lister in both cases.
func OpenLister(procfs string) (*Lister, *Missing) {
	if procfs == "" {
		procfs = "/proc"
	}
	l := &Lister{proc: procContexts{procfs}}
	l.iterator, l.lacking = tryContexts()
	return l, l.lacking
}

// List returns what the options ask for. Processes that end meanwhile are left
// out.
func (l *Lister) List(options ListOptions) (Listing, error) {
	if l.iterator != nil {
		return l.iterator.listAll(options)
	}
	return l.proc.listAll(options)
}

// SocketBudget returns SO_BUSY_POLL_BUDGET of a socket that the calling process
// holds under fd, which getsockopt(2) does not tell. The error wraps
// [errors.ErrUnsupported] where the kernel refuses the iterator or its sockets
// have no budget (before Linux 5.11).
func (l *Lister) SocketBudget(fd int) (uint16, error) {
	if l.iterator == nil {
		return 0, fmt.Errorf("read the busy-poll budget of a socket: no BPF iterator over files (%w): %w", l.lacking.Err, errors.ErrUnsupported)
	}
	return l.iterator.socketBudget(fd)
}

// Close removes the iterator.
func (l *Lister) Close() error {
	if l.iterator == nil {
		return nil
	}
	return l.iterator.close()
}

// minNAPIID returns the lowest ID that a NAPI instance can have (MIN_NAPI_ID in
// include/net/busy_poll.h): one above the number of CPUs that the kernel was
// built for. What a socket holds below it tells which CPU sent to it over
// loopback.
func minNAPIID(sysfs string) (uint32, error) {
	file := filepath.Join(sysfs, "devices/system/cpu/kernel_max")
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the kernel's number of CPUs: %w", err)
	}
	highest, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return uint32(highest) + 2, nil
}

// tryContexts returns the iterator where it works.
func tryContexts() (*contexts, *Missing) {
	loaded, err := loadContexts()
	if err == nil {
		// Some kernels load an iterator and cannot run it.
		if _, err = loaded.list(nil); err == nil {
			return loaded, nil
		}
		err = errors.Join(err, loaded.close())
	}
	return nil, &Missing{Name: signalContexts, Lost: procContextsLost, Err: err}
}
