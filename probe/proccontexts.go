package probe

import (
	"errors"
	"fmt"
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
	byProcess := make(map[uint32][]model.EpollContext)
	for _, pid := range pids {
		dir := filepath.Join(c.procfs, strconv.FormatUint(uint64(pid), 10), "fd")
		entries, err := os.ReadDir(dir)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the descriptors of process %d: %w", pid, err)
		}
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
				byProcess[pid] = append(byProcess[pid], model.EpollContext{FD: fd, Opaque: true})
			}
		}
		slices.SortFunc(byProcess[pid], func(a, b model.EpollContext) int { return a.FD - b.FD })
	}
	return byProcess, nil
}

// openContexts returns the best lister that works here, and what it lacks.
func openContexts(procfs string) (contextLister, *Missing) {
	loaded, err := loadContexts()
	if err == nil {
		// Some kernels load an iterator and cannot run it.
		if _, err = loaded.list(nil); err == nil {
			return loaded, nil
		}
		err = errors.Join(err, loaded.close())
	}
	return procContexts{procfs}, &Missing{Name: signalContexts, Lost: procContextsLost, Err: err}
}
