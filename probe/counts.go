package probe

import (
	"autotune/bpf"
	"autotune/model"
)

// addCounts adds what one CPU counted.
func addCounts(sum, add *bpf.ReceiveNapiCounts) {
	for i := range sum.Work {
		sum.Work[i] += add.Work[i]
	}
	for i := range sum.Full {
		sum.Full[i] += add.Full[i]
		sum.Excess[i] += add.Excess[i]
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

// polls returns the polls of all loops, modulo 2^32.
func polls(counts *bpf.ReceiveNapiCounts) uint32 {
	var n uint32
	for _, of := range counts.Work {
		n += of
	}
	return n
}

// The values of enum loop in bpf/state.h.
const (
	loopSoftirq     = 0
	loopThread      = 1
	loopApplication = 2
	// loopTimer is added to the first two.
	loopTimer = 3
	loops     = 5
)

// loopGrowth returns what one loop polled between two readings, and adds it to
// the polls by packets.
func loopGrowth(last, now *bpf.ReceiveNapiCounts, loop int, work *[model.WorkBuckets]uint64) model.PollCounts {
	c := model.PollCounts{
		Packets: uint64(now.Excess[loop] - last.Excess[loop]),
		Full:    uint64(now.Full[loop] - last.Full[loop]),
	}
	for packets := range model.WorkBuckets {
		at := loop*model.WorkBuckets + packets
		n := uint64(now.Work[at] - last.Work[at])
		work[packets] += n
		c.Polls += n
		c.Packets += n * uint64(packets)
		if packets == 0 {
			c.Empty = n
		}
	}
	return c
}
