package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// A policy that says what it expects of the next window (see [model.Forecast])
// earns credit with each that comes out so. With enough of it a move is granted
// without a trial of its own: what a trial would find out, the policy has shown
// to know. Granted moves are held against their forecasts instead, and taken
// back when two windows in a row disagree; then the credit is gone.

const (
	// creditSharp bounds the error of a forecast that can earn credit: that of
	// the delay as a share of the SLO, and the relative one of the cost. What
	// allows for anything foretells nothing.
	creditSharp = 0.15
	// creditErrors is how many of its errors a forecast may be off.
	creditErrors = 3
	// creditMiss is what a forecast that fails costs, and creditMost how much
	// credit there can be: a host that disturbs a window now and then does not
	// use it up.
	creditMiss = 3
	creditMost = 12
	// auditWindows is the number of windows for which a granted move is held
	// against its forecasts, and auditBad how many in a row end it by disagreeing.
	auditWindows = 4
	auditBad     = 2
	// creditReach is how far the load of a window may be from that of its
	// forecast, as a ratio, and creditBlur what the elasticities may be off.
	creditReach = 1.6
	creditBlur  = 0.1
	// creditFull is the predicted utilisation up to which a move may lower the
	// flush timeout of a CPU that is nearly full.
	creditFull = 0.9
)

// promise is the forecast for what a queue is set to.
type promise struct {
	settings model.Settings
	forecast forecast
}

// forecast is a policy's, which can be carried over to another load.
type forecast struct{ model.Forecast }

// at returns the forecast for a load; ok is false where it is too far away.
func (f forecast) at(rate float64) (model.Forecast, bool) {
	moved := math.Log(rate / f.PacketRate)
	if !(math.Abs(moved) <= math.Log(creditReach)) || !(f.CostError > 0) || f.DelayError <= 0 {
		return model.Forecast{}, false
	}
	out := f.Forecast
	out.PacketRate = rate
	out.CostPerPacket = time.Duration(float64(f.CostPerPacket) * math.Exp(moved*f.CostElasticity))
	out.Delay = time.Duration(float64(f.Delay) * math.Exp(moved*f.DelayElasticity))
	out.CostError = math.Hypot(f.CostError, creditBlur*moved)
	out.DelayError = time.Duration(math.Hypot(float64(f.DelayError), creditBlur*moved*float64(f.Delay)))
	return out, out.CostPerPacket > 0 && out.Delay > 0 && out.DelayError > 0
}

// audit is a granted move under watch.
type audit struct {
	purpose    model.Purpose
	anchor, at model.Settings
	kind       fuseKind
	before     []measure
	// answered is the logarithm of the quantile before, in the windows at the load
	// of the move.
	answered     float64
	windows, bad int
}

// answers returns the logarithm of the quantile that a move from here answers: the
// mean of the windows before at this load, or this one where load jumped.
func (t *turn) answers(before []measure) float64 {
	n, mean, _ := moments(t.alike(before), func(m measure) float64 { return m.logDelay })
	if n == 0 {
		return math.Log(float64(t.merged.Quantile))
	}
	return mean
}

// relieved reports whether a move for safety did its work, if less well than
// expected: back would be where the delay was longer.
func (a *audit) relieved(quantile time.Duration) bool {
	return a.purpose == model.PurposeSafety && math.Log(float64(quantile)) < a.answered
}

func (t *turn) sharp(f *model.Forecast) bool {
	slo := float64(t.loop.options.Objective.SLO)
	return f.CostPerPacket > 0 && f.Delay > 0 && f.CostError > 0 && f.CostError <= creditSharp &&
		f.DelayError > 0 && float64(f.DelayError) <= creditSharp*slo
}

// granted reports whether a move needs no trial.
func (t *turn) granted(r ruling) bool {
	need := t.loop.options.Trial.Credit
	f := r.forecast
	if need < 0 || t.q.credit < need || f == nil || !r.own || r.settings != r.proposed || !t.sharp(f) {
		return false
	}
	slo := t.loop.options.Objective.SLO
	switch r.purpose {
	case model.PurposeCost:
		return t.merged.CostPerPacket > 0 && f.Delay+f.DelayError <= slo
	case model.PurposeSafety:
		return f.Delay < t.merged.Quantile || f.Delay <= slo
	case model.PurposeHold, model.PurposeExploration, model.PurposeReturn, model.PurposeOrder:
	}
	return false
}

// audit holds the window against the forecast that was made for it, and takes
// back a granted move of which two windows in a row disagree.
func (t *turn) audit() (ruling, bool) {
	q := t.q
	if t.thin {
		return ruling{}, false
	}
	if q.audit != nil && t.active != q.audit.at {
		q.audit = nil
	}
	p := q.promise
	if p == nil || p.settings != t.active || t.merged.CostPerPacket <= 0 {
		return ruling{}, false
	}
	f, ok := p.forecast.at(t.merged.PacketRate)
	if !ok {
		return ruling{}, false
	}
	cost := math.Log(float64(t.merged.CostPerPacket)/float64(f.CostPerPacket)) / f.CostError
	delay := float64(t.merged.Quantile-f.Delay) / float64(f.DelayError)
	hit := math.Abs(cost) <= creditErrors && math.Abs(delay) <= creditErrors
	switch {
	case !hit:
		q.credit = max(0, q.credit-creditMiss)
	case t.sharp(&p.forecast.Forecast):
		q.credit = min(creditMost, q.credit+1)
	}
	a := q.audit
	if a == nil {
		return ruling{}, false
	}
	a.windows++
	_, before, _ := moments(a.before, func(m measure) float64 { return m.logCost })
	dearer := a.purpose == model.PurposeCost && cost > creditErrors && before != 0 && math.Log(float64(t.merged.CostPerPacket)) > before
	slower := delay > creditErrors && t.merged.Quantile > t.loop.options.Objective.SLO && !a.relieved(t.merged.Quantile)
	switch {
	case dearer || slower:
		a.bad++
	default:
		a.bad = 0
	}
	if a.bad < auditBad {
		if a.windows >= auditWindows {
			q.confirm(t.active, t.merged.PacketRate)
			q.audit = nil
		}
		return ruling{}, false
	}
	t.blow(a.kind)
	change := 0.0
	if before != 0 {
		change = float64(t.merged.CostPerPacket)/math.Exp(before) - 1
	}
	q.credit, q.audit = 0, nil
	t.ask()
	q.outcome = model.Outcome{Verdict: model.VerdictReverted, Guard: "trial", From: a.anchor, To: t.active, Purpose: a.purpose, CostChange: change}
	return ruling{
		settings: a.anchor, proposed: t.active, purpose: model.PurposeReturn, verdict: model.VerdictReverted, guard: "trial",
		why: fmt.Sprintf("the forecasts failed in %s: p%g %v where %v was expected, cost per packet %v where %v was; back to %v, and moves are on trial again",
			model.Count(auditBad, "window"), 100*t.loop.options.Objective.Quantile, t.merged.Quantile, f.Delay.Round(time.Microsecond), t.merged.CostPerPacket, f.CostPerPacket, a.anchor),
	}, true
}

// trusts reports whether a move may lower the flush timeout although the CPU is
// nearly full: for a policy that expects room left, and less delay within its
// error. What is not granted is on trial, which ends it where the delay does not
// fall.
func (t *turn) trusts(r ruling) bool {
	f := r.forecast
	return f != nil && r.own && r.settings == r.proposed && f.Utilisation <= creditFull && f.Delay-f.DelayError < t.merged.Quantile
}

// promised keeps the forecast for what the queue is set to from now on.
func (q *queueState) promised(r ruling) {
	q.promise = nil
	if r.forecast != nil && r.own && r.settings == r.proposed && (r.verdict == model.VerdictApplied || r.verdict == model.VerdictHeld) {
		q.promise = &promise{settings: r.settings, forecast: forecast{*r.forecast}}
		return
	}
	if r.otherwise != nil && r.own && r.settings != r.proposed && r.verdict == model.VerdictHeld {
		q.promise = &promise{settings: r.settings, forecast: forecast{*r.otherwise}}
	}
}
