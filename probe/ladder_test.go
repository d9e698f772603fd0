package probe

import (
	"errors"
	"slices"
	"testing"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// variant opens a source as on a host where change was done to the loader.
func (b *bed) variant(tb testing.TB, change func(*loader)) (*Source, *programs, error) {
	tb.Helper()
	possible, err := readPossibleCPUs(sysfsRoot)
	if err != nil {
		tb.Fatal(err)
	}
	sizes := mapSizes{napis: 64, cpus: cpuSlots(possible)}
	l, collection, err := newLoader(sizes)
	if err != nil {
		tb.Fatal(err)
	}
	p := newPrograms(collection, sizes)
	tb.Cleanup(func() {
		if err := p.close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	change(l)
	if err := p.attachAll(l, true); err != nil {
		return nil, p, err
	}
	napis, err := b.NAPIs(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	options, err := Options{Inventory: b, Interval: liveInterval, Budget: -1}.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	s, err := newSource(tb.Context(), p, options, napis, nil, boottime)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.ticker.Stop)
	return s, p, nil
}

// without removes programs, as where the kernel has no such tracepoint.
func without(names ...string) func(*loader) {
	return func(l *loader) {
		for _, name := range names {
			delete(l.direct.Programs, name)
			delete(l.raw.Programs, name)
		}
	}
}

// inLockdown removes what a kernel in lockdown (confidentiality) refuses: the
// programs that call bpf_probe_read_kernel (bpf_base_func_proto in
// kernel/bpf/helpers.c, LOCKDOWN_BPF_READ_KERNEL).
func inLockdown(l *loader) {
	for _, spec := range []*ebpf.CollectionSpec{l.direct, l.raw} {
		for name, program := range spec.Programs {
			if slices.ContainsFunc(program.Instructions, func(ins asm.Instruction) bool {
				return ins.IsBuiltinCall() && (ins.Constant == int64(asm.FnProbeReadKernel) || ins.Constant == int64(asm.FnProbeReadKernelStr))
			}) {
				delete(spec.Programs, name)
			}
		}
	}
}

// onKernelTypes changes the types that the programs are fitted to.
func onKernelTypes(tb testing.TB, change func(*btf.Spec)) func(*loader) {
	return func(l *loader) {
		kernel, err := btf.LoadKernelSpec()
		if err != nil {
			tb.Fatal(err)
		}
		l.kernelTypes = kernel.Copy()
		change(l.kernelTypes)
	}
}

// rename gives a member of a structure another name.
func rename(tb testing.TB, structure, member string) func(*btf.Spec) {
	return alter(tb, structure, member, func(m *btf.Member) { m.Name += "_renamed" })
}

// retype gives a member of a structure a type that cannot be read as a number.
func retype(tb testing.TB, structure, member string) func(*btf.Spec) {
	return alter(tb, structure, member, func(m *btf.Member) {
		m.Type = &btf.Struct{Name: "another", Size: 8, Members: []btf.Member{{Name: "a", Type: &btf.Int{Name: "long", Size: 8}}}}
	})
}

func alter(tb testing.TB, structure, member string, change func(*btf.Member)) func(*btf.Spec) {
	return func(spec *btf.Spec) {
		var s *btf.Struct
		if err := spec.TypeByName(structure, &s); err != nil {
			tb.Fatal(err)
		}
		i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == member })
		if i < 0 {
			tb.Fatalf("%s has no member %s", structure, member)
		}
		change(&s.Members[i])
	}
}

// Each rung of the ladder: what is gone is nil and named, and the rest works.
func TestEachProbeIsMissedByNameAlone(t *testing.T) {
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.set(t, deferral(500_000))
	b.serve(t, nil)
	b.phase(t, "load", 3000)
	type parts struct{ timers, sockets, sends, irqs, softirqs, waits bool }
	everything := parts{true, true, true, true, true, true}
	lacking := func(change func(*parts)) parts {
		p := everything
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name    string
		change  func(*loader)
		missing []string
		want    parts
	}{
		{"all", func(*loader) {}, nil, everything},
		{"no BTF-typed tracepoints", func(l *loader) {
			for name := range l.direct.Programs {
				if _, ok := l.raw.Programs[name]; ok && name != bpf.ReceiveProgEpollWait && name != bpf.ReceiveProgEpollPwait && name != bpf.ReceiveProgEpollPwait2 {
					delete(l.direct.Programs, name)
				}
			}
		}, nil, everything},
		{
			"no tracepoints of sockets or TCP, and no functions", without(append(append(socketTracepoints(), socketFunctions()...), bpf.ReceiveProgTcpProbe, bpf.ReceiveProgNetDevQueue)...),
			[]string{signalSocketReads, signalSocketSends}, lacking(func(p *parts) { p.sockets, p.sends, p.waits = false, false, false }),
		},
		{
			"only TCP's tracepoints", without(append(socketTracepoints(), socketFunctions()...)...),
			[]string{signalSocketReads, signalSocketSends}, everything,
		},
		{
			"nothing tells of sends", without(bpf.ReceiveProgSockSendLength, bpf.ReceiveProgInetSendmsg, bpf.ReceiveProgNetDevQueue),
			[]string{signalSocketSends}, lacking(func(p *parts) { p.sends = false }),
		},
		{
			"no system call tracepoints", without(bpf.ReceiveProgEpollWait, bpf.ReceiveProgEpollPwait, bpf.ReceiveProgEpollPwait2),
			[]string{signalEpollReturns}, lacking(func(p *parts) { p.waits = false }),
		},
		{
			"no tracepoint of ends", without(bpf.ReceiveProgSchedProcessFree),
			[]string{signalTaskEnds}, everything,
		},
		{
			"no timer tracepoints", without(bpf.ReceiveProgHrtimerStart),
			[]string{signalTimers}, lacking(func(p *parts) { p.timers = false }),
		},
		{
			"no interrupt tracepoints", without(bpf.ReceiveProgIrqHandlerEntry),
			[]string{signalHardIRQs}, lacking(func(p *parts) { p.irqs = false }),
		},
		{
			"lockdown", inLockdown,
			[]string{signalTimers, signalEpollReturns}, lacking(func(p *parts) { p.timers, p.waits = false, false }),
		},
		{
			"PREEMPT_RT", func(l *loader) { l.realtime = true },
			[]string{signalSoftirqTimes}, lacking(func(p *parts) { p.softirqs = false }),
		},
		{"a kernel before irq-suspend-timeout", onKernelTypes(t, rename(t, "napi_struct", "irq_suspend_timeout")), nil, everything},
		{"a suspend timeout of another type", onKernelTypes(t, retype(t, "napi_struct", "irq_suspend_timeout")), nil, everything},
		{"a kernel before settings per NAPI", onKernelTypes(t, func(spec *btf.Spec) {
			rename(t, "napi_struct", "gro_flush_timeout")(spec)
			rename(t, "napi_struct", "defer_hard_irqs")(spec)
		}), nil, everything},
		{"a timer without the time of its end", onKernelTypes(t, rename(t, "hrtimer", "_softexpires")), nil, everything},
		{
			"a timer without its function", onKernelTypes(t, rename(t, "hrtimer", "function")),
			[]string{signalTimers}, lacking(func(p *parts) { p.timers = false }),
		},
		{
			"sockets without a NAPI", onKernelTypes(t, rename(t, "sock", "sk_napi_id")),
			[]string{signalSocketReads, signalSocketSends}, lacking(func(p *parts) { p.sockets, p.sends, p.waits = false, false, false }),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.Attempt(t, func(t testing.TB) {
				s, p, err := b.variant(t, tt.change)
				if err != nil {
					t.Fatal(err)
				}
				var missing []string
				for _, m := range p.missing {
					missing = append(missing, m.Name)
					if m.Lost == "" || m.Err == nil {
						t.Errorf("%s is missing without a reason: %+v", m.Name, m)
					}
				}
				if !slices.Equal(missing, tt.missing) {
					t.Errorf("missing %v, want %v", p.missing, tt.missing)
				}
				next(t, s)
				next(t, s)
				sample := next(t, s)
				q, c := sample.Queues[0], sample.CPUs[0]
				if q.Polls().Packets == 0 || q.RingWait.Count() == 0 {
					t.Errorf("%+v polls and %d ring waits, want some", q.Polls(), q.RingWait.Count())
				}
				got := parts{
					timers:   q.Timer != nil && q.TimerThread != nil && q.Takeovers != nil && q.Suspension != nil,
					sockets:  q.SocketWait != nil && q.Delay != nil && sample.Latency != nil && sample.Apps != nil,
					sends:    q.Service != nil,
					irqs:     c.HardIRQs != nil && c.HardIRQ != nil,
					softirqs: c.NetRX != nil && q.SoftirqTime != nil,
					waits:    len(sample.Apps) > 0 && sample.Apps[0].Waits != nil && sample.Apps[0].Full != nil,
				}
				if got != tt.want {
					t.Errorf("observed %+v, want %+v", got, tt.want)
				}
				if got.timers && q.Timer.Fires == 0 {
					t.Error("no timer fired")
				}
				if got.sockets && q.Delay.Count() == 0 {
					t.Error("no delay")
				}
			})
		})
	}
}

// What no fall-back replaces leaves nothing to decide upon.
func TestWithoutTypesOrPollsNothingIsOpened(t *testing.T) {
	b := newBed(t, testbed.Options{})
	for name, change := range map[string]func(*loader){
		"no polls": without(bpf.ReceiveProgNapiPoll),
		"no BTF": func(l *loader) {
			empty, err := btf.NewBuilder([]btf.Type{&btf.Int{Name: "int", Size: 4}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if l.kernelTypes, err = empty.Spec(); err != nil {
				t.Fatal(err)
			}
		},
		"a NAPI without an ID":              onKernelTypes(t, rename(t, "napi_struct", "napi_id")),
		"a NAPI with an ID of another type": onKernelTypes(t, retype(t, "napi_struct", "napi_id")),
		"a NAPI with an unreadable device":  onKernelTypes(t, retype(t, "napi_struct", "dev")),
	} {
		if _, _, err := b.variant(t, change); !errors.Is(err, ErrNoPolls) {
			t.Errorf("%s: error %v, want %v", name, err, ErrNoPolls)
		}
	}
}

// The context listing of /proc finds the contexts that the iterator finds.
func TestProcListsTheSameContexts(t *testing.T) {
	b := newBed(t, testbed.Options{})
	b.serve(t, nil)
	loaded, err := loadContexts()
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.close()
	pid := uint32(b.server.PID())
	all, err := loaded.list(nil)
	if err != nil {
		t.Fatal(err)
	}
	const exited = 1 << 30
	listed, err := procContexts{"/proc"}.list([]uint32{pid, exited})
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(contexts []model.EpollContext) (fds []int) {
		for _, c := range contexts {
			fds = append(fds, c.FD)
		}
		return fds
	}
	want, got := numbers(all[pid]), numbers(listed[pid])
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	for _, c := range listed[pid] {
		if !c.Opaque {
			t.Errorf("context %+v says that it knows its parameters", c)
		}
	}
	if len(listed[exited]) != 0 {
		t.Errorf("a process that has exited has %v", listed[exited])
	}
}
