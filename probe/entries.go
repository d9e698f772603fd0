package probe

import (
	"cmp"
	"slices"
	"time"

	"autotune/bpf"
	"autotune/model"
)

// listEntries makes a listing of what the iterator wrote. Entries of a socket
// and of the contexts that watch it come in any order, and may be of different
// processes.
func listEntries(entries []bpf.ContextsContextEntry, options ListOptions) Listing {
	watched := watchedBy(entries)
	var listing Listing
	if options.Sockets {
		listing.Sockets = []Socket{}
	}
	for i := range entries {
		e := &entries[i]
		if !options.wants(int(e.Pid)) {
			continue
		}
		if e.Kind == entryContext {
			listing.Contexts = append(listing.Contexts, watched.context(e))
			continue
		}
		kind, ok := socketKind(e.Kind)
		if !options.Sockets || !ok || continues(entries, i) {
			continue
		}
		listing.Sockets = append(listing.Sockets, Socket{
			Process:  process(e),
			FD:       int(e.Fd),
			Kind:     kind,
			Address:  e.Address,
			NAPIID:   e.NapiId,
			BusyPoll: time.Duration(e.BusyPollUsecs) * time.Microsecond,
			Budget:   e.BusyPollBudget,
			Prefer:   e.PreferBusyPoll != 0,
		})
	}
	slices.SortFunc(listing.Contexts, func(a, b Context) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.FD, b.FD))
	})
	slices.SortFunc(listing.Sockets, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.FD, b.FD))
	})
	return listing
}

func (o ListOptions) wants(pid int) bool {
	return o.PIDs == nil || slices.Contains(o.PIDs, pid)
}

// continues reports whether the entry only names further watchers of the socket
// before it.
func continues(entries []bpf.ContextsContextEntry, i int) bool {
	return i > 0 && entries[i-1].Pid == entries[i].Pid && entries[i-1].Fd == entries[i].Fd
}

func socketKind(kind uint32) (SocketKind, bool) {
	switch kind {
	case entryTCP:
		return SocketTCP, true
	case entryUDP:
		return SocketUDP, true
	case entryXDP:
		return SocketXDP, true
	}
	return "", false
}

// watchedNAPIs is which NAPI instances feed the sockets of a context.
type watchedNAPIs struct {
	byAddress map[uint64][]uint32
	// unsure are the processes with a socket of which not all watchers are
	// named.
	unsure map[int32]bool
}

func watchedBy(entries []bpf.ContextsContextEntry) watchedNAPIs {
	w := watchedNAPIs{byAddress: make(map[uint64][]uint32), unsure: make(map[int32]bool)}
	for i := range entries {
		e := &entries[i]
		if e.Kind == entryContext || e.NapiId == 0 {
			continue
		}
		for _, watcher := range e.Watchers {
			if watcher != 0 && !slices.Contains(w.byAddress[watcher], e.NapiId) {
				w.byAddress[watcher] = append(w.byAddress[watcher], e.NapiId)
			}
		}
		if e.MoreWatchers != 0 {
			w.unsure[e.Pid] = true
		}
	}
	for _, ids := range w.byAddress {
		slices.Sort(ids)
	}
	return w
}

func (w watchedNAPIs) context(e *bpf.ContextsContextEntry) Context {
	return Context{
		Process: process(e),
		Address: e.Address,
		EpollContext: model.EpollContext{
			FD:        int(e.Fd),
			BusyPoll:  time.Duration(e.BusyPollUsecs) * time.Microsecond,
			Budget:    e.BusyPollBudget,
			Prefer:    e.PreferBusyPoll != 0,
			NAPIIDs:   slices.Clone(w.byAddress[e.Address]),
			MoreNAPIs: w.unsure[e.Pid],
		},
	}
}

func process(e *bpf.ContextsContextEntry) Process {
	return Process{PID: int(e.Pid), Comm: commString(e.Comm[:]), Started: time.Duration(e.Started)}
}

// commString returns the name of a task as the kernel keeps it.
func commString(comm []int8) string {
	text := make([]byte, 0, len(comm))
	for _, c := range comm {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

// byProcess groups contexts for the samples of applications.
func byProcess(listed []Context) map[uint32][]model.EpollContext {
	grouped := make(map[uint32][]model.EpollContext)
	for i := range listed {
		pid := uint32(listed[i].PID)
		grouped[pid] = append(grouped[pid], listed[i].EpollContext)
	}
	return grouped
}
