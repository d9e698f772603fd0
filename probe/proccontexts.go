package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"autotune/model"
)

// procContextsLost is what is missing where /proc lists the contexts.
const procContextsLost = "what epoll contexts are set to and which NAPIs their sockets are of; /proc tells only that they exist"

// procContexts lists epoll contexts by the descriptors that /proc shows, where
// the kernel has no BPF iterators. Nothing there tells their parameters
// (ep_show_fdinfo in fs/eventpoll.c) or the NAPI of a socket.
type procContexts struct{ procfs string }

func (c procContexts) close() error { return nil }

// list implements [contextLister]. A process that has exited has none.
func (c procContexts) list(pids []uint32) (map[uint32][]model.EpollContext, error) {
	options := ListOptions{PIDs: make([]int, 0, len(pids))}
	for _, pid := range pids {
		options.PIDs = append(options.PIDs, int(pid))
	}
	listing, err := c.listAll(options)
	if err != nil {
		return nil, err
	}
	return byProcess(listing.Contexts), nil
}

func (c procContexts) listAll(options ListOptions) (Listing, error) {
	pids := slices.Clone(options.PIDs)
	if options.PIDs == nil {
		var err error
		if pids, err = allProcesses(c.procfs); err != nil {
			return Listing{}, err
		}
	}
	slices.Sort(pids)
	var listing Listing
	for _, pid := range slices.Compact(pids) {
		fds, err := c.contextsOf(pid)
		if options.PIDs == nil && errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return Listing{}, err
		}
		if len(fds) == 0 {
			continue
		}
		process, err := readProcess(c.procfs, pid)
		if errors.Is(err, errNoTask) {
			continue
		}
		if err != nil {
			return Listing{}, err
		}
		for _, fd := range fds {
			listing.Contexts = append(listing.Contexts, Context{
				Process: process, EpollContext: model.EpollContext{FD: fd, Opaque: true},
			})
		}
	}
	return listing, nil
}

// contextsOf returns the descriptors of a process that are epoll contexts,
// ascending. A process that has exited has none.
func (c procContexts) contextsOf(pid int) ([]int, error) {
	dir := filepath.Join(c.procfs, strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the descriptors of process %d: %w", pid, err)
	}
	var fds []int
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the descriptors of process %d: %w", pid, err)
		}
		if target == "anon_inode:[eventpoll]" {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds, nil
}

func allProcesses(procfs string) ([]int, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// readProcess returns what /proc tells of a process; the error wraps errNoTask
// when it has exited.
func readProcess(procfs string, pid int) (Process, error) {
	comm, err := processComm(procfs, pid)
	if err != nil {
		return Process{}, err
	}
	data, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		if gone(err) {
			err = errNoTask
		}
		return Process{}, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	started, err := parseStatStart(data)
	if err != nil {
		return Process{}, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	return Process{PID: pid, Comm: comm, Started: started}, nil
}

// openContexts returns the best lister that works here, and what it lacks.
func openContexts(procfs string) (contextLister, *Missing) {
	loaded, lacking := tryContexts()
	if lacking != nil {
		return procContexts{procfs}, lacking
	}
	return loaded, nil
}
