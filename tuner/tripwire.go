package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// tripwireGuard rolls a move back upon one window, when what it shows cannot
// wait for more, and answers two of them where no move is under way.
type tripwireGuard struct{}

// tripwireMemory is the number of windows for which a host that showed a window
// beyond the tripwire at a setting that was at rest is expected to do so again.
const tripwireMemory = 1000

const (
	// spikeFade is the share of the spikes of late that is forgotten with each
	// window, and spikeMost how many are the setting's doing, although none
	// follows upon another: one in four windows comes to that.
	spikeFade = 1.0 / 8
	spikeMost = 2.2
)

// spikes are the windows of a queue that were beyond the tripwire.
type spikes struct {
	// row counts those in a row, and late those of late at the present settings.
	row  int
	late float64
	// rested tells that the first of the row came at a setting that was at rest,
	// and alone is the turn after the last single one of which that was so.
	rested bool
	alone  int
}

// see takes a window; rested tells that its setting was at rest.
func (s *spikes) see(spike, rested bool, turn int) {
	s.late -= s.late * spikeFade
	if spike {
		if s.row == 0 {
			s.rested = rested
		}
		s.row++
		s.late++
		return
	}
	if s.row == 1 && s.rested {
		s.alone = turn
	}
	s.row = 0
}

// confirmed reports whether it is the setting that makes them.
func (s *spikes) confirmed(row int) bool { return s.row >= row || s.late > spikeMost }

// excused reports whether a host that did so at rest may have done it again.
func (s *spikes) excused(turn int) bool { return s.alone > 0 && turn-s.alone < tripwireMemory }

// dearer reports whether the last window cost more per packet than the mean
// of those before a move, or whether that is not known: a CPU that others fill is
// not the move's fault.
func (t *turn) dearer(before []measure) bool {
	_, mean, _ := moments(before, func(m measure) float64 { return m.logCost })
	cost := measureOf(&t.raw, t.rawPackets).logCost
	return mean == 0 || math.IsNaN(cost) || cost > mean
}

// fled reports whether a trial began where the delay was beyond the limit, and is
// not far above what it was there: going back would make it no less.
func (t *trial) fled(limit, now time.Duration) bool {
	const farAbove = 2
	if len(t.before) == 0 {
		return false
	}
	last := t.before[len(t.before)-1].quantile
	return last > limit && now <= farAbove*last
}

func (tripwireGuard) rule(t *turn, next func() ruling) ruling {
	if t.ordered {
		return next()
	}
	q, o := t.q, t.loop.options.Tripwire
	limit := saturate(o.Factor, t.loop.options.Objective.SLO)
	delay := t.raw.Quantile > limit && t.raw.Delay.Above(limit) >= t.loop.options.Evidence.Above
	full := q.trial != nil && t.raw.Utilisation > o.Utilisation && t.raw.Utilisation > q.trial.utilisation*1.05 && t.dearer(q.trial.before)
	q.spikes.see(delay, q.trial == nil && q.audit == nil && !t.settling, q.turns)
	switch {
	case !delay && !full:
		return next()
	case q.trial != nil && delay && !full && !q.spikes.confirmed(o.Confirm) && q.spikes.excused(q.turns):
		// It may be the host again.
	case q.trial != nil && delay && !full && q.trial.fled(limit, t.raw.Quantile):
		// What the setting before left in the queues is worked off first. The
		// trial sees to it that the delay falls.
	case q.trial != nil:
		why := fmt.Sprintf("p%g %v is above %g times the SLO", 100*t.loop.options.Objective.Quantile, t.raw.Quantile, o.Factor)
		if !delay {
			why = fmt.Sprintf("utilisation rose from %.2f to %.2f", q.trial.utilisation, t.raw.Utilisation)
		}
		return t.revert("tripwire", why)
	case q.wrote && t.active != q.original && delay && q.spikes.confirmed(o.Confirm):
		if s, predicted, ok := t.safest(); ok && !t.thin {
			return ruling{
				settings: s,
				proposed: t.active,
				purpose:  model.PurposeSafety,
				why:      fmt.Sprintf("p%g %v is above %g times the SLO; %v showed %v at this load", 100*t.loop.options.Objective.Quantile, t.raw.Quantile, o.Factor, s, predicted),
				verdict:  model.VerdictApplied,
				guard:    "tripwire",
			}
		}
	}
	return next()
}
