package probe

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func contextEntry(pid int32, fd uint32, address uint64) bpf.ContextsContextEntry {
	e := bpf.ContextsContextEntry{Kind: entryContext, Pid: pid, Fd: fd}
	e.Watchers[0] = address
	return e
}

func socketEntry(napi uint32, watchers ...uint64) bpf.ContextsContextEntry {
	e := bpf.ContextsContextEntry{Kind: entrySocket, Pid: 99, Fd: 5, NapiId: napi}
	copy(e.Watchers[:], watchers)
	return e
}

func TestGroupContexts(t *testing.T) {
	busy := contextEntry(10, 4, 0xa)
	busy.BusyPollUsecs, busy.BusyPollBudget, busy.PreferBusyPoll = 64, 16, 1
	entries := []bpf.ContextsContextEntry{
		// The order is that of processes: sockets may come before or after
		// the contexts that watch them, and from other processes.
		socketEntry(70, 0xa),
		contextEntry(10, 9, 0xb),
		busy,
		contextEntry(11, 3, 0xa),
		socketEntry(69, 0xa, 0xb),
		socketEntry(69, 0xa),
		socketEntry(71, 0xc),
		contextEntry(12, 3, 0xd),
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
	if diff := cmp.Diff(want, groupContexts(entries)); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}

func TestParseContextEntries(t *testing.T) {
	want := []bpf.ContextsContextEntry{contextEntry(10, 4, 0xa), socketEntry(70, 0xa, 0xb)}
	var data bytes.Buffer
	if err := binary.Write(&data, binary.LittleEndian, want); err != nil {
		t.Fatal(err)
	}
	got, err := parseContextEntries(data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got, err := parseContextEntries(data.Bytes()[:data.Len()-1]); err == nil {
		t.Errorf("a cut listing was read as %d entries, want an error", len(got))
	}
}

func FuzzParseContextEntries(f *testing.F) {
	f.Add(make([]byte, 2*binary.Size(bpf.ContextsContextEntry{})))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseContextEntries(data)
		if err != nil {
			return
		}
		for pid, contexts := range groupContexts(entries) {
			if len(contexts) == 0 {
				t.Errorf("process %d has an empty list", pid)
			}
		}
	})
}
