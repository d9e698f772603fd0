package busypoll

import (
	"cmp"
	"context"
	"fmt"
)

// Kind is what a descriptor is of.
type Kind string

// The kinds.
const (
	KindEpoll  Kind = "epoll"
	KindSocket Kind = "socket"
)

// Handle is one descriptor of one process.
type Handle struct {
	// PID is the process, in the caller's PID namespace.
	PID int `json:"pid"`
	// Start is when the process started, in clock ticks since boot (starttime
	// in proc_pid_stat(5)): with it a process ID means one process only. Zero
	// means that it is not known.
	Start uint64 `json:"start_ticks"`
	FD    int    `json:"fd"`
	Kind  Kind   `json:"kind"`
	// Object is what the descriptor leads to: the address of an epoll
	// context, as all of them share one inode, or the inode number of a
	// socket. Zero means that it is not known. Both are used again.
	Object uint64 `json:"object"`
}

// Key identifies what the descriptor leads to, whoever holds it: a context is
// shared with a child after fork(2). Where the object is not known, it is the
// descriptor itself.
func (h Handle) Key() Handle {
	if h.Object != 0 {
		return Handle{Kind: h.Kind, Object: h.Object}
	}
	return h
}

// SameProcess reports whether both are of one process.
func (h Handle) SameProcess(o Handle) bool {
	return h.PID == o.PID && (h.Start == o.Start || h.Start == 0 || o.Start == 0)
}

// SameDescriptor reports whether both are one descriptor number of one process,
// whatever it led to.
func (h Handle) SameDescriptor(o Handle) bool {
	return h.SameProcess(o) && h.FD == o.FD && h.Kind == o.Kind
}

// Compare orders by process, then by descriptor.
func (h Handle) Compare(o Handle) int {
	return cmp.Or(cmp.Compare(h.PID, o.PID), cmp.Compare(h.Start, o.Start), cmp.Compare(h.Kind, o.Kind), cmp.Compare(h.FD, o.FD))
}

func (h Handle) String() string {
	what := "epoll context"
	if h.Kind == KindSocket {
		what = "socket"
	}
	return fmt.Sprintf("%s %d of process %d", what, h.FD, h.PID)
}

// Descriptor is one row of a listing.
type Descriptor struct {
	Handle
	// Comm is the name of the process's first thread.
	Comm string
	// Protocol of a socket: "tcp", "udp" or "xdp"; empty for a context.
	Protocol string
	// Params is what it is set to; nil where the listing does not tell.
	Params *Params
	// NAPIIDs are the NAPI instances of the sockets that a context watches, or
	// of the socket, ascending. Nil means none, or not known: see Opaque.
	NAPIIDs []uint32
	// MoreNAPIs tells that a context may watch sockets of further instances.
	MoreNAPIs bool
	// Opaque is set where the listing tells neither Params nor NAPIIDs.
	Opaque bool
}

// Mixed reports whether a context watches sockets of several NAPI instances, or
// may.
func (d *Descriptor) Mixed() bool { return len(d.NAPIIDs) > 1 || d.MoreNAPIs }

// Lister lists the epoll contexts of at least the processes named, of all where
// none is, and with sockets also their sockets that can busy poll. It
// duplicates no descriptor. Processes that exit during the walk are no error.
type Lister interface {
	List(ctx context.Context, pids []int, sockets bool) ([]Descriptor, error)
}

// BudgetReader tells the busy-poll budget of a socket that the calling process
// holds under fd, which getsockopt(2) does not (sk_getsockopt in
// net/core/sock.c). The error wraps [errors.ErrUnsupported] where that cannot be
// known here.
type BudgetReader interface {
	SocketBudget(fd int) (uint16, error)
}

// System is the machine's processes: [Live], or the in-memory one of
// actuate/memkernel.
type System interface {
	Lister
	// Get returns what a descriptor is set to. The budget of a socket is 0
	// where SocketBudgets returns an error.
	Get(h Handle) (Params, error)
	// SocketBudgets returns nil where the budget of a socket can be read, and
	// so be set and put back, or else why not.
	SocketBudgets() error
	// Swap writes to if the present value is from, and returns the value
	// afterwards, read back. Where it is another, nothing is written and the
	// error is nil: compare. [ErrVanished] means that the process, or what
	// the handle led to, is gone.
	Swap(h Handle, from, to Params) (Params, error)
	// Cgroups returns the paths of a process's control groups, one per
	// hierarchy; none where they cannot be read.
	Cgroups(pid int) []string
}
