package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"autotune/bpf"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The values of enum entry_kind in bpf/contexts.bpf.c.
const (
	entryContext = 1
	entryTCP     = 2
	entryUDP     = 3
	entryXDP     = 4
	entryOther   = 5
)

// contexts lists epoll contexts with an iterator over all files of all
// processes. It runs only when asked.
type contexts struct {
	collection *ebpf.Collection
	program    *ebpf.Program
	iter       *link.Iter
	// wholeOnly is set once the kernel has refused an iterator over the files
	// of one process.
	wholeOnly bool
	// entries is the buffer of the next listing.
	entries []bpf.ContextsContextEntry
}

// loadContexts loads the iterator. The caller closes it.
func loadContexts() (*contexts, error) {
	lowest, err := minNAPIID(sysfsRoot)
	if err != nil {
		return nil, err
	}
	spec, err := bpf.LoadContexts()
	if err != nil {
		return nil, fmt.Errorf("read the embedded iterator: %w", err)
	}
	if err := spec.Variables[bpf.ContextsVarMinNapiId].Set(lowest); err != nil {
		return nil, fmt.Errorf("set the lowest NAPI ID: %w", err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the iterator over files: %w", honest(err))
	}
	program := collection.Programs[bpf.ContextsProgContexts]
	iter, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		collection.Close()
		return nil, fmt.Errorf("attach the iterator over files: %w", honest(err))
	}
	return &contexts{collection: collection, program: program, iter: iter}, nil
}

func (c *contexts) close() error {
	err := c.iter.Close()
	c.collection.Close()
	return err
}

// list returns the epoll contexts of the processes; nil means all of them. The
// kernel is asked process by process, which takes as long as they have files. One
// that has ended has none.
func (c *contexts) list(pids []uint32) (map[uint32][]model.EpollContext, error) {
	var listing Listing
	var err error
	if pids == nil {
		listing, err = c.listAll(ListOptions{})
	} else {
		listing, err = c.listProcesses(pids, ListOptions{})
	}
	if err != nil {
		return nil, err
	}
	return byProcess(listing.Contexts), nil
}

func (c *contexts) listAll(options ListOptions) (Listing, error) {
	files, err := c.iter.Open()
	if err != nil {
		return Listing{}, fmt.Errorf("list epoll contexts: %w", err)
	}
	c.entries = c.entries[:0]
	if err := c.take(files, options); err != nil {
		return Listing{}, err
	}
	return listEntries(c.entries, options), nil
}

// listProcesses lists at least these processes: all where the kernel can only
// iterate over all.
func (c *contexts) listProcesses(pids []uint32, options ListOptions) (Listing, error) {
	c.entries = c.entries[:0]
	for _, pid := range pids {
		if c.wholeOnly {
			return c.listAll(options)
		}
		files, err := c.filesOf(pid)
		if errors.Is(err, errors.ErrUnsupported) {
			c.wholeOnly = true
			return c.listAll(options)
		}
		if err != nil {
			return Listing{}, fmt.Errorf("list epoll contexts: %w", err)
		}
		if err := c.take(files, options); err != nil {
			return Listing{}, err
		}
	}
	return listEntries(c.entries, options), nil
}

// take appends the entries of an iterator, and closes it.
func (c *contexts) take(files io.ReadCloser, options ListOptions) error {
	var all uint32
	if options.Sockets {
		all = 1
	}
	err := c.collection.Variables[bpf.ContextsVarAllSockets].Set(all)
	if err == nil {
		c.entries, err = readContextEntries(files, c.entries)
	}
	if err := errors.Join(err, files.Close()); err != nil {
		return fmt.Errorf("list epoll contexts: %w", err)
	}
	return nil
}

// socketBudget lists one socket of the calling process.
func (c *contexts) socketBudget(fd int) (budget uint16, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the busy-poll budget of socket %d: %w", fd, err)
		}
	}()
	if err := c.only(os.Getpid(), fd); err != nil {
		return 0, err
	}
	listing, listErr := c.listProcesses([]uint32{uint32(os.Getpid())}, ListOptions{Sockets: true})
	if err := errors.Join(listErr, c.only(0, 0)); err != nil {
		return 0, err
	}
	if len(listing.Sockets) == 0 {
		return 0, unix.ENOTSOCK
	}
	var has uint32
	if err := c.collection.Variables[bpf.ContextsVarHasBudget].Get(&has); err != nil {
		return 0, err
	}
	if has == 0 {
		return 0, fmt.Errorf("struct sock has no sk_busy_poll_budget in this kernel: %w", errors.ErrUnsupported)
	}
	return listing.Sockets[0].Budget, nil
}

// only restricts listings to one descriptor of a process, or for process 0 to
// none.
func (c *contexts) only(pid, fd int) error {
	return errors.Join(
		c.collection.Variables[bpf.ContextsVarOnlyFd].Set(uint32(fd)),
		c.collection.Variables[bpf.ContextsVarOnlyPid].Set(uint32(pid)),
	)
}

// readContextEntries appends what the iterator writes.
func readContextEntries(r io.Reader, entries []bpf.ContextsContextEntry) ([]bpf.ContextsContextEntry, error) {
	// The kernel hands out what fits in its own buffer of eight pages, whole
	// entries at a time (bpf_seq_read in kernel/bpf/bpf_iter.c).
	buf := make([]byte, 256*contextEntrySize)
	for {
		n, err := io.ReadFull(r, buf)
		if n%contextEntrySize != 0 {
			return nil, fmt.Errorf("%d bytes are no multiple of an entry of %d", n, contextEntrySize)
		}
		for at := 0; at < n; at += contextEntrySize {
			entries = append(entries, contextEntry(buf[at:]))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// contextEntrySize is that of struct context_entry.
const contextEntrySize = 120

// contextEntry decodes one entry; encoding/binary takes ten times as long.
func contextEntry(b []byte) bpf.ContextsContextEntry {
	b = b[:contextEntrySize]
	e := bpf.ContextsContextEntry{
		Kind:           binary.LittleEndian.Uint32(b),
		Pid:            int32(binary.LittleEndian.Uint32(b[4:])),
		Fd:             binary.LittleEndian.Uint32(b[8:]),
		NapiId:         binary.LittleEndian.Uint32(b[12:]),
		Started:        binary.LittleEndian.Uint64(b[32:]),
		Address:        binary.LittleEndian.Uint64(b[40:]),
		BusyPollUsecs:  binary.LittleEndian.Uint32(b[112:]),
		BusyPollBudget: binary.LittleEndian.Uint16(b[116:]),
		PreferBusyPoll: b[118],
		MoreWatchers:   b[119],
	}
	for i := range e.Comm {
		e.Comm[i] = int8(b[16+i])
	}
	for i := range e.Watchers {
		e.Watchers[i] = binary.LittleEndian.Uint64(b[48+8*i:])
	}
	return e
}
