package probe

import (
	"context"
	"fmt"
	"maps"
	"time"

	"autotune/bpf"
	"autotune/model"
)

// memoryKernel is a kernel whose counters a test writes.
type memoryKernel struct {
	size     int
	without  string
	counts   []bpf.ReceiveNapiCounts
	delays   []bpf.ReceiveNapiDelays
	apps     map[uint32]bpf.ReceiveAppWaits
	events   []uint64
	lost     uint64
	spent    time.Duration
	costErr  error
	measured int
	timed    []uint32
	masks    []uint32
	followed map[uint32]int
	threads  map[uint32]bool
	salts    [][2]uint32
	clocks   []map[int]slotClock
	closed   bool
	// singles is nil where no single events are asked for.
	singles eventRing
}

func newMemoryKernel(size int) *memoryKernel {
	return &memoryKernel{
		size:     size,
		counts:   make([]bpf.ReceiveNapiCounts, size),
		delays:   make([]bpf.ReceiveNapiDelays, size),
		apps:     make(map[uint32]bpf.ReceiveAppWaits),
		events:   make([]uint64, 2),
		followed: make(map[uint32]int),
		threads:  make(map[uint32]bool),
	}
}

func (k *memoryKernel) read(r *reading) error {
	r.counts = append(r.counts[:0], k.counts...)
	r.delays = append(r.delays[:0], k.delays...)
	r.cpus = resize(r.cpus, 2)
	r.polls = resize(r.polls, k.size)
	for slot := range r.polls {
		// All on CPU 1.
		r.polls[slot] = []uint32{0, polls(&k.counts[slot])}
	}
	r.events = append(r.events[:0], k.events...)
	r.apps = make(map[uint32]bpf.ReceiveAppWaits)
	for pid, waits := range k.apps {
		r.apps[pid] = waits
	}
	r.lost = k.lost
	return nil
}

func (k *memoryKernel) follow(id uint32, slot int, thread *uint32) error {
	for other, taken := range k.followed {
		if taken == slot && other != id {
			return fmt.Errorf("slot %d of NAPI %d is taken by %d", slot, id, other)
		}
	}
	k.followed[id] = slot
	if thread != nil {
		k.threads[*thread] = true
	}
	return nil
}

func (k *memoryKernel) unfollow(id uint32, thread *uint32) error {
	delete(k.followed, id)
	if thread != nil {
		delete(k.threads, *thread)
	}
	return nil
}

func (k *memoryKernel) rethread(id uint32, slot int, before, after *uint32) error {
	if taken, ok := k.followed[id]; !ok || taken != slot {
		return fmt.Errorf("NAPI %d is not followed in slot %d", id, slot)
	}
	if before != nil {
		delete(k.threads, *before)
	}
	if after != nil {
		k.threads[*after] = true
	}
	return nil
}

func (k *memoryKernel) followSockets(mask, salt, before uint32) error {
	k.masks = append(k.masks, mask)
	k.salts = append(k.salts, [2]uint32{salt, before})
	return nil
}

func (k *memoryKernel) timePolls(mask uint32) error {
	k.timed = append(k.timed, mask)
	return nil
}

func (k *memoryKernel) cost(wait func() error) (time.Duration, error) {
	if k.costErr != nil {
		return 0, k.costErr
	}
	k.measured++
	return k.spent, wait()
}

func (k *memoryKernel) setClocks(clocks map[int]slotClock) error {
	k.clocks = append(k.clocks, maps.Clone(clocks))
	return nil
}

func (k *memoryKernel) forget(pid uint32) error   { delete(k.apps, pid); return nil }
func (k *memoryKernel) slots() int                { return k.size }
func (k *memoryKernel) observes(name string) bool { return name != k.without }
func (k *memoryKernel) close() error              { k.closed = true; return nil }
func (k *memoryKernel) ring() eventRing           { return k.singles }

// poll counts n softirq polls of 2 packets of a followed NAPI.
func (k *memoryKernel) poll(id uint32, n uint64) {
	slot, ok := k.followed[id]
	if !ok {
		return
	}
	k.counts[slot].Work[loopSoftirq*model.WorkBuckets+2] += uint32(n)
	k.counts[slot].SoftirqTimed += n
	k.delays[slot].Delay.Counts[10] += uint32(n)
}

// scripted is an inventory whose answer a test writes.
type scripted struct {
	napis []model.NAPI
	err   error
}

func (s *scripted) NAPIs(context.Context) ([]model.NAPI, error) { return s.napis, s.err }

func testQueue(index int) model.Queue { return model.Queue{Netns: 1, Ifindex: 2, Index: index} }

func testNAPI(index int, id uint32) model.NAPI {
	return model.NAPI{
		Queue:    testQueue(index),
		ID:       id,
		Settings: model.Settings{DeferHardIRQs: uint32(index), GROFlushTimeout: time.Microsecond},
	}
}
