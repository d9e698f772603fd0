package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// sloGuard answers a confirmed breach of the SLO where the policy does not, and
// refuses the answer that makes it worse.
type sloGuard struct{}

func (sloGuard) rule(t *turn, next func() ruling) ruling {
	r := next()
	if t.ordered || t.thin && !t.urgent || r.purpose == model.PurposeOrder {
		return r
	}
	q, o := t.q, t.loop.options.SLO
	slo := t.loop.options.Objective.SLO
	switch {
	case t.thin:
	case t.merged.Quantile > slo:
		q.breaches++
	default:
		q.breaches = 0
	}
	deferring := t.active.Mode() == model.ModeDeferral
	full := deferring && t.merged.Utilisation > o.Full
	if full && r.moves() && r.purpose == model.PurposeSafety && r.settings.Mode() == model.ModeDeferral && !t.trusts(r) && r.settings.GROFlushTimeout < t.active.GROFlushTimeout {
		return t.deny(r, model.VerdictRefused, "slo", fmt.Sprintf("at utilisation %.2f a smaller flush timeout adds load and delay; %s", t.merged.Utilisation, r.why))
	}
	full = full || t.active.Mode() == model.ModeSuspension && t.merged.Utilisation > o.FullSuspended
	if q.breaches < o.Confirm || !q.wrote || t.active == q.original || q.trial != nil {
		return r
	}
	if r.moves() && (r.purpose == model.PurposeSafety || r.purpose == model.PurposeReturn) && t.drivable(r.settings) {
		return r
	}
	if full && t.knows(r) {
		return r
	}
	answer := ruling{proposed: r.proposed, purpose: model.PurposeSafety, verdict: model.VerdictApplied, guard: "slo"}
	if s, predicted, ok := t.safest(); ok {
		if full && s.GROFlushTimeout < t.active.GROFlushTimeout {
			return r
		}
		answer.settings = s
		answer.why = fmt.Sprintf("p%g %v is above the SLO %v in %s; %v showed %v at this load",
			100*t.loop.options.Objective.Quantile, t.merged.Quantile, slo, model.Count(q.breaches, "window"), s, predicted)
		return answer
	}
	if full || t.active.Mode() == model.ModeInterrupts {
		return r
	}
	answer.settings = t.active
	answer.settings.GROFlushTimeout = time.Duration(o.Backoff * float64(t.active.GROFlushTimeout))
	if q.known[answer.settings] != nil {
		// It was tried at this load and did not do better.
		return r
	}
	answer.why = fmt.Sprintf("p%g %v is above the SLO %v in %s; flush %v to %v",
		100*t.loop.options.Objective.Quantile, t.merged.Quantile, slo, model.Count(q.breaches, "window"), t.active.GROFlushTimeout, answer.settings.GROFlushTimeout)
	return answer
}

// knows reports whether a policy of which forecasts held stays with what is in
// place: where deferral fills the CPU, windows are late by far at any timeout now
// and then, so that the one that came out best so far may not be better.
func (t *turn) knows(r ruling) bool {
	need := t.loop.options.Trial.Credit
	return need >= 0 && t.q.credit >= need && r.own && r.forecast != nil && r.verdict == model.VerdictHeld
}

// safest returns the setting that showed the smallest quantile at a load like
// the present one, if it is clearly smaller than now.
func (t *turn) safest() (s model.Settings, predicted time.Duration, ok bool) {
	best := math.Inf(1)
	for candidate, record := range t.q.known {
		var sum float64
		var n int
		for _, m := range record.measures {
			if m.quantile > 0 && t.similar(m.rate) {
				sum += math.Log(float64(m.quantile))
				n++
			}
		}
		if n == 0 || candidate == t.active || !t.drivable(candidate) {
			continue
		}
		mean := sum / float64(n)
		if mean < best || mean == best && less(candidate, s) {
			best, s = mean, candidate
		}
	}
	if math.IsInf(best, 1) || math.Exp(best) > 0.9*float64(t.merged.Quantile) {
		return model.Settings{}, 0, false
	}
	return s, time.Duration(math.Exp(best)), true
}

func saturate(factor float64, d time.Duration) time.Duration {
	x := factor * float64(d)
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(x)
}
