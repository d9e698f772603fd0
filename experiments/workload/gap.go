//go:build linux

package workload

import "time"

// GapThreshold is the shortest time of not being run that is logged.
const GapThreshold = 100 * time.Microsecond

// Gap is a span in which a loop that had work to do was not run.
//
// What can be seen: a loop that was busy notices that its clock jumped, and a
// client that slept until a request was due notices that it woke late. What
// cannot: a loop that sleeps in epoll_wait for an event does not know when the
// event came, so a late wake is not visible as such and is part of the latency
// that the client measures.
type Gap struct {
	Start time.Duration `json:"start_ns"`
	Span  time.Duration `json:"span_ns"`
	Cause GapCause      `json:"cause"`
}

// GapCause is why a loop was not run.
type GapCause string

const (
	// GapPreempted means that another thread had the CPU. At the server this
	// can be the NAPI's own thread, which is part of what is measured, so
	// these gaps are logged and exclude nothing.
	GapPreempted GapCause = "preempted"
	// GapStolen means that the loop's thread was not switched out: the machine
	// itself stood still, or an interrupt took that long.
	GapStolen GapCause = "stolen"
	// GapLate means that the client's loop, which has its due times to compare
	// with, came late for whatever reason.
	GapLate GapCause = "late"
)

// listedGaps is how many gaps one interval lists; the rest are counted.
const listedGaps = 64

// Gaps are the gaps of one interval.
type Gaps struct {
	Count uint64        `json:"count"`
	Total time.Duration `json:"total_ns"`
	// Listed are the first 64.
	Listed []Gap `json:"listed"`
}

func newGaps() Gaps { return Gaps{Listed: make([]Gap, 0, listedGaps)} }

func (g *Gaps) add(gap Gap) {
	g.Count++
	g.Total += gap.Span
	if len(g.Listed) < listedGaps {
		g.Listed = append(g.Listed, gap)
	}
}

func (g *Gaps) reset() { *g = Gaps{Listed: g.Listed[:0]} }
