package tuner

import (
	"fmt"
	"math"
	"slices"
	"time"

	"autotune/model"
)

// trialGuard measures what a move does, and keeps or reverts it. It judges a
// direction: a move without a verdict may go on, and is compared with where the
// direction began. A policy whose forecasts hold is granted moves without one.
type trialGuard struct{}

// trialAction is what follows once a move is applied.
type trialAction int

const (
	trialNone trialAction = iota
	trialBegin
	trialExtend
	trialGrant
)

// trial is a direction that is being measured.
type trial struct {
	purpose model.Purpose
	anchor  model.Settings
	kind    fuseKind
	before  []measure
	after   []measure
	steps   int
	shifted int
	// costChange is the last relative change of cost measured.
	costChange float64
	// utilisation is what it was before.
	utilisation float64
}

// measure is what one decision's window showed.
type measure struct {
	rate     float64
	packets  uint64
	logCost  float64
	logDelay float64
	quantile time.Duration
}

func measureOf(f *model.Features, packets uint64) measure {
	m := measure{rate: f.PacketRate, packets: packets, logCost: math.NaN(), logDelay: math.NaN(), quantile: f.Quantile}
	if f.CostPerPacket > 0 {
		m.logCost = math.Log(float64(f.CostPerPacket))
	}
	if f.Quantile > 0 {
		m.logDelay = math.Log(float64(f.Quantile))
	}
	return m
}

func (trialGuard) rule(t *turn, next func() ruling) ruling {
	q := t.q
	if q.retry != nil {
		target := *q.retry
		q.retry = nil
		if target != t.active {
			return ruling{settings: target, proposed: t.active, purpose: model.PurposeReturn, verdict: model.VerdictReverted,
				guard: "trial", why: fmt.Sprintf("going back to %v, which failed before", target)}
		}
	}
	if r, ok := t.audit(); ok {
		return r
	}
	if q.trial == nil {
		r := next()
		return t.admit(r)
	}
	tr := q.trial
	if t.thin {
		if r, ok := t.gross(tr); ok {
			return r
		}
		return t.outrun(next())
	}
	if !t.comparable(tr.before, t.merged.PacketRate, t.rawPackets) {
		tr.shifted++
		r := next()
		if q.trial == nil {
			return r
		}
		if r.moves() && (r.purpose == model.PurposeReturn || r.purpose == model.PurposeOrder) {
			q.dropTrial()
			return r
		}
		stays := t.stays(tr)
		relieved := tr.purpose == model.PurposeSafety && t.merged.Quantile <= t.loop.options.Objective.SLO
		if tr.shifted < 2 && (!stays || !relieved) {
			return t.deny(r, model.VerdictHeld, "trial", fmt.Sprintf("load moved to %.0f packets/s during the trial of %v", t.merged.PacketRate, t.active))
		}
		q.endTrial(model.VerdictAborted, "trial", t.active)
		if stays {
			// Nothing was taken back that would have to rest.
			q.trialEnd = 0
			t.conclude(tr, model.VerdictAborted, fmt.Sprintf("load moved to %.0f packets/s, so that %v cannot be compared with %v; it stays", t.merged.PacketRate, t.active, tr.anchor))
			return t.admit(r)
		}
		return ruling{settings: tr.anchor, proposed: r.proposed, purpose: model.PurposeReturn, verdict: model.VerdictAborted, guard: "trial",
			why: fmt.Sprintf("load moved to %.0f packets/s, so that %v cannot be compared with %v", t.merged.PacketRate, t.active, tr.anchor)}
	}
	tr.shifted = 0
	tr.after = append(tr.after, measureOf(&t.merged, t.q.window.Packets()))
	last := len(tr.after) >= t.loop.options.Trial.Windows
	s := t.judge(tr, last)
	if s.state == judgedKeep {
		return t.keep(tr, s.why, next)
	}
	if s.state == judgedRevert {
		return t.revert("trial", s.why)
	}
	r := next()
	if q.trial == nil {
		// The tripwire ended it.
		return r
	}
	if r.moves() {
		switch {
		case t.granted(r):
			r.trial = trialGrant
			return r
		case r.purpose == model.PurposeSafety && tr.purpose != model.PurposeSafety:
			// A breach ends a trial that seeks cost.
			return t.revert("trial", fmt.Sprintf("the policy asks for safety: %s", r.why))
		case t.purposeOf(r) == tr.purpose && direction(t.active, r.settings) == direction(tr.anchor, t.active) &&
			direction(t.active, r.settings) != 0 && tr.steps < t.loop.options.Trial.Steps &&
			!last &&
			(tr.purpose == model.PurposeSafety || !s.promising && t.merged.Quantile <= t.loop.options.Objective.SLO):
			// What already looks better is measured to the end, so that a step
			// too far does not lose it; and what was, does not go on, since
			// the test of a last window is only for one setting.
			r.trial = trialExtend
			return r
		}
	}
	if s.state == judgedWorse || last {
		return t.revert("trial", s.why)
	}
	return t.deny(r, model.VerdictHeld, "trial", fmt.Sprintf("measuring %v (%d of %s): %s", t.active, len(tr.after), model.Count(t.loop.options.Trial.Windows, "window"), s.why))
}

// admit lets a move begin a trial, if there is something to compare it with.
func (t *turn) admit(r ruling) ruling {
	if !r.moves() || r.verdict != model.VerdictApplied {
		return r
	}
	r.purpose = t.purposeOf(r)
	if !t.loop.tried(r.purpose) || t.loop.options.Actuator == nil {
		return r
	}
	if t.granted(r) {
		r.trial = trialGrant
		return r
	}
	if r.purpose == model.PurposeSafety {
		r.trial = trialBegin
		return r
	}
	if t.merged.CostPerPacket <= 0 {
		return t.deny(r, model.VerdictHeld, "trial", "the CPU cost was not observed, so that nothing can be gained knowingly; "+r.why)
	}
	have, need := t.references(), t.loop.options.Trial.Reference
	if t.fits(r) {
		need = min(need, 1)
	}
	if have < need {
		return t.deny(r, model.VerdictHeld, "trial", fmt.Sprintf("%d of %s at this load to compare with; %s", have, model.Count(need, "window"), r.why))
	}
	r.trial = trialBegin
	return r
}

// stays reports whether a move whose trial ended without a result, because load
// moved, is left in place: where back would be where the SLO was broken, or for no
// less delay than there is.
func (t *turn) stays(tr *trial) bool {
	slo := t.loop.options.Objective.SLO
	if tr.purpose == model.PurposeSafety && breaching(tr.before, slo) {
		return true
	}
	held := !breached(tr.after, slo) && t.merged.Quantile <= slo
	return held && (tr.purpose == model.PurposeSafety && breached(tr.before, slo) || longer(tr.anchor, t.active))
}

// longer reports whether a move only lets packets wait longer for the timer: that
// saves polls, and none waits by more than the difference.
func longer(from, to model.Settings) bool {
	return from.Mode() == to.Mode() && from.Mode() != model.ModeInterrupts && to.GROFlushTimeout > from.GROFlushTimeout
}

// fits reports whether a move to a longer flush timeout holds the SLO, whatever
// the policy says.
func (t *turn) fits(r ruling) bool {
	return longer(t.active, r.settings) && t.merged.Quantile > 0 &&
		t.merged.Quantile+r.settings.GROFlushTimeout-t.active.GROFlushTimeout <= t.loop.options.Objective.SLO
}

// references returns the number of windows at this load, and of known cost, that
// a trial has to compare with.
func (t *turn) references() int {
	have := 0
	for _, m := range t.q.reference {
		if t.similarTo(m, t.merged.PacketRate, t.rawPackets) && !math.IsNaN(m.logCost) {
			have++
		}
	}
	return have
}

// purposeOf returns the purpose by which a move is judged: a return to what
// nobody saw hold at this load has to prove itself.
func (t *turn) purposeOf(r ruling) model.Purpose {
	if r.purpose == model.PurposeReturn && !t.q.held(r.settings, t.merged.PacketRate) {
		return model.PurposeExploration
	}
	return r.purpose
}

// judgement is what the measurements so far say.
type judgement struct {
	state judgedState
	// promising tells that cost is lower by more than the noise of a single
	// look.
	promising bool
	why       string
}

type judgedState int

const (
	judgedOpen judgedState = iota
	judgedWorse
	judgedKeep
	judgedRevert
)

func (t *turn) judge(tr *trial, last bool) judgement {
	o := t.loop.options.Trial
	slo := t.loop.options.Objective.SLO
	if tr.purpose == model.PurposeSafety {
		c := t.compare(tr, func(m measure) float64 { return m.logDelay })
		why := fmt.Sprintf("p%g %+.0f%% (within %.0f%%) against %v", 100*t.loop.options.Objective.Quantile, c.percent(), c.noise(), tr.anchor)
		if !c.known {
			why = fmt.Sprintf("nothing at this load to compare with %v", tr.anchor)
		}
		switch {
		case c.difference < 0 && (c.decided || last), (breaching(tr.before, slo) || !c.known) && len(tr.after) >= 2 && !breaching(tr.after, slo):
			return judgement{state: judgedKeep, why: why}
		case c.decided && c.difference > 0:
			return judgement{state: judgedRevert, why: why}
		}
		return judgement{why: why}
	}
	c := t.compare(tr, func(m measure) float64 { return m.logCost })
	tr.costChange = c.percent() / 100
	why := fmt.Sprintf("cost per packet %+.1f%% (within %.1f%%) against %v", c.percent(), c.noise(), tr.anchor)
	over := 0
	for _, m := range tr.after[max(0, len(tr.after)-t.loop.options.SLO.Confirm):] {
		if m.quantile > slo {
			over++
		}
	}
	switch {
	case over >= t.loop.options.SLO.Confirm && !breaching(tr.before, slo):
		return judgement{state: judgedRevert, why: fmt.Sprintf("p%g broke the SLO %v in %s; %s", 100*t.loop.options.Objective.Quantile, slo, model.Count(over, "window"), why)}
	case c.decided && c.difference > math.Log1p(o.Tolerance):
		return judgement{state: judgedRevert, why: why}
	case c.decided && c.difference > 0:
		return judgement{state: judgedWorse, why: why}
	case c.better && (tr.after[len(tr.after)-1].quantile <= slo || breaching(tr.before, slo)):
		return judgement{state: judgedKeep, why: why}
	}
	return judgement{promising: c.difference < -1.65*c.deviation && over == 0, why: why}
}

// breaching reports whether more than half of the windows are above the SLO.
func breaching(ms []measure, slo time.Duration) bool {
	over := 0
	for _, m := range ms {
		if m.quantile > slo {
			over++
		}
	}
	return 2*over > len(ms)
}

// breached reports whether any of the windows is above the SLO.
func breached(ms []measure, slo time.Duration) bool {
	return slices.ContainsFunc(ms, func(m measure) bool { return m.quantile > slo })
}

// comparison is a difference of logarithms and what is known of its error.
type comparison struct {
	difference, deviation float64
	// known tells that there is something on both sides.
	known bool
	// decided tells that the sequential test rejects "no difference" with the
	// assumed noise, better that [lower] does with what is known of the noise.
	decided, better bool
}

func (c comparison) percent() float64 { return 100 * math.Expm1(c.difference) }
func (c comparison) noise() float64   { return 100 * math.Expm1(2*c.deviation) }

// compare tests the trial's windows against those before it. The test is the
// mixture sequential probability ratio for a normal mean: it may be looked at
// after every window without spending its error more than once. The noise is
// pooled from both sides with a prior worth four windows.
func (t *turn) compare(tr *trial, value func(measure) float64) comparison {
	o := t.loop.options.Trial
	const prior = 4
	nb, mb, sb := moments(tr.before, value)
	na, ma, sa := moments(tr.after, value)
	if nb == 0 || na == 0 {
		return comparison{}
	}
	variance := (prior*o.Noise*o.Noise + sb + sa) / (prior + max(0, nb-1) + max(0, na-1))
	c := comparison{difference: ma - mb, known: true}
	v := variance * (1/nb + 1/na)
	c.deviation = math.Sqrt(v)
	// The effect that the test is most sensitive to: 10%.
	const effect = 0.1 * 0.1
	logRatio := 0.5*math.Log(v/(v+effect)) + c.difference*c.difference*effect/(2*v*(v+effect))
	c.decided = logRatio >= -math.Log(o.Error)
	c.better = lower{
		difference: c.difference, scale: 1/nb + 1/na,
		squares: lowerPrior*o.Noise*o.Noise + sb + sa, freedom: lowerPrior + nb - 1 + na - 1,
		effect: effect / (o.Noise * o.Noise),
	}.proven(o.Error, tr.steps, len(tr.after) >= o.Windows)
	return c
}

// moments returns the number of known values, their mean, and the sum of
// squared differences from it.
func moments(ms []measure, value func(measure) float64) (n, mean, squares float64) {
	var values [maxReference]float64
	count := 0
	for _, m := range ms {
		if x := value(m); !math.IsNaN(x) && count < len(values) {
			values[count] = x
			count++
		}
	}
	if count == 0 {
		return 0, 0, 0
	}
	for _, x := range values[:count] {
		mean += x
	}
	n = float64(count)
	mean /= n
	for _, x := range values[:count] {
		squares += (x - mean) * (x - mean)
	}
	return n, mean, squares
}

// gross ends a trial in a window that is not a full measurement, when it costs
// far more.
func (t *turn) gross(tr *trial) (ruling, bool) {
	if tr.purpose == model.PurposeSafety || t.raw.CostPerPacket <= 0 || !t.comparable(tr.before, t.raw.PacketRate, t.rawPackets) {
		return ruling{}, false
	}
	one := *tr
	one.after = []measure{measureOf(&t.raw, t.rawPackets)}
	c := t.compare(&one, func(m measure) float64 { return m.logCost })
	if !c.decided || c.difference < math.Log1p(t.loop.options.Trial.Gross) {
		return ruling{}, false
	}
	tr.costChange = c.percent() / 100
	return t.revert("trial", fmt.Sprintf("cost per packet %+.0f%% at once against %v", c.percent(), tr.anchor)), true
}

// conclude journals the end of a trial that leaves its move in place.
func (t *turn) conclude(tr *trial, v model.Verdict, why string) {
	r := ruling{settings: t.active, proposed: t.active, purpose: tr.purpose, verdict: v, guard: "trial", why: why}
	e := t.entry(r, tr.anchor)
	e.Guards = []GuardStep{{Guard: "trial", Verdict: v, Numbers: t.numbers("trial", r)}}
	t.entries = append(t.entries, e)
}

func (t *turn) keep(tr *trial, why string, next func() ruling) ruling {
	q := t.q
	t.conclude(tr, model.VerdictKept, why)
	q.endTrial(model.VerdictKept, "trial", t.active)
	q.reference = append(q.reference[:0], tr.after...)
	q.confirm(t.active, t.merged.PacketRate)
	return t.admit(next())
}

// revert ends the trial against its move and goes back to where it began.
func (t *turn) revert(guard, why string) ruling {
	q, tr := t.q, t.q.trial
	t.blow(tr.kind)
	q.endTrial(model.VerdictReverted, guard, t.active)
	if !t.thin {
		// The policy sees what the last window of the move showed.
		t.ask()
	}
	return ruling{settings: tr.anchor, proposed: t.active, purpose: model.PurposeReturn, verdict: model.VerdictReverted, guard: guard, why: why}
}

// similar reports whether the load of the present decision can be compared
// with a rate.
func (t *turn) similar(rate float64) bool {
	return t.similarTo(measure{rate: rate, packets: t.rawPackets}, t.merged.PacketRate, t.rawPackets)
}

func (t *turn) similarTo(m measure, rate float64, packets uint64) bool {
	if !(m.rate > 0) || !(rate > 0) {
		return m.rate == rate
	}
	// Two standard deviations of the counts add to what load may differ by.
	counting := 2 * math.Sqrt(1/float64(max(1, m.packets))+1/float64(max(1, packets)))
	return math.Abs(math.Log(rate/m.rate)) <= math.Log1p(t.loop.options.Trial.Similar)+counting
}

// alike returns those of the windows that were at a load like the present one.
func (t *turn) alike(ms []measure) []measure {
	out := make([]measure, 0, len(ms))
	for _, m := range ms {
		if t.similarTo(m, t.merged.PacketRate, t.rawPackets) {
			out = append(out, m)
		}
	}
	return out
}

// comparable reports whether a rate is like that of the windows.
func (t *turn) comparable(ms []measure, rate float64, packets uint64) bool {
	if len(ms) == 0 {
		return true
	}
	var mean float64
	var total uint64
	for _, m := range ms {
		mean += m.rate / float64(len(ms))
		total += m.packets
	}
	return t.similarTo(measure{rate: mean, packets: total}, rate, packets)
}
