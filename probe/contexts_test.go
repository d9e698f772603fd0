package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"testing/iotest"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// openContext is the entry of a context at an address.
func openContext(pid int32, fd uint32, address uint64) bpf.ContextsContextEntry {
	return bpf.ContextsContextEntry{Kind: entryContext, Pid: pid, Fd: fd, Address: address}
}

// watchedSocket is the entry of a socket of process 99.
func watchedSocket(fd, napi uint32, watchers ...uint64) bpf.ContextsContextEntry {
	e := bpf.ContextsContextEntry{Kind: entryUDP, Pid: 99, Fd: fd, NapiId: napi, Address: 0x1000 + uint64(fd)}
	copy(e.Watchers[:], watchers)
	return e
}

func TestContextsAreThoseOfTheSocketsTheyWatch(t *testing.T) {
	busy := openContext(10, 4, 0xa)
	busy.BusyPollUsecs, busy.BusyPollBudget, busy.PreferBusyPoll = 64, 16, 1
	entries := []bpf.ContextsContextEntry{
		// The order is that of processes: sockets may come before or after
		// the contexts that watch them, and from other processes.
		watchedSocket(5, 70, 0xa),
		openContext(10, 9, 0xb),
		busy,
		openContext(11, 3, 0xa),
		watchedSocket(6, 69, 0xa, 0xb),
		watchedSocket(7, 69, 0xa),
		watchedSocket(8, 71, 0xc),
		openContext(12, 3, 0xd),
		watchedSocket(9, 0, 0xd),
	}
	shared := model.EpollContext{FD: 3, NAPIIDs: []uint32{69, 70}}
	want := map[uint32][]model.EpollContext{
		10: {
			{FD: 4, BusyPoll: 64 * time.Microsecond, Budget: 16, Prefer: true, NAPIIDs: []uint32{69, 70}},
			{FD: 9, NAPIIDs: []uint32{69}},
		},
		11: {shared},
		12: {{FD: 3}},
	}
	if diff := cmp.Diff(want, byProcess(listEntries(entries, ListOptions{}).Contexts)); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}

func TestSocketWithMoreWatchersThanAreNamedMakesItsProcessUnsure(t *testing.T) {
	last := watchedSocket(5, 70, 0xb)
	last.MoreWatchers = 1
	entries := []bpf.ContextsContextEntry{
		openContext(99, 3, 0xa), openContext(99, 4, 0xc), openContext(10, 3, 0xd),
		watchedSocket(5, 70, 0xa), last,
	}
	want := map[uint32][]model.EpollContext{
		99: {{FD: 3, NAPIIDs: []uint32{70}, MoreNAPIs: true}, {FD: 4, MoreNAPIs: true}},
		10: {{FD: 3}},
	}
	if diff := cmp.Diff(want, byProcess(listEntries(entries, ListOptions{}).Contexts)); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}

func TestListingHoldsWhatWasAskedFor(t *testing.T) {
	named := openContext(10, 3, 0xa)
	copy(named.Comm[:], []int8{'a', 'b', 0, 'c'})
	named.Started = 12_345_678_901
	udp := watchedSocket(6, 69, 0xa)
	udp.BusyPollUsecs, udp.BusyPollBudget, udp.PreferBusyPoll = 50, 8, 1
	tcp, other := watchedSocket(5, 0), watchedSocket(4, 69, 0xa)
	tcp.Kind, other.Kind = entryTCP, entryOther
	// A socket with many watchers has several entries.
	entries := []bpf.ContextsContextEntry{named, udp, udp, tcp, other, openContext(11, 3, 0xb)}
	process := Process{PID: 10, Comm: "ab", Started: 12_345_678_901}
	context := Context{Process: process, Address: 0xa, EpollContext: model.EpollContext{FD: 3, NAPIIDs: []uint32{69}}}
	sockets := []Socket{
		{Process: Process{PID: 99}, FD: 5, Kind: SocketTCP, Address: 0x1005},
		{
			Process: Process{PID: 99}, FD: 6, Kind: SocketUDP, Address: 0x1006,
			NAPIID: 69, BusyPoll: 50 * time.Microsecond, Budget: 8, Prefer: true,
		},
	}
	for name, tt := range map[string]struct {
		options ListOptions
		want    Listing
	}{
		"one process":             {ListOptions{PIDs: []int{10}}, Listing{Contexts: []Context{context}}},
		"sockets of one process":  {ListOptions{PIDs: []int{99}, Sockets: true}, Listing{Sockets: sockets}},
		"a process without any":   {ListOptions{PIDs: []int{10}, Sockets: true}, Listing{Contexts: []Context{context}, Sockets: []Socket{}}},
		"no process":              {ListOptions{PIDs: []int{}}, Listing{}},
		"all, without the others": {ListOptions{Sockets: true}, Listing{Contexts: []Context{context, {Process: Process{PID: 11}, Address: 0xb, EpollContext: model.EpollContext{FD: 3}}}, Sockets: sockets}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, listEntries(entries, tt.options)); diff != "" {
				t.Errorf("listing (-want +got):\n%s", diff)
			}
		})
	}
	if got := process.StartTicks(); got != 1234 {
		t.Errorf("started at tick %d, want 1234", got)
	}
}

func TestReadContextEntries(t *testing.T) {
	full := bpf.ContextsContextEntry{
		Kind: 1, Pid: -2, Fd: 3, NapiId: 4, Started: 5, Address: 6, BusyPollUsecs: 7, BusyPollBudget: 8, PreferBusyPoll: 9, MoreWatchers: 10,
	}
	for i := range full.Comm {
		full.Comm[i] = int8(20 + i)
	}
	for i := range full.Watchers {
		full.Watchers[i] = 1<<63 + uint64(i)
	}
	want := []bpf.ContextsContextEntry{full, watchedSocket(5, 70, 0xa, 0xb)}
	for len(want) < 1000 {
		want = append(want, openContext(int32(len(want)), 4, 0xa))
	}
	var data bytes.Buffer
	if err := binary.Write(&data, binary.LittleEndian, want); err != nil {
		t.Fatal(err)
	}
	got, err := readContextEntries(bytes.NewReader(data.Bytes()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got, err := readContextEntries(bytes.NewReader(data.Bytes()[:data.Len()-1]), nil); err == nil {
		t.Errorf("a cut listing was read as %d entries, want an error", len(got))
	}
	broken := errors.New("broken")
	if _, err := readContextEntries(iotest.ErrReader(broken), nil); !errors.Is(err, broken) {
		t.Errorf("a reader that fails gives %v", err)
	}
}

func FuzzReadContextEntries(f *testing.F) {
	f.Add(make([]byte, 2*contextEntrySize))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := readContextEntries(bytes.NewReader(data), nil)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := binary.Write(&again, binary.LittleEndian, entries); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, again.Bytes()) {
			t.Errorf("entries are not what was read")
		}
		listing := listEntries(entries, ListOptions{Sockets: true})
		if n := len(listing.Contexts) + len(listing.Sockets); n > len(entries) {
			t.Errorf("%d listed of %d entries", n, len(entries))
		}
	})
}
