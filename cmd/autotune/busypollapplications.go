package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"autotune/actuate/busypoll"
	"autotune/probe"
)

// applications lists what the running processes have; it implements
// [busypoll.Lister]. The listing's program is loaded when it is first needed.
// It is not safe for concurrent use.
type applications struct {
	lister  *probe.Lister
	missing *probe.Missing
}

var errPIDNamespace = errors.New("autotune is in a PID namespace of its own, where the process IDs that the kernel lists mean nothing: " +
	"run it on the host, or in a container with the host's PID namespace")

// initPIDNamespace is PROC_PID_INIT_INO of include/linux/proc_ns.h.
const initPIDNamespace = "pid:[4026531836]"

// open loads the program; a kernel without BPF iterators leaves what /proc
// tells, as Missing says.
func (a *applications) open() error {
	if a.lister != nil {
		return nil
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns != initPIDNamespace {
		return errPIDNamespace
	}
	a.lister, a.missing = probe.OpenLister("")
	return nil
}

// Missing says what the listing lacks here; nil where it is whole.
func (a *applications) Missing() (*probe.Missing, error) {
	if err := a.open(); err != nil {
		return nil, err
	}
	return a.missing, nil
}

// List implements [busypoll.Lister].
func (a *applications) List(_ context.Context, pids []int, sockets bool) ([]busypoll.Descriptor, error) {
	if err := a.open(); err != nil {
		return nil, err
	}
	if len(pids) == 0 {
		pids = nil
	}
	listing, err := a.lister.List(probe.ListOptions{PIDs: pids, Sockets: sockets})
	if err != nil {
		return nil, err
	}
	rows := make([]busypoll.Descriptor, 0, len(listing.Contexts)+len(listing.Sockets))
	for i := range listing.Contexts {
		rows = append(rows, contextRow(&listing.Contexts[i]))
	}
	for i := range listing.Sockets {
		if row, ok := socketRow(&listing.Sockets[i]); ok {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// SocketBudget implements [busypoll.BudgetReader].
func (a *applications) SocketBudget(fd int) (uint16, error) {
	if err := a.open(); err != nil {
		return 0, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return a.lister.SocketBudget(fd)
}

func contextRow(c *probe.Context) busypoll.Descriptor {
	d := busypoll.Descriptor{
		Handle: busypoll.Handle{PID: c.PID, Start: c.StartTicks(), FD: c.FD, Kind: busypoll.KindEpoll, Object: c.Address},
		Comm:   c.Comm, Opaque: c.Opaque, NAPIIDs: c.NAPIIDs, MoreNAPIs: c.MoreNAPIs,
	}
	if !c.Opaque {
		d.Params = &busypoll.Params{Usecs: uint32(c.BusyPoll / time.Microsecond), Budget: c.Budget, Prefer: c.Prefer}
	}
	return d
}

// socketRow names a socket by its inode, which is what can be checked when it
// is set; false where it is gone already.
func socketRow(s *probe.Socket) (busypoll.Descriptor, bool) {
	target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(s.PID), "fd", strconv.Itoa(s.FD)))
	if errors.Is(err, os.ErrNotExist) {
		return busypoll.Descriptor{}, false
	}
	d := busypoll.Descriptor{
		Handle:   busypoll.Handle{PID: s.PID, Start: s.StartTicks(), FD: s.FD, Kind: busypoll.KindSocket},
		Comm:     s.Comm,
		Protocol: string(s.Kind),
		Params:   &busypoll.Params{Usecs: uint32(s.BusyPoll / time.Microsecond), Budget: s.Budget, Prefer: s.Prefer},
	}
	number, isSocket := strings.CutPrefix(strings.TrimSuffix(target, "]"), "socket:[")
	if inode, err := strconv.ParseUint(number, 10, 64); isSocket && err == nil {
		d.Object = inode
	}
	if s.NAPIID != 0 {
		d.NAPIIDs = []uint32{s.NAPIID}
	}
	return d, true
}

// canSetSockets returns an error where sockets, or with budget their busy-poll
// budgets, cannot be set so that it can be undone.
func (a *applications) canSetSockets(budget bool) error {
	missing, err := a.Missing()
	if err != nil {
		return applicationsError(err)
	}
	if missing != nil {
		return cannotError(fmt.Errorf("--sockets: only a BPF iterator lists the sockets of processes, which does not work here (%w): "+
			"run as root on Linux 5.8 or later with BTF, or leave --sockets out", missing.Err))
	}
	if !budget {
		return nil
	}
	if err := (busypoll.Live{Lister: a}).SocketBudgets(); err != nil {
		return cannotError(fmt.Errorf("--budget with --sockets: what the budgets are now cannot be read, so they could not be put back: %w; "+
			"run as root on Linux 5.11 or later, or set the budgets of epoll contexts alone", err))
	}
	return nil
}

// whole returns an error where the listing does not tell what tuning
// applications needs.
func (a *applications) whole() error {
	missing, err := a.Missing()
	if err != nil {
		return applicationsError(err)
	}
	if missing != nil {
		return cannotError(fmt.Errorf("applications cannot follow the settings here: it is not known %s (%w)", missing.Lost, missing.Err))
	}
	return nil
}

func (a *applications) Close() error {
	if a.lister == nil {
		return nil
	}
	return a.lister.Close()
}
