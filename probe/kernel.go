package probe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"autotune/bpf"

	"github.com/cilium/ebpf"
)

// reading is everything the programs have counted since they were loaded.
// Counters only grow.
type reading struct {
	// counts are by slot, summed over CPUs; delays are by slot.
	counts []bpf.ReceiveNapiCounts
	delays []bpf.ReceiveNapiDelays
	// cpus are by CPU number, and so are events: what the programs counted
	// there, as a measure of where they ran.
	cpus []bpf.ReceiveCpuState
	// polls are those of each slot by CPU, modulo 2^32.
	polls  [][]uint32
	events []uint64
	// apps are by process ID.
	apps map[uint32]bpf.ReceiveAppWaits
	// lost counts failed map updates, and programs that did not run because
	// they were running already. Epoll returns are not among them: the kernel
	// skips a perf event's program whenever any map operation was preempted on
	// the CPU, and no decision rests on their number.
	lost uint64
}

// kernel is what a [Source] needs of the loaded programs.
type kernel interface {
	// read fills r, reusing what it holds.
	read(r *reading) error
	// follow starts counting a NAPI in a slot, and unfollow ends it.
	follow(id uint32, slot int, thread *uint32) error
	unfollow(id uint32, thread *uint32) error
	// rethread tells that a NAPI that is followed has another thread now, or
	// none, and goes on counting.
	rethread(id uint32, slot int, before, after *uint32) error
	// followSockets selects the sockets whose hash under either salt is 0
	// under the mask.
	followSockets(mask, salt, before uint32) error
	// timePolls selects the polls and interrupts that are timed: those whose
	// random number is 0 under the mask.
	timePolls(mask uint32) error
	// cost returns the CPU time per second, over all CPUs, that the programs
	// take while wait runs.
	cost(wait func() error) (time.Duration, error)
	// setClocks makes the time stamps of packets be read by these clocks, by
	// slot, and by no others.
	setClocks(clocks map[int]slotClock) error
	// forget drops a process that has exited.
	forget(pid uint32) error
	// slots is the number of NAPIs that can be followed at once.
	slots() int
	// observes tells whether a signal is attached.
	observes(signal string) bool
	// ring is where single events come from; nil when they were not asked for.
	ring() eventRing
	close() error
}

// programs are the receive programs in the kernel.
type programs struct {
	collection *ebpf.Collection
	attached   []attached
	signals    map[string]bool
	missing    []Missing
	sizes      mapSizes
	// used is one more than the highest slot that was ever followed: what
	// lies above is not read.
	used int

	// clocksInUse is which of each two clocks the programs use, from 1 on; 0 is
	// none.
	clocksInUse uint32

	// Where the programs find the NAPIs that are followed, and their threads.
	napis, threads places

	// events is nil without a ring.
	events *ringReader

	// Buffers for batch reads.
	keys, appKeys []uint32
	perCPU        []bpf.ReceiveNapiCounts
	appValues     []bpf.ReceiveAppWaits
}

// appCapacity is max_entries of the apps map in bpf/state.h.
const appCapacity = 1024

// loadPrograms loads and attaches every signal that the host allows.
func loadPrograms(sizes mapSizes, options Options) (*programs, error) {
	l, collection, err := newLoader(sizes)
	if err != nil {
		return nil, err
	}
	p := newPrograms(collection, sizes)
	if l.realtime, err = isRealtime(sysfsRoot); err == nil {
		err = p.describeHost(l, options.Procfs)
	}
	if err == nil && sizes.ring > 0 {
		p.events, err = newRingReader(collection)
	}
	if err == nil {
		err = p.attachAll(l, options.EpollEvents)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// newPrograms takes over a collection that holds the maps.
func newPrograms(collection *ebpf.Collection, sizes mapSizes) *programs {
	return &programs{
		collection: collection,
		signals:    make(map[string]bool),
		sizes:      sizes,
		napis:      make(places, sizes.places()),
		threads:    make(places, sizes.places()),
		appKeys:    make([]uint32, appCapacity),
		perCPU:     make([]bpf.ReceiveNapiCounts, sizes.napis*sizes.cpus),
		appValues:  make([]bpf.ReceiveAppWaits, appCapacity),
	}
}

func (p *programs) attachAll(l *loader, epollEvents bool) error {
	for _, s := range signals() {
		done, lacking, err := l.attachSignal(s)
		p.note(s.name, s.lost, done, err)
		if lacking != nil {
			p.missing = append(p.missing, *lacking)
		}
		if s.name == signalSoftirqs && err == nil {
			if err := p.set(bpf.ReceiveVarSoftirqKnown, 1); err != nil {
				return err
			}
		}
	}
	if epollEvents {
		done, err := attachEpollReturns(l)
		p.note(signalEpollReturns, epollReturnsLost, done, err)
	}
	p.noteTimes(l.realtime)
	if !p.signals[signalPolls] {
		return fmt.Errorf("%w: %w", ErrNoPolls, p.cause(signalPolls))
	}
	return nil
}

func (p *programs) note(name, lost string, done []attached, err error) {
	if err != nil {
		p.missing = append(p.missing, Missing{Name: name, Lost: lost, Err: err})
		return
	}
	p.attached = append(p.attached, done...)
	p.signals[name] = true
}

func (p *programs) cause(signal string) error {
	for _, m := range p.missing {
		if m.Name == signal {
			return m.Err
		}
	}
	return nil
}

func (p *programs) set(variable string, value uint32) error {
	if err := p.collection.Variables[variable].Set(value); err != nil {
		return fmt.Errorf("set %s: %w", variable, err)
	}
	return nil
}

func (p *programs) slots() int { return p.sizes.napis }

func (p *programs) observes(signal string) bool { return p.signals[signal] }

func (p *programs) follow(id uint32, slot int, thread *uint32) error {
	p.used = max(p.used, slot+1)
	state := bpf.ReceiveNapiState{Slot: uint32(slot)}
	if err := errors.Join(p.followThread(&state, id, thread), p.attachWakes()); err != nil {
		return err
	}
	at, err := p.napis.take(id)
	if err != nil {
		return fmt.Errorf("follow NAPI %d: %w", id, err)
	}
	// The programs find the state by its ID, so all else comes first.
	for _, state.Id = range []uint32{0, id} {
		if err := p.collection.Maps[bpf.ReceiveMapNapis].Put(uint32(at), state); err != nil {
			return fmt.Errorf("follow NAPI %d: %w", id, err)
		}
	}
	return nil
}

// followThread makes the programs note when a NAPI's thread is woken, and the
// state name it.
func (p *programs) followThread(state *bpf.ReceiveNapiState, id uint32, thread *uint32) error {
	if thread == nil || *thread == 0 {
		return nil
	}
	at, err := p.threads.take(*thread)
	if err == nil {
		err = p.collection.Maps[bpf.ReceiveMapThreads].Put(uint32(at), bpf.ReceiveThreadState{})
	}
	if err == nil {
		err = p.collection.Maps[bpf.ReceiveMapThreadPids].Put(uint32(at), *thread)
	}
	if err != nil {
		return fmt.Errorf("follow thread %d of NAPI %d: %w", *thread, id, err)
	}
	state.Threaded, state.Thread = 1, uint32(at)
	return nil
}

func (p *programs) unfollow(id uint32, thread *uint32) error {
	var err error
	if at, ok := p.napis.find(id); ok {
		p.napis[at] = 0
		if err = p.collection.Maps[bpf.ReceiveMapNapis].Put(uint32(at), bpf.ReceiveNapiState{}); err != nil {
			err = fmt.Errorf("stop following NAPI %d: %w", id, err)
		}
	}
	return errors.Join(err, p.unfollowThread(id, thread), p.attachWakes())
}

// attachWakes attaches the program that sees every wake-up of the host only
// while a NAPI has a thread.
func (p *programs) attachWakes() error {
	needed := slices.ContainsFunc(p.threads, func(pid uint32) bool { return pid != 0 })
	for i := range p.attached {
		if p.attached[i].name == bpf.ReceiveProgSchedWaking {
			return p.attached[i].need(needed)
		}
	}
	return nil
}

func (p *programs) unfollowThread(id uint32, thread *uint32) error {
	if thread == nil || *thread == 0 {
		return nil
	}
	at, ok := p.threads.find(*thread)
	if !ok {
		return nil
	}
	p.threads[at] = 0
	if err := p.collection.Maps[bpf.ReceiveMapThreadPids].Put(uint32(at), uint32(0)); err != nil {
		return fmt.Errorf("stop following thread %d of NAPI %d: %w", *thread, id, err)
	}
	return nil
}

// rethread implements [kernel]. The state keeps its ID at all times: a poll that
// did not find it would be missing from the counts.
func (p *programs) rethread(id uint32, slot int, before, after *uint32) error {
	at, ok := p.napis.find(id)
	if !ok {
		return fmt.Errorf("NAPI %d is not followed", id)
	}
	if err := p.unfollowThread(id, before); err != nil {
		return err
	}
	state := bpf.ReceiveNapiState{Id: id, Slot: uint32(slot)}
	if err := errors.Join(p.followThread(&state, id, after), p.attachWakes()); err != nil {
		return err
	}
	if err := p.collection.Maps[bpf.ReceiveMapNapis].Put(uint32(at), state); err != nil {
		return fmt.Errorf("follow NAPI %d: %w", id, err)
	}
	return nil
}

func (p *programs) followSockets(mask, salt, before uint32) error {
	return errors.Join(
		p.set(bpf.ReceiveVarSampleSaltBefore, before),
		p.set(bpf.ReceiveVarSampleSalt, salt),
		p.set(bpf.ReceiveVarSampleMask, mask),
	)
}

func (p *programs) timePolls(mask uint32) error { return p.set(bpf.ReceiveVarPollMask, mask) }

func (p *programs) forget(pid uint32) error {
	err := p.collection.Maps[bpf.ReceiveMapApps].Delete(pid)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget process %d: %w", pid, err)
	}
	return nil
}

func (p *programs) read(r *reading) error {
	r.counts = resize(r.counts, p.sizes.napis)
	r.delays = resize(r.delays, p.sizes.napis)
	r.cpus = resize(r.cpus, p.sizes.cpus)
	r.events = resize(r.events, p.sizes.cpus)
	r.polls = resize(r.polls, p.sizes.napis)
	clear(r.events)
	if r.apps == nil {
		r.apps = make(map[uint32]bpf.ReceiveAppWaits)
	}
	if err := readArray(p.collection.Maps[bpf.ReceiveMapCounts], &p.keys, p.perCPU[:p.used*p.sizes.cpus]); err != nil {
		return err
	}
	for slot := range p.used {
		sum := &r.counts[slot]
		*sum = bpf.ReceiveNapiCounts{}
		r.polls[slot] = resize(r.polls[slot], p.sizes.cpus)
		for cpu := range p.sizes.cpus {
			add := &p.perCPU[slot*p.sizes.cpus+cpu]
			addCounts(sum, add)
			r.polls[slot][cpu] = polls(add)
			r.events[cpu] += uint64(r.polls[slot][cpu]) + add.Arms + add.Fires
		}
	}
	if err := readArray(p.collection.Maps[bpf.ReceiveMapDelays], &p.keys, r.delays[:p.used]); err != nil {
		return err
	}
	if err := readArray(p.collection.Maps[bpf.ReceiveMapCpus], &p.keys, r.cpus); err != nil {
		return err
	}
	if err := p.readApps(r); err != nil {
		return err
	}
	return p.readLost(r)
}

func (p *programs) readApps(r *reading) error {
	clear(r.apps)
	m := p.collection.Maps[bpf.ReceiveMapApps]
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, p.appKeys, p.appValues, nil)
		for i := range n {
			r.apps[p.appKeys[i]] = p.appValues[i]
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", bpf.ReceiveMapApps, err)
		}
	}
}

func (p *programs) readLost(r *reading) error {
	if err := p.collection.Variables[bpf.ReceiveVarLost].Get(&r.lost); err != nil {
		return fmt.Errorf("read the count of lost events: %w", err)
	}
	for _, a := range p.attached {
		if _, ok := a.link.(perfTracepoint); ok {
			continue
		}
		stats, err := a.program.Stats()
		if err != nil {
			return fmt.Errorf("read the statistics of %s: %w", a.name, err)
		}
		r.lost += stats.RecursionMisses
	}
	return nil
}

func (p *programs) ring() eventRing {
	if p.events == nil {
		return nil
	}
	return p.events
}

func (p *programs) close() error {
	err := closeAll(p.attached)
	if p.events != nil {
		err = errors.Join(err, p.events.close())
	}
	p.collection.Close()
	return err
}

// readArray reads a whole array map into values.
func readArray[T any](m *ebpf.Map, keys *[]uint32, values []T) error {
	*keys = resize(*keys, len(values))
	var cursor ebpf.MapBatchCursor
	for done := 0; done < len(values); {
		n, err := m.BatchLookup(&cursor, (*keys)[done:], values[done:], nil)
		done += n
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("read map %v: %w", m, err)
		}
	}
	return nil
}

func resize[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
