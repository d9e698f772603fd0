package policy

import (
	"math"
	"time"

	"autotune/model"
)

// settings returns the whole settings of a plan.
func (c *greyboxChoice) settings(g *greyboxPlan) model.Settings {
	if g.mode == interrupting {
		return model.Settings{}
	}
	rate := c.f.PacketRate
	if c.f.Suspension.Ready {
		// The load may fall before the next decision.
		rate /= greyboxAheadMost
	}
	s := model.Settings{DeferHardIRQs: deferUntil(g.flush, rate), GROFlushTimeout: g.flush}
	if g.mode == suspending {
		s.IRQSuspendTimeout = suspendWithin(c.f.CostPerPacket)
		if c.f.Suspension.Steered {
			s.BusyPoll = model.BusyPoll{Prefer: true, Budget: pollBudget}
		}
	}
	return s
}

// suspendWithin returns the suspend timeout for an application that takes so long
// per packet: twice the time for the largest batch, two polls of 64 packets. At
// 1 ms and less it ends in the midst of batches near saturation; longer than
// 20 ms a stuck application would hold packets up. It is rounded up to few
// values.
func suspendWithin(perPacket time.Duration) time.Duration {
	const batch = 2 * pollBudget
	for _, t := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond} {
		if 2*batch*perPacket <= t {
			return t
		}
	}
	return 20 * time.Millisecond
}

// deferUntil returns the defer count for a flush timeout: as many empty polls
// as outlast all but one in a thousand of the gaps between pairs of packets (a
// request and the acknowledgement of the response before) that come at random,
// and one more; at least 5, and for no longer than 2 ms. A gap that outlasts
// them puts the next packet under the device's interrupt moderation, and one in
// twenty of those would be what a p99 shows. It is rounded up to few values, so
// that a load that wanders does not change it.
func deferUntil(flush time.Duration, packetRate float64) uint32 {
	const gaps = 2 * 6.9 // -ln(0.001)
	longest := deferFor(flush)
	need := math.Ceil(gaps/(packetRate*flush.Seconds())) + 1
	for _, n := range []uint32{5, 10, 20, 40} {
		if need <= float64(n) {
			return min(n, longest)
		}
	}
	return longest
}
