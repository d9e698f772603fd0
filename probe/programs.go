package probe

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"autotune/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// signal is what a group of programs observes. A group is attached as a whole
// or not at all, in the order given.
type signal struct {
	name     string
	programs []string
	// lost says what is missing without it.
	lost string
	// substitutes are groups for hosts where the programs cannot be attached,
	// best first.
	substitutes []substitute
}

// substitute is a group of programs that observes a signal in another way.
type substitute struct {
	programs []string
	// where not all hosts have what a program is attached to, and the others
	// do without.
	optional []string
	// lost says what it does not observe; empty when it observes all.
	lost string
}

// The names of signals.
const (
	signalPolls         = "polls"
	signalSoftirqs      = "softirqs"
	signalTimers        = "timers"
	signalSoftirqRaises = "softirq raises"
	signalThreadWakes   = "thread wake-ups"
	signalSocketReads   = "socket reads"
	signalSocketSends   = "socket sends"
	signalEpollReturns  = "epoll returns"
	signalContexts      = "epoll contexts"
	signalHardIRQs      = "hard interrupts"
	// What the softirq programs tell beyond who polls. On a PREEMPT_RT kernel
	// they run in threads that other tasks interrupt.
	signalSoftirqTimes = "softirq times"
	signalCost         = "probe cost"
	signalTaskEnds     = "task ends"
	signalCounters     = "performance counters"
	signalStamps       = "receive time stamps"
)

// signals lists what the receive programs observe, in the order of attaching:
// a poll must find the softirq state right, and an exit must clear what an
// entry sets from the first one on.
func signals() []signal {
	return []signal{
		{
			name:     signalSoftirqs,
			programs: []string{bpf.ReceiveProgSoftirqExit, bpf.ReceiveProgSoftirqEntry},
			lost:     "NET_RX time per CPU and NAPI; polls by an application are counted as softirq polls",
		},
		{
			name:     signalHardIRQs,
			programs: []string{bpf.ReceiveProgIrqHandlerExit, bpf.ReceiveProgIrqHandlerEntry},
			lost:     "number and time of device interrupts per CPU; NET_RX time includes those that interrupt it",
		},
		{
			name:     signalSoftirqRaises,
			programs: []string{bpf.ReceiveProgSoftirqRaise},
			lost:     "ring wait while interrupts are enabled starts at the softirq instead of its raising",
		},
		{
			name:     signalThreadWakes,
			programs: []string{bpf.ReceiveProgSchedWaking},
			lost:     "ring wait of threaded NAPIs while interrupts are enabled",
		},
		{
			name:     signalPolls,
			programs: []string{bpf.ReceiveProgNapiPoll},
			lost:     "polls, packets per poll and ring wait: nothing can be decided",
		},
		{
			name:     signalTimers,
			programs: []string{bpf.ReceiveProgHrtimerStart, bpf.ReceiveProgHrtimerExpireEntry},
			lost:     "arms and fires of the NAPI timers, which polls they start, takeovers between loops, and suspension",
		},
		{
			name:     signalSocketReads,
			programs: []string{bpf.ReceiveProgSkDataReady, bpf.ReceiveProgSockRecvLength},
			lost:     "socket wait, service, server-side delay, and which processes receive",
			substitutes: []substitute{
				{
					programs: []string{bpf.ReceiveProgSockDefReadable, bpf.ReceiveProgInetRecvmsg, bpf.ReceiveProgInet6Recvmsg},
					optional: []string{bpf.ReceiveProgInet6Recvmsg},
				},
				{
					programs: []string{bpf.ReceiveProgTcpProbe, bpf.ReceiveProgTcpRcvSpaceAdjust},
					lost:     "those of UDP: its socket wait, service and server-side delay, and which processes receive it; reads of TCP that only peek count as well",
				},
			},
		},
		{
			name:     signalSocketSends,
			programs: []string{bpf.ReceiveProgSockSendLength},
			lost:     "service; the server-side delay ends at the read, and is counted at the next one",
			substitutes: []substitute{
				{
					programs: []string{bpf.ReceiveProgInetSendmsg, bpf.ReceiveProgInet6Sendmsg},
					optional: []string{bpf.ReceiveProgInet6Sendmsg},
				},
				{
					programs: []string{bpf.ReceiveProgNetDevQueue},
					lost:     "those of UDP; service ends when the first packet of an answer goes to the device, not when the call that sent it returns",
				},
			},
		},
		{
			name:     signalTaskEnds,
			programs: []string{bpf.ReceiveProgSchedProcessFree},
			lost:     "CPU time of processes that receive, in windows in which one ends",
		},
	}
}

// Missing is a probe that does not work on this host.
type Missing struct {
	// Name is the signal, for example "timers".
	Name string
	// Lost says what samples lack because of it.
	Lost string
	// Err is why, with the kernel's own errno.
	Err error
}

// attached is one program in the kernel.
type attached struct {
	name    string
	program *ebpf.Program
	// link is nil while the program is not attached because there is nothing
	// to see; attach then does so again.
	link   io.Closer
	attach func() (io.Closer, error)
}

func (a attached) close() error {
	var err error
	if a.link != nil {
		err = a.link.Close()
	}
	return errors.Join(err, a.program.Close())
}

// need attaches a program, or detaches it where it is not needed.
func (a *attached) need(needed bool) error {
	if needed == (a.link != nil) {
		return nil
	}
	if needed {
		lnk, err := a.attach()
		if err != nil {
			return err
		}
		a.link = lnk
		return nil
	}
	err := a.link.Close()
	a.link = nil
	if err != nil {
		return fmt.Errorf("detach %s: %w", a.name, err)
	}
	return nil
}

// loader loads single programs of the receive collection onto shared maps.
type loader struct {
	direct, raw *ebpf.CollectionSpec
	maps        map[string]*ebpf.Map
	types       *btf.Cache
	// kernelTypes are what the programs are fitted to; nil means those of the
	// running kernel.
	kernelTypes *btf.Spec
	// realtime is whether the kernel is PREEMPT_RT.
	realtime bool
}

// mapSizes are the sizes that depend on the host and the run.
type mapSizes struct {
	napis, cpus int
	// ring is that of the ring of single events, in bytes; 0 loads programs
	// that know of none.
	ring int
}

// newLoader creates the maps. The caller closes the returned collection, which
// owns them.
func newLoader(sizes mapSizes) (*loader, *ebpf.Collection, error) {
	loadDirect, loadRaw := bpf.LoadReceive, bpf.LoadReceiveRaw
	if sizes.ring > 0 {
		loadDirect, loadRaw = bpf.LoadReceiveEvents, bpf.LoadReceiveEventsRaw
	}
	direct, err := loadDirect()
	if err != nil {
		return nil, nil, fmt.Errorf("read the embedded programs: %w", err)
	}
	raw, err := loadRaw()
	if err != nil {
		return nil, nil, fmt.Errorf("read the embedded raw programs: %w", err)
	}
	for _, spec := range []*ebpf.CollectionSpec{direct, raw} {
		for _, name := range []string{bpf.ReceiveMapNapis, bpf.ReceiveMapThreads, bpf.ReceiveMapThreadPids} {
			spec.Maps[name].MaxEntries = uint32(sizes.places())
		}
		spec.Maps[bpf.ReceiveMapDelays].MaxEntries = uint32(sizes.napis)
		spec.Maps[bpf.ReceiveMapCounts].MaxEntries = uint32(sizes.napis * sizes.cpus)
		spec.Maps[bpf.ReceiveMapClocks].MaxEntries = uint32(2 * sizes.napis)
		spec.Maps[bpf.ReceiveMapCpus].MaxEntries = uint32(sizes.cpus)
		if sizes.ring > 0 {
			spec.Maps[bpf.ReceiveEventsMapRing].MaxEntries = uint32(sizes.ring)
		}
	}
	if err := direct.Variables[bpf.ReceiveVarCpuCount].Set(uint32(sizes.cpus)); err != nil {
		return nil, nil, fmt.Errorf("set the number of CPUs: %w", err)
	}
	if err := direct.Variables[bpf.ReceiveVarPlaceMask].Set(uint32(sizes.places() - 1)); err != nil {
		return nil, nil, fmt.Errorf("set the number of places: %w", err)
	}
	l := &loader{direct: direct, raw: raw, types: btf.NewCache()}
	owner := direct.Copy()
	owner.Programs = nil
	collection, err := ebpf.NewCollectionWithOptions(owner, ebpf.CollectionOptions{Cache: l.types})
	if err != nil {
		return nil, nil, fmt.Errorf("create BPF maps: %w", honest(err))
	}
	l.maps = collection.Maps
	return l, collection, nil
}

// load loads one program and returns it; the caller closes it.
func (l *loader) load(spec *ebpf.CollectionSpec, name string) (*ebpf.Program, error) {
	one := spec.Copy()
	program, ok := one.Programs[name]
	if !ok {
		return nil, fmt.Errorf("load %s: no such program", name)
	}
	one.Programs = map[string]*ebpf.ProgramSpec{name: program}
	one.Variables = nil
	collection, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{
		MapReplacements: l.maps,
		Cache:           l.types,
		Programs:        ebpf.ProgramOptions{KernelTypes: l.kernelTypes},
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, honest(err))
	}
	loaded := collection.DetachProgram(name)
	collection.Close()
	return loaded, nil
}

// attachTracepoint attaches a program to its BTF-typed tracepoint, and where
// that is refused its twin to the raw tracepoint.
func (l *loader) attachTracepoint(name string) (attached, error) {
	a, err := l.attachDirect(name)
	if err == nil {
		return a, nil
	}
	b, rawErr := l.attachRaw(name)
	if rawErr != nil {
		return attached{}, errors.Join(err, fmt.Errorf("as raw tracepoint: %w", rawErr))
	}
	return b, nil
}

func (l *loader) attachDirect(name string) (attached, error) {
	program, err := l.load(l.direct, name)
	if err != nil {
		return attached{}, err
	}
	return newAttached(name, program, func() (link.Link, error) {
		return link.AttachTracing(link.TracingOptions{Program: program})
	})
}

func (l *loader) attachRaw(name string) (attached, error) {
	program, err := l.load(l.raw, name)
	if err != nil {
		return attached{}, err
	}
	return newAttached(name, program, func() (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
	})
}

// newAttached attaches a program and takes it over.
func newAttached(name string, program *ebpf.Program, attach func() (link.Link, error)) (attached, error) {
	a := attached{name: name, program: program, attach: func() (io.Closer, error) {
		lnk, err := attach()
		if err != nil {
			return nil, fmt.Errorf("attach %s: %w", name, honest(err))
		}
		return lnk, nil
	}}
	if err := a.need(true); err != nil {
		return attached{}, errors.Join(err, program.Close())
	}
	return a, nil
}

// attachSignal attaches all programs of a signal, or of a substitute, or none.
// It returns what the substitute does not observe; nil when that is nothing.
func (l *loader) attachSignal(s signal) ([]attached, *Missing, error) {
	done, err := l.attachGroup(s.programs, nil)
	if err == nil {
		return done, nil, nil
	}
	errs := []error{err}
	for _, sub := range s.substitutes {
		done, err := l.attachGroup(sub.programs, sub.optional)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if sub.lost == "" {
			return done, nil, nil
		}
		return done, &Missing{Name: s.name, Lost: sub.lost, Err: errors.Join(errs...)}, nil
	}
	return nil, nil, errors.Join(errs...)
}

// attachGroup attaches all programs but optional ones, or none.
func (l *loader) attachGroup(names, optional []string) ([]attached, error) {
	var done []attached
	for _, name := range names {
		a, err := l.attach(name)
		if err != nil && slices.Contains(optional, name) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, closeAll(done))
		}
		done = append(done, a)
	}
	return done, nil
}

// attach attaches a program to its tracepoint, or to the kernel's function.
func (l *loader) attach(name string) (attached, error) {
	if spec := l.direct.Programs[name]; spec != nil && spec.AttachType != ebpf.AttachTraceRawTp {
		return l.attachDirect(name)
	}
	return l.attachTracepoint(name)
}

func closeAll(programs []attached) error {
	var errs []error
	for _, a := range programs {
		if err := a.close(); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", a.name, err))
		}
	}
	return errors.Join(errs...)
}
