// Package probe owns the live source of samples: it loads and attaches the
// programs of package bpf, reads their maps once per window, adds what /proc
// says, and answers what works on this host.
//
// The central type is [Source]. [Open] loads the programs one by one and takes
// a first baseline; each [Source.Next] waits for the end of a window and
// returns what happened in it; [Source.Close] detaches and unloads everything.
// A program that cannot be loaded is named by [Source.Missing] together with
// what is lost with it, and what it would have counted is nil in every sample.
// Where single events are asked for ([EventOptions]), other programs are loaded,
// which tell of them in a ring, and [Source.Events] has those of the window.
// Nothing is pinned: a process that dies takes its programs with it.
//
// What the programs missed is counted and reported as lost. Where the primary
// way of observing something does not work, a substitute is attached; what that
// does not see is named by [Source.Missing] as well.
//
// Where [Options] names hardware clocks, the source compares them with the host's
// once per window (package phc), so that the programs can read time stamps of
// packets.
//
// [Check] tries the same programs for a report to people.
//
// The package may import model, bpf, those below it, github.com/cilium/ebpf and
// github.com/prometheus/procfs. It writes nothing to the kernel's network
// settings.
package probe
