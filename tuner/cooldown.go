package tuner

import (
	"fmt"

	"autotune/model"
)

// cooldownGuard spaces the moves that are not urgent, and lets only few queues
// be on trial at once.
type cooldownGuard struct{}

func (cooldownGuard) rule(t *turn, next func() ruling) ruling {
	mine := t.q.trial != nil && t.q.trial.purpose != model.PurposeSafety
	r := next()
	if !r.seeks() || r.verdict != model.VerdictApplied || r.trial == trialExtend {
		return r
	}
	q, o := t.q, t.loop.options.Cooldown
	switch since := q.turns - q.trialEnd; {
	case r.trial != trialGrant && q.trialEnd > 0 && since <= o.Windows:
		return t.deny(r, model.VerdictHeld, "cooldown", fmt.Sprintf("%d of %s since the last trial; %s", since, model.Count(o.Windows, "window"), r.why))
	case t.merged.RateChange > o.Rise:
		return t.deny(r, model.VerdictHeld, "cooldown", fmt.Sprintf("load rises by %.0f%%; %s", 100*t.merged.RateChange, r.why))
	}
	if r.trial == trialGrant {
		return r
	}
	slots := (len(t.loop.queues) + o.OneIn - 1) / max(1, o.OneIn)
	others := t.loop.onTrial()
	if mine && r.trial == trialBegin {
		// The one that this window ended.
		others--
	}
	if others >= slots {
		return t.deny(r, model.VerdictHeld, "cooldown", fmt.Sprintf("%d of %s on trial, which is as many as may be; %s", others, model.Count(len(t.loop.queues), "queue"), r.why))
	}
	return r
}
