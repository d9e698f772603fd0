package policy

import (
	"fmt"
	"time"

	"autotune/model"
)

// Suspends reports that suspension is proposed where applications are ready.
func (p *AIMD) Suspends() bool { return true }

// floor is the least flush timeout under suspension: plain interrupts would be
// later, where the application drives the queue.
func (p *AIMD) floor() time.Duration { return max(p.options.Min, gridStart) }

// suspend answers a confirmed breach where an application could drive the queue
// and does not: what delays there is not the timeout alone.
func (p *AIMD) suspend(q *aimdQueue, band *aimdBand, f model.Features) model.Decision {
	next := min(p.entry(band, f), p.options.Max)
	if cur := current(f.Active); cur > 0 {
		next = min(next, cur)
	}
	return p.propose(q, f, settingsFor(model.ModeSuspension, next, f), model.PurposeSafety,
		fmt.Sprintf("%s %v is above the SLO %v in %s; an application can drive the queue, with flush %v", quantile(f), f.Quantile, f.Objective.SLO, model.Count(q.breaches, "window"), next))
}

// trySuspension proposes to suspend at the flush timeout of a deferral that is not
// to be changed: the application may have become ready since.
func (p *AIMD) trySuspension(q *aimdQueue, f model.Features) (model.Decision, bool) {
	if !f.Suspension.Ready || f.Active.Mode() != model.ModeDeferral {
		return model.Decision{}, false
	}
	return p.propose(q, f, settingsFor(model.ModeSuspension, current(f.Active), f), model.PurposeCost,
		fmt.Sprintf("an application can drive the queue; trying that at flush %v for less than %v per packet", f.Active.GROFlushTimeout, f.CostPerPacket)), true
}

// suspends reports whether a move goes to suspension from elsewhere.
func (m *aimdMove) suspends() bool {
	return m.at.Mode() == model.ModeSuspension && m.anchor.Mode() != model.ModeSuspension
}

// possible returns what a remembered setting comes to now: without suspension
// where the application that it was confirmed with is no longer ready. Asked for
// as it was it would be refused in each window, and nothing else be tried.
func possible(s model.Settings, f model.Features) model.Settings {
	if s.Mode() != model.ModeSuspension || f.Suspension.Ready || s == f.Active {
		return s
	}
	s.IRQSuspendTimeout, s.BusyPoll = 0, model.BusyPoll{}
	return s
}
