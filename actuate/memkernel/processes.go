package memkernel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"autotune/actuate/busypoll"
)

// Processes are the applications of a [System]; they implement
// [busypoll.System].
type Processes struct {
	// Fault is called before each operation with what it is about, and may
	// return the error that it fails with, or change the processes; nil never
	// fails.
	Fault func(ContextOp, busypoll.Handle) error
	// Opaque makes the listing that of /proc: descriptors without addresses,
	// parameters and NAPI instances.
	Opaque bool
	// NoBudgets is what SocketBudgets returns; with it sockets read as having
	// a budget of 0.
	NoBudgets error

	mu          sync.Mutex
	nextPID     int
	clock       uint64
	nextAddress uint64
	free        []uint64
	list        []*Process
}

// ContextOp names an operation to [Processes.Fault].
type ContextOp string

// The operations. OpContextSet comes between the look at the present value and
// the write, OpContextDone after the write.
const (
	OpContextList ContextOp = "list"
	OpContextGet  ContextOp = "get"
	OpContextSet  ContextOp = "set"
	OpContextDone ContextOp = "set done"
)

// Process is a running application.
type Process struct {
	processes *Processes
	PID       int
	Start     uint64
	Comm      string
	Cgroup    string
	exited    bool
	fds       map[int]*Context
}

// Context is an epoll context.
type Context struct {
	address uint64
	params  busypoll.Params
	napis   []uint32
	holders int
}

// Processes returns the machine's applications.
func (s *System) Processes() busypoll.System { return &s.Applications }

// Start makes a process.
func (p *Processes) Start(comm string) *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextPID++
	return p.start(comm, 1000+p.nextPID)
}

func (p *Processes) start(comm string, pid int) *Process {
	p.clock++
	out := &Process{processes: p, PID: pid, Start: p.clock, Comm: comm, Cgroup: "/", fds: map[int]*Context{}}
	p.list = append(p.list, out)
	return out
}

// Replace ends the process and starts another with its ID.
func (p *Process) Replace(comm string) *Process {
	p.Exit()
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	return p.processes.start(comm, p.PID)
}

// Fork makes a child that shares the contexts.
func (p *Process) Fork() *Process {
	child := p.processes.Start(p.Comm)
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	for fd, c := range p.fds {
		child.fds[fd] = c
		c.holders++
	}
	return child
}

// Exit ends the process.
func (p *Process) Exit() {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	for fd := range p.fds {
		p.close(fd)
	}
	p.exited = true
	p.processes.list = slices.DeleteFunc(p.processes.list, func(o *Process) bool { return o == p })
}

// Open makes an epoll context under the lowest free descriptor and watches
// sockets of these NAPI instances. As the kernel's allocator does, it takes the
// address that was freed last.
func (p *Process) Open(napis ...uint32) int {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	fd := 3
	for p.fds[fd] != nil {
		fd++
	}
	p.fds[fd] = &Context{address: p.processes.address(), napis: napis, holders: 1}
	return fd
}

func (p *Processes) address() uint64 {
	if n := len(p.free); n > 0 {
		address := p.free[n-1]
		p.free = p.free[:n-1]
		return address
	}
	p.nextAddress += 0x100
	return 0xffff888000000000 + p.nextAddress
}

// Close closes a descriptor.
func (p *Process) Close(fd int) {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	p.close(fd)
}

func (p *Process) close(fd int) {
	c := p.fds[fd]
	if c == nil {
		return
	}
	delete(p.fds, fd)
	if c.holders--; c.holders == 0 {
		p.processes.free = append(p.processes.free, c.address)
	}
}

// Descriptors returns those that are open, ascending.
func (p *Process) Descriptors() []int {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	var out []int
	for fd := range p.fds {
		out = append(out, fd)
	}
	slices.Sort(out)
	return out
}

// Params returns what a context is set to.
func (p *Process) Params(fd int) busypoll.Params {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	return p.fds[fd].params
}

// Write sets a context, as the application or another writer does.
func (p *Process) Write(fd int, params busypoll.Params) {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	p.fds[fd].params = params
}

// Watch makes a context watch sockets of these NAPI instances.
func (p *Process) Watch(fd int, napis ...uint32) {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	p.fds[fd].napis = napis
}

// Exec gives the process another name and closes its contexts, which are
// close-on-exec.
func (p *Process) Exec(comm string) {
	p.processes.mu.Lock()
	defer p.processes.mu.Unlock()
	for fd := range p.fds {
		p.close(fd)
	}
	p.Comm = comm
}

func (p *Processes) fault(op ContextOp, h busypoll.Handle) error {
	if p.Fault == nil {
		return nil
	}
	return p.Fault(op, h)
}

// List implements [busypoll.System].
func (p *Processes) List(context.Context, []int, bool) ([]busypoll.Descriptor, error) {
	if err := p.fault(OpContextList, busypoll.Handle{}); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []busypoll.Descriptor
	for _, process := range p.list {
		for fd, c := range process.fds {
			d := busypoll.Descriptor{
				Handle: busypoll.Handle{PID: process.PID, Start: process.Start, FD: fd, Kind: busypoll.KindEpoll},
				Comm:   process.Comm, Opaque: p.Opaque,
			}
			if !p.Opaque {
				params := c.params
				d.Object, d.Params, d.NAPIIDs = c.address, &params, slices.Clone(c.napis)
			}
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b busypoll.Descriptor) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.FD, b.FD))
	})
	return out, nil
}

// Cgroups implements [busypoll.System].
func (p *Processes) Cgroups(pid int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range p.list {
		if process.PID == pid {
			return []string{process.Cgroup}
		}
	}
	return nil
}

// find returns the context that a descriptor leads to; like the real system it
// does not know addresses. The lock is held.
func (p *Processes) find(h busypoll.Handle) (*Context, error) {
	for _, process := range p.list {
		if process.PID == h.PID && (h.Start == 0 || process.Start == h.Start) && process.fds[h.FD] != nil {
			return process.fds[h.FD], nil
		}
	}
	return nil, fmt.Errorf("%v: %w", h, busypoll.ErrVanished)
}

// SocketBudgets implements [busypoll.System].
func (p *Processes) SocketBudgets() error { return p.NoBudgets }

// Get implements [busypoll.System].
func (p *Processes) Get(h busypoll.Handle) (busypoll.Params, error) {
	if err := p.fault(OpContextGet, h); err != nil {
		return busypoll.Params{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.find(h)
	if err != nil {
		return busypoll.Params{}, err
	}
	return p.shown(h, c), nil
}

// shown returns what can be read of a context, or of a socket: a handle of
// either leads to a [Context].
func (p *Processes) shown(h busypoll.Handle, c *Context) busypoll.Params {
	params := c.params
	if h.Kind == busypoll.KindSocket && p.NoBudgets != nil {
		params.Budget = 0
	}
	return params
}

// Swap implements [busypoll.System].
func (p *Processes) Swap(h busypoll.Handle, from, to busypoll.Params) (busypoll.Params, error) {
	if err := p.fault(OpContextSet, h); err != nil {
		return busypoll.Params{}, err
	}
	now, err := p.swap(h, from, to)
	if err != nil {
		return now, err
	}
	return now, p.fault(OpContextDone, h)
}

func (p *Processes) swap(h busypoll.Handle, from, to busypoll.Params) (busypoll.Params, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.find(h)
	if err != nil {
		return busypoll.Params{}, err
	}
	if p.shown(h, c) != from {
		return p.shown(h, c), nil
	}
	budget := c.params.Budget
	c.params = to
	if h.Kind == busypoll.KindSocket && p.NoBudgets != nil {
		c.params.Budget = budget
	}
	return p.shown(h, c), nil
}
