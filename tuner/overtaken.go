package tuner

import (
	"fmt"

	"autotune/model"
)

// madeFor returns the load that a move is made for, in packets per second: what
// its policy says, or else that of the windows it was decided upon.
func (t *turn) madeFor(r ruling) float64 {
	if r.own && r.forecast != nil && r.forecast.PacketRate > 0 {
		return r.forecast.PacketRate
	}
	return t.merged.PacketRate
}

// overtaken reports whether load has risen beyond what the move was made for, and
// the SLO is broken, in the very window in which the move settles. No comparison
// can come of such a window, but its settings were in place for all of it, or all
// but the moment that the write took: a policy that moves for safety need not wait
// for another.
func (t *turn) overtaken() bool {
	made := t.q.madeFor
	if !t.settling || !(made > 0) || t.raw.PacketRate <= made || t.raw.Quantile <= t.loop.options.Objective.SLO ||
		t.raw.Delay == nil || t.raw.Delay.Count() < t.loop.need {
		return false
	}
	return !t.similarTo(measure{rate: made, packets: t.rawPackets}, t.raw.PacketRate, t.rawPackets)
}

// outrun lets a policy's move for safety end a trial that load has outrun before it
// measured anything: back would be for what load was.
func (t *turn) outrun(r ruling) ruling {
	q := t.q
	if q.trial == nil || !t.urgent || !r.own || !r.moves() {
		return r
	}
	tr := q.trial
	q.endTrial(model.VerdictAborted, "trial", t.active)
	t.conclude(tr, model.VerdictAborted, fmt.Sprintf("load rose to %.0f packets/s while %v was settling", t.raw.PacketRate, t.active))
	return t.admit(r)
}
