package tuner

import (
	"fmt"
	"math"

	"autotune/model"
)

// tripwireGuard rolls a move back upon one window, when what it shows cannot
// wait for more.
type tripwireGuard struct{}

// tripwireMemory is the number of windows for which a host that showed a window
// beyond the tripwire at a setting that was at rest is expected to do so again.
const tripwireMemory = 1000

// dearer reports whether the last window cost more per packet than the mean
// before the trial, or whether that is not known: a CPU that others fill is not
// the move's fault.
func (t *turn) dearer() bool {
	_, mean, _ := moments(t.q.trial.before, func(m measure) float64 { return m.logCost })
	cost := measureOf(&t.raw, t.rawPackets).logCost
	return mean == 0 || math.IsNaN(cost) || cost > mean
}

func (tripwireGuard) rule(t *turn, next func() ruling) ruling {
	if t.ordered {
		return next()
	}
	q, o := t.q, t.loop.options.Tripwire
	limit := saturate(o.Factor, t.loop.options.Objective.SLO)
	delay := t.raw.Quantile > limit && t.raw.Delay.Above(limit) >= t.loop.options.Evidence.Above
	full := q.trial != nil && t.raw.Utilisation > o.Utilisation && t.raw.Utilisation > q.trial.utilisation*1.05 && t.dearer()
	if delay {
		q.spikes++
	} else {
		if q.spikes == 1 && q.trial == nil {
			q.alone = q.turns
		}
		q.spikes = 0
	}
	switch {
	case !delay && !full:
		return next()
	case q.trial != nil && delay && !full && q.spikes < o.Confirm && q.alone > 0 && q.turns-q.alone < tripwireMemory:
		// It may be the host again.
	case q.trial != nil:
		why := fmt.Sprintf("p%g %v is above %g times the SLO", 100*t.loop.options.Objective.Quantile, t.raw.Quantile, o.Factor)
		if !delay {
			why = fmt.Sprintf("utilisation rose from %.2f to %.2f", q.trial.utilisation, t.raw.Utilisation)
		}
		return t.revert("tripwire", why)
	case q.wrote && t.active != q.original && q.spikes >= o.Confirm:
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
