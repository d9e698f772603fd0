package probe

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/model"
	"autotune/probe/phc"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakePacket is a socket in kernel memory with a packet in its queue, as the
// programs see them.
type fakePacket struct {
	t      testing.TB
	kernel *btf.Spec
	memory *ebpf.Map
	at     uint64
	image  [4096]byte

	programs *programs
	ready    *ebpf.Program
}

// Where the parts are in the memory.
const (
	fakeSock   = 0
	fakeSKB    = 2048
	fakeBuffer = 3072
	fakeShared = 512 // from the buffer's head on
	fakeNAPI   = 77
)

func newFakePacket(t testing.TB) *fakePacket {
	t.Helper()
	l, p := newRawLoader(t)
	ready, err := l.load(l.raw, bpf.ReceiveProgSkDataReady)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ready.Close() })
	if err := p.follow(fakeNAPI, 0, nil); err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadSelftest()
	if err != nil {
		t.Fatal(err)
	}
	tell := spec.Programs[bpf.SelftestProgTellMemory]
	clear(spec.Programs)
	spec.Programs[bpf.SelftestProgTellMemory] = tell
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(collection.Close)
	if _, err := collection.Programs[bpf.SelftestProgTellMemory].Run(&ebpf.RunOptions{Context: []uint64{0, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	f := &fakePacket{t: t, memory: collection.Maps[bpf.SelftestMapMemory], programs: p, ready: ready}
	if err := collection.Variables[bpf.SelftestVarMemoryAddress].Get(&f.at); err != nil {
		t.Fatal(err)
	}
	if f.kernel, err = btf.LoadKernelSpec(); err != nil {
		t.Fatal(err)
	}
	f.put(fakeSock, "sock.sk_napi_id", fakeNAPI)
	f.put(fakeSock, "sock.sk_receive_queue.qlen", 1)
	f.put(fakeSock, "sock.sk_receive_queue.prev", f.at+fakeSKB)
	f.put(fakeSKB, "sk_buff.head", f.at+fakeBuffer)
	f.put(fakeSKB, "sk_buff.end", fakeShared)
	return f
}

// put writes a member, named from its struct on, of the object at an offset.
func (f *fakePacket) put(object uint32, path string, value uint64) {
	f.t.Helper()
	names := strings.Split(path, ".")
	var typ *btf.Struct
	if err := f.kernel.TypeByName(names[0], &typ); err != nil {
		f.t.Fatal(err)
	}
	var at btf.Type = typ
	offset := object
	for _, name := range names[1:] {
		member, ok := findMember(at, name)
		if !ok {
			f.t.Fatalf("%s: no member %s", path, name)
		}
		offset += member.Offset.Bytes()
		at = btf.UnderlyingType(member.Type)
	}
	size, err := btf.Sizeof(at)
	if err != nil {
		f.t.Fatal(err)
	}
	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], value)
	copy(f.image[offset:], bytes[:size])
}

// findMember looks a member up, also in anonymous structs and unions.
func findMember(t btf.Type, name string) (btf.Member, bool) {
	var members []btf.Member
	switch t := t.(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return m, true
		}
		if m.Name != "" {
			continue
		}
		if inner, ok := findMember(btf.UnderlyingType(m.Type), name); ok {
			inner.Offset += m.Offset
			return inner, true
		}
	}
	return btf.Member{}, false
}

// stamp writes the packet's time stamp.
func (f *fakePacket) stamp(stamp uint64) {
	f.put(fakeBuffer+fakeShared, "skb_shared_info.hwtstamps.hwtstamp", stamp)
}

// socketState is the beginning of struct socket_state in bpf/state.h.
type socketState struct {
	identity, readyAt, readAt, readyRing, readDelay uint64
}

// becomesReady runs the program on the socket as the first data since a read,
// and returns what it took note of.
func (f *fakePacket) becomesReady() (socketState, bpf.ReceiveNapiDelays) {
	f.t.Helper()
	sockets := f.programs.collection.Maps[bpf.ReceiveMapSockets]
	if err := f.memory.Put(uint32(0), f.image[:]); err != nil {
		f.t.Fatal(err)
	}
	var before, after reading
	if err := f.programs.read(&before); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.ready.Run(&ebpf.RunOptions{Context: []uint64{f.at}}); err != nil {
		f.t.Fatal(err)
	}
	if err := f.programs.read(&after); err != nil {
		f.t.Fatal(err)
	}
	raw, err := sockets.LookupBytes(f.at)
	if err != nil || len(raw) < 40 {
		f.t.Fatalf("the socket is not followed: %d bytes, %v", len(raw), err)
	}
	if err := sockets.Delete(f.at); err != nil {
		f.t.Fatal(err)
	}
	field := func(i int) uint64 { return binary.NativeEndian.Uint64(raw[8*i:]) }
	grown := after.delays[0]
	for i := range grown.StampedWait.Counts {
		grown.StampedWait.Counts[i] -= before.delays[0].StampedWait.Counts[i]
	}
	grown.Unstamped -= before.delays[0].Unstamped
	grown.Refused -= before.delays[0].Refused
	return socketState{field(0), field(1), field(2), field(3), field(4)}, grown
}

func monotonic(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// outcome says what became of one time stamp.
func outcome(d bpf.ReceiveNapiDelays) string {
	waits := model.Histogram{}
	for i, n := range d.StampedWait.Counts {
		waits.Counts[i] = uint64(n)
	}
	switch {
	case waits.Count() == 1 && d.Unstamped == 0 && d.Refused == 0:
		return "used"
	case waits.Count() == 0 && d.Unstamped == 1 && d.Refused == 0:
		return "absent"
	case waits.Count() == 0 && d.Unstamped == 0 && d.Refused == 1:
		return "refused"
	case waits.Count() == 0 && d.Unstamped == 0 && d.Refused == 0:
		return "not looked for"
	}
	return "counted twice"
}

// clocked lets the programs know the clock of slot 0.
func (f *fakePacket) clocked(t failer, c slotClock) {
	if err := f.programs.setClocks(map[int]slotClock{0: c}); err != nil {
		t.Fatalf("%v", err)
	}
}

type failer interface{ Fatalf(string, ...any) }

func TestTimeStampsOfPackets(t *testing.T) {
	f := newFakePacket(t)
	now := monotonic(t)
	// A device on TAI whose clock is set 37 s ahead of the epoch's.
	phcNow := uint64(1_796_076_544_000_000_000)
	clock := phc.Clock{PHC: phcNow, Monotonic: now, Error: 10 * time.Microsecond}
	valid := slotClock{clock, now + time.Hour}
	past := func(d time.Duration) uint64 {
		// Since the comparison, as much time has passed as on the host.
		return phcNow + uint64(monotonic(t)-now) - uint64(d)
	}
	for _, test := range []struct {
		name  string
		clock slotClock
		set   func()
		want  string
	}{
		{"5 ms ago", valid, func() { f.stamp(past(5 * time.Millisecond)) }, "used"},
		{"none", valid, func() { f.stamp(0) }, "absent"},
		{"2 s ago", valid, func() { f.stamp(past(2 * time.Second)) }, "refused"},
		{"in a second", valid, func() { f.stamp(past(-time.Second)) }, "refused"},
		{"of a clock that starts with the device", valid, func() { f.stamp(123_456_789) }, "refused"},
		{"at the end of time", valid, func() { f.stamp(math.MaxUint64) }, "refused"},
		{"by a clock that was not compared lately", slotClock{clock, now}, func() { f.stamp(past(0)) }, "not looked for"},
		{"in the future, as far as the clock may be wrong", slotClock{phc.Clock{PHC: phcNow, Monotonic: now, Error: time.Minute}, now + time.Hour},
			func() { f.stamp(past(-time.Second)) }, "used"},
		{"of a driver that keeps another form", valid, func() {
			f.stamp(past(time.Millisecond))
			f.put(fakeBuffer+fakeShared, "skb_shared_info.tx_flags", 1<<5)
		}, "absent"},
		{"in an empty queue", valid, func() {
			f.put(fakeBuffer+fakeShared, "skb_shared_info.tx_flags", 0)
			f.put(fakeSock, "sock.sk_receive_queue.qlen", 0)
		}, "absent"},
		{"by an address that is none", valid, func() {
			f.put(fakeSock, "sock.sk_receive_queue.qlen", 1)
			f.put(fakeSKB, "sk_buff.head", 8)
		}, "absent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.clocked(t, test.clock)
			test.set()
			state, delays := f.becomesReady()
			if got := outcome(delays); got != test.want {
				t.Errorf("the stamp was %s, want %s; %+v", got, test.want, state)
			}
			if test.want != "used" && state.readyRing != 0 {
				t.Errorf("a ring wait of %d ns that no poll tells", state.readyRing)
			}
		})
	}
	t.Run("without clocks", func(t *testing.T) {
		if err := f.programs.setClocks(nil); err != nil {
			t.Fatal(err)
		}
		f.put(fakeSKB, "sk_buff.head", f.at+fakeBuffer)
		f.stamp(past(time.Millisecond))
		if _, delays := f.becomesReady(); outcome(delays) != "not looked for" {
			t.Errorf("the stamp was %s", outcome(delays))
		}
	})
}

// The programs and phc.Clock turn the same stamp into the same time.
func TestProgramsReadClocksAsUserSpaceDoes(t *testing.T) {
	f := newFakePacket(t)
	rapid.Check(t, func(r *rapid.T) {
		now := monotonic(t)
		clock := phc.Clock{
			PHC:       rapid.Uint64().Draw(r, "phc"),
			Monotonic: now - time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(r, "compared ago")),
			Rate:      rapid.Int64Range(-1<<32/1000, 1<<32/1000).Draw(r, "rate"),
		}
		// A stamp of a while ago by either clock.
		stamp := clock.PHC + uint64(now-clock.Monotonic) - uint64(rapid.Int64Range(0, int64(time.Second)/2).Draw(r, "waited"))
		if stamp == 0 {
			return
		}
		f.clocked(r, slotClock{clock, now + time.Hour})
		f.stamp(stamp)
		state, delays := f.becomesReady()
		at, ok := clock.At(stamp)
		wait := time.Duration(state.readyAt) - at
		want := "used"
		if !ok || wait < 0 || wait > time.Second {
			want = "refused"
		}
		if got := outcome(delays); got != want {
			r.Fatalf("the stamp of %v ago was %s, want %s", wait, got, want)
		}
		if want == "used" && time.Duration(state.readyRing) != wait {
			r.Fatalf("waited %v in the programs, %v here", time.Duration(state.readyRing), wait)
		}
		if want == "used" && delays.StampedWait.Counts[model.HistogramBucket(wait)] != 1 {
			r.Fatalf("%v is not in its bucket", wait)
		}
	})
}
