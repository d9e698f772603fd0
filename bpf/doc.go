// Package bpf owns the programs that run in the kernel: their C source (that of
// the receive path is receive.bpf.c and what it includes: the maps in state.h,
// then a file per subject), the hand-kept types that they read (types.h), the
// bucket rule that they share with the model package (hist.h), and the
// generated Go that embeds the compiled objects. The objects are committed, so
// that a plain go build needs no compiler for BPF.
//
// The central types are [ReceiveNapiCounts] and [ReceiveNapiDelays]: what the
// programs count for one NAPI instance. The collection of [LoadReceive] watches
// the receive path by BTF-typed tracepoints; that of [LoadReceiveRaw] is the
// same source for raw tracepoints, with the same maps, for hosts that refuse
// the former. [LoadReceiveEvents] and [LoadReceiveEventsRaw] are the same two
// once more with a ring of single events (events.h), for the runs that ask for
// them: in the others nothing of it is there to be paid. [LoadContexts] lists
// epoll contexts, and [LoadSelftest] is for tests.
//
// Whoever loads a collection sets the sizes of its maps, owns what it loads and
// closes it; nothing here keeps state. The package may import
// github.com/cilium/ebpf and nothing of autotune.
package bpf
