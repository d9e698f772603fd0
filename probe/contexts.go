package probe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The values of enum entry_kind in bpf/contexts.bpf.c.
const (
	entryContext = 1
	entrySocket  = 2
)

// contexts lists epoll contexts with an iterator over all files of all
// processes. It runs only when asked.
type contexts struct {
	program *ebpf.Program
	iter    *link.Iter
}

// loadContexts loads the iterator. The caller closes it.
func loadContexts() (*contexts, error) {
	spec, err := bpf.LoadContexts()
	if err != nil {
		return nil, fmt.Errorf("read the embedded iterator: %w", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the iterator over files: %w", honest(err))
	}
	defer collection.Close()
	program := collection.DetachProgram(bpf.ContextsProgContexts)
	iter, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the iterator over files: %w", honest(err)), program.Close())
	}
	return &contexts{program: program, iter: iter}, nil
}

func (c *contexts) close() error { return errors.Join(c.iter.Close(), c.program.Close()) }

// list returns the epoll contexts of all processes.
func (c *contexts) list([]uint32) (map[uint32][]model.EpollContext, error) {
	files, err := c.iter.Open()
	if err != nil {
		return nil, fmt.Errorf("list epoll contexts: %w", err)
	}
	data, err := io.ReadAll(files)
	err = errors.Join(err, files.Close())
	if err != nil {
		return nil, fmt.Errorf("list epoll contexts: %w", err)
	}
	entries, err := parseContextEntries(data)
	if err != nil {
		return nil, err
	}
	return groupContexts(entries), nil
}

// parseContextEntries decodes what the iterator writes.
func parseContextEntries(data []byte) ([]bpf.ContextsContextEntry, error) {
	size := binary.Size(bpf.ContextsContextEntry{})
	if len(data)%size != 0 {
		return nil, fmt.Errorf("list epoll contexts: %d bytes are no multiple of an entry of %d", len(data), size)
	}
	entries := make([]bpf.ContextsContextEntry, len(data)/size)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, entries); err != nil {
		return nil, fmt.Errorf("list epoll contexts: %w", err)
	}
	return entries, nil
}

// groupContexts matches the sockets to the contexts that watch them. A context
// can be open in several processes and under several descriptors, each of which
// is listed.
func groupContexts(entries []bpf.ContextsContextEntry) map[uint32][]model.EpollContext {
	napis := make(map[uint64][]uint32)
	for i := range entries {
		e := &entries[i]
		if e.Kind != entrySocket {
			continue
		}
		for _, watcher := range e.Watchers {
			if watcher != 0 && !slices.Contains(napis[watcher], e.NapiId) {
				napis[watcher] = append(napis[watcher], e.NapiId)
			}
		}
	}
	for _, ids := range napis {
		slices.Sort(ids)
	}
	byProcess := make(map[uint32][]model.EpollContext)
	for i := range entries {
		e := &entries[i]
		if e.Kind != entryContext {
			continue
		}
		pid := uint32(e.Pid)
		byProcess[pid] = append(byProcess[pid], model.EpollContext{
			FD:       int(e.Fd),
			BusyPoll: time.Duration(e.BusyPollUsecs) * time.Microsecond,
			Budget:   e.BusyPollBudget,
			Prefer:   e.PreferBusyPoll != 0,
			NAPIIDs:  slices.Clone(napis[e.Watchers[0]]),
		})
	}
	for _, list := range byProcess {
		slices.SortFunc(list, func(a, b model.EpollContext) int { return cmp.Compare(a.FD, b.FD) })
	}
	return byProcess
}
