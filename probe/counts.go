package probe

import "autotune/bpf"

// addCounts adds what one CPU counted.
func addCounts(sum, add *bpf.ReceiveNapiCounts) {
	for i := range sum.Loops {
		sum.Loops[i].Polls += add.Loops[i].Polls
		sum.Loops[i].Packets += add.Loops[i].Packets
		sum.Loops[i].Empty += add.Loops[i].Empty
		sum.Loops[i].Full += add.Loops[i].Full
	}
	for i := range sum.Work {
		sum.Work[i] += add.Work[i]
	}
	for i := range sum.Takeovers {
		sum.Takeovers[i] += add.Takeovers[i]
	}
	sum.Arms += add.Arms
	sum.Fires += add.Fires
	sum.Netpoll += add.Netpoll
	sum.Unmasked += add.Unmasked
	sum.SoftirqTime += add.SoftirqTime
	sum.SoftirqTimed += add.SoftirqTimed
	sum.Suspended += add.Suspended
	sum.Resumed += add.Resumed
	sum.Expired += add.Expired
	sum.Flushed += add.Flushed
}

// polls returns the polls of all loops.
func polls(counts *bpf.ReceiveNapiCounts) uint64 {
	var n uint64
	for i := range counts.Loops {
		n += counts.Loops[i].Polls
	}
	return n
}
