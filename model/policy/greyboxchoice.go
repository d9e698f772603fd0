package policy

import (
	"fmt"
	"time"

	"autotune/model"
)

const (
	// greyboxUse is the share of the SLO that a move may be predicted to use
	// up, margin included; what is in place may use all of it, so that a
	// prediction at the border does not move to and fro.
	greyboxUse = 0.98
	// greyboxUseReady is that share where interrupts may be suspended: there a
	// shorter timeout always mends what a prediction at the border broke, and
	// near saturation, where delay hardly depends on the timeout, each percent
	// of the SLO is worth as much CPU.
	greyboxUseReady = 0.99
	// greyboxUseAfter is by how much less that share is while the SLO is broken
	// or load has jumped: a second window above the SLO is dearer than a step
	// more.
	greyboxUseAfter = 0.04
	// greyboxIgnorance is the number of errors of what is not known of the delay
	// that are kept free below the SLO, besides the margin for the noise of
	// windows.
	greyboxIgnorance = 1.5
	// greyboxIgnoranceFirst is that of the first move from interrupts to
	// suspension: its trial takes four windows, in which a timeout that is far
	// too short costs more than one window above the SLO now and then.
	greyboxIgnoranceFirst = 1
	// greyboxFullSuspending and greyboxFullDeferring bound the predicted
	// utilisation. Deferral has less room: softirqs and the application take
	// the CPU from each other.
	greyboxFullSuspending = 0.95
	greyboxFullDeferring  = 0.86
	// greyboxFullRefused is the predicted utilisation above which no shorter
	// timeout is tried against a CPU that deferral fills already.
	greyboxFullRefused = 0.9
	// greyboxBusier bounds the error that is added to a predicted utilisation:
	// what is that little known is tried under the eyes of the guards, or a
	// busy host would never learn.
	greyboxBusier = 0.15
	// greyboxFullPrice weighs the square of what is above these bounds against
	// the share by which the SLO is exceeded.
	greyboxFullPrice = 8
	// greyboxStep is how far beyond the largest flush timeout at which the SLO
	// held a move may go: two steps of 25%. Until the models have predicted
	// greyboxProven windows in a row within their error, one.
	greyboxStep   = 1.5625
	greyboxFirst  = 1.25
	greyboxProven = 3
	// greyboxBack is the step down upon a confirmed violation: three steps of
	// 25%.
	greyboxBack = 1.953125
	// greyboxNearlyFull is how far beyond the bound of utilisation such a step is
	// taken where nothing is predicted to hold: further on, what less timeout gains
	// is lost to a fuller CPU. Up to greyboxFull beyond it, more timeout gains
	// nothing either.
	greyboxNearlyFull = 0.015
	greyboxFull       = 0.04
	// greyboxHuge is the multiple of the SLO at which one window suffices.
	greyboxHuge = 1.5
	// greyboxWorth is the share of the present harm that a setting must not exceed
	// to be moved to where none is predicted to hold; beside a late queue, where it
	// is the host's harm that counts, a little less will do.
	greyboxWorth       = 0.9
	greyboxWorthBeside = 0.995
	// greyboxHope is the share of the present delay that a setting must promise
	// at best to be tried where none is predicted to hold.
	greyboxHope = 0.9
	// greyboxGain is the predicted saving that a move for CPU needs. It falls
	// to greyboxGainRested within greyboxRested windows without a move.
	greyboxGain       = 0.015
	greyboxGainRested = 0.004
	greyboxRested     = 60
	// greyboxTried is the predicted utilisation up to which a move for
	// knowledge may go.
	greyboxTried = 0.93
	// What is out of reach is looked at in each of the first greyboxLookAlways
	// windows, and later in one of greyboxLookEvery.
	greyboxLookAlways = 40
	greyboxLookEvery  = 8
	// greyboxFarGain is the predicted saving that is worth a way on which
	// nothing is saved.
	greyboxFarGain = 0.05
	// greyboxDwell is the number of windows after a step back without a move
	// up.
	greyboxDwell = 4
	// greyboxOptimism is how many errors of its cost a setting is given in
	// advance; for a suspension that was never tried it is more by as much again
	// with each greyboxCuriousWindows, greyboxCurious times at most.
	greyboxOptimism       = 0.5
	greyboxCurious        = 4
	greyboxCuriousWindows = 60
	// greyboxUnknown is the relative error of a predicted cost above which a
	// move is one for knowledge.
	greyboxUnknown = 0.1
)

// greyboxChoice is one decision.
type greyboxChoice struct {
	p *Greybox
	q *greyboxQueue
	f *model.Features
	// rate is the load that is prepared for.
	rate float64
	// peak is the load that may come with a jump.
	peak float64
	// first tells that nothing but interrupts was seen yet, where interrupts may
	// be suspended.
	first bool
	// use is the share of the SLO that a move may be predicted to use up.
	use float64
	// keep is the share that what is in place may be predicted to use up.
	keep float64
	// left is the share of the SLO that late queues of the device leave to this
	// one; use and keep are of that.
	left float64
	slo  float64
	now  greyboxPlan
	// all tells that all settings are looked at, since what is in place should
	// not stay; safest and hope are found only then.
	all bool
	// best is the cheapest plan that should hold, safest the one predicted to
	// violate least; they are valid if found.
	best, safest           greyboxPlan
	foundBest, foundSafest bool
	leastHarm              float64
	// hope is the plan of which the delay may be the least.
	hope      greyboxPlan
	foundHope bool
	// far is the cheapest plan that is out of reach, and reach how far one may
	// go on the way.
	far      greyboxPlan
	foundFar bool
	reach    time.Duration
	// bound names what kept cheaper plans out.
	binding string
	bounds  greyboxPlan
}

func newGreyboxChoice(p *Greybox, q *greyboxQueue, d *greyboxDevice, f *model.Features) *greyboxChoice {
	c := &greyboxChoice{p: p, q: q, f: f, slo: micros(f.Objective.SLO)}
	c.rate = c.ahead()
	c.first = f.Suspension.Ready && q.held == [greyboxModes]time.Duration{} && greyboxModeOf(f.Active) == interrupting
	c.peak = q.peak
	c.use = greyboxUse
	if f.Suspension.Ready {
		c.use = greyboxUseReady
	}
	if (f.RateChange > greyboxJump || q.bad > 0) && !c.first {
		c.use -= greyboxUseAfter
	}
	c.keep = 1
	c.left = 1
	if q.bad == 0 {
		c.left = d.host.left(q, f)
		c.use *= c.left
		c.keep *= c.left
	}
	c.now = c.plan(greyboxModeOf(f.Active), current(f.Active))
	c.price(&c.now)
	if f.Utilisation >= 0 {
		// What it is needs no prediction, but for another load.
		c.now.utilisation *= q.utilisation(f) / c.filled(f.PacketRate)
		c.now.busiest = c.now.utilisation
	}
	return c
}

// risen returns by how much load is expected to exceed the last window's, where
// it rose in two windows: by as much again in the next, and by half of that in
// the one after, in which nothing is decided if this one moves. A jump is over
// when it is seen.
func risen(change float64) float64 {
	const ahead, steepest = 1.5, 0.1
	if !(change > 0) {
		return 0
	}
	if change > 2*steepest {
		return 0.5 * steepest
	}
	return ahead * min(steepest, change/(1+change))
}

// decide chooses.
func (c *greyboxChoice) decide() model.Decision {
	f, q := c.f, c.q
	if f.CostPerPacket <= 0 || f.Quantile <= 0 {
		return c.hold(fmt.Sprintf("cost %v per packet and %s %v: not both were observed", f.CostPerPacket, quantile(*f), f.Quantile))
	}
	if q.odd > 0 {
		return c.hold(fmt.Sprintf("%s %v is far above the %.0f us that were predicted; taken for a disturbance of the host unless the next window says the same", quantile(*f), f.Quantile, c.now.delay))
	}
	if d, ok := c.full(); ok {
		return d
	}
	huge := micros(f.Quantile) > greyboxHuge*c.slo
	if q.bad >= 2 || q.bad == 1 && huge {
		return c.retreat()
	}
	if excess := c.excess(&c.now, c.keep); excess > 0 && (c.now.mode != interrupting || q.bad > 0) {
		return c.avoid()
	}
	if q.bad == 1 {
		return c.hold(fmt.Sprintf("%s %v is above the SLO %v, where %.0f us was predicted; one window does not confirm it", quantile(*f), f.Quantile, f.Objective.SLO, c.now.delay))
	}
	if c.now.mode == interrupting {
		if g, ok := c.known(); ok && 1-g.score/c.now.score >= greyboxGain {
			return c.move(&g, model.PurposeReturn, fmt.Sprintf("held at this load before, and saves %.1f%%", 100*(1-g.score/c.now.score)))
		}
	}
	c.survey(false)
	if d, ok := c.setOut(); ok {
		return d
	}
	if !c.foundBest {
		return c.hold("no other setting is predicted to hold for less" + c.bound())
	}
	gain := 1 - c.best.score/c.now.score
	need := c.threshold()
	if c.best.flush > c.now.flush && q.windows-q.moved < greyboxDwell && q.last == nil && q.bad > 0 {
		return c.hold("waiting after a step back")
	}
	if gain < need {
		return c.hold(fmt.Sprintf("%v would save %.1f%%, less than %.1f%%%s", &c.best, 100*gain, 100*need, c.bound()))
	}
	purpose := model.PurposeCost
	if c.best.costError > greyboxUnknown {
		purpose = model.PurposeExploration
	}
	if c.best.cost > c.now.cost {
		return c.move(&c.best, model.PurposeSafety, fmt.Sprintf("at %s packets/s, where load may go, less would hold", rate(c.peak))+c.bound())
	}
	// After a fall of the load, a longer timeout is a return as well.
	longer := !f.Suspension.Ready && float64(c.best.flush) > greyboxFirst*float64(c.now.flush)
	if (c.best.mode != c.now.mode || longer) && q.keeps(c.best.mode, c.best.flush, f.PacketRate) {
		purpose = model.PurposeReturn
	}
	return c.move(&c.best, purpose, fmt.Sprintf("saves %.1f%%", 100*gain)+c.bound())
}

// setOut goes towards a setting that is out of reach, where nothing in reach is
// worth a move: between plain interrupts and large timeouts the cost is not
// monotone.
func (c *greyboxChoice) setOut() (model.Decision, bool) {
	need := c.threshold()
	if !c.foundFar || c.foundBest && 1-c.best.score/c.now.score >= need || 1-c.far.score/c.now.score < greyboxFarGain || c.f.Quantile > c.f.Objective.SLO {
		return model.Decision{}, false
	}
	step := c.plan(c.far.mode, c.reach)
	if step.flush == c.now.flush && step.mode == c.now.mode || !c.worthTrying(&step) {
		return model.Decision{}, false
	}
	return c.move(&step, model.PurposeExploration, fmt.Sprintf("on the way to %v, which would save %.1f%%", &c.far, 100*(1-c.far.score/c.now.score))), true
}

// threshold returns the saving that a move needs.
func (c *greyboxChoice) threshold() float64 {
	rested := float64(c.q.windows - c.q.moved)
	return greyboxGainRested + (greyboxGain-greyboxGainRested)*max(0, 1-rested/greyboxRested)
}

// retreat answers a confirmed violation.
func (c *greyboxChoice) retreat() model.Decision {
	c.survey(true)
	over := fmt.Sprintf("%s %v is above the SLO %v", quantile(*c.f), c.f.Quantile, c.f.Objective.SLO)
	target, ok := c.best, c.foundBest
	if c.now.mode == suspending && ok && target.mode == suspending {
		// In suspension delay rises with the timeout, whatever the models say.
		back := time.Duration(float64(c.now.flush) / greyboxBack)
		if target.flush > back {
			target = c.plan(suspending, c.onGrid(back))
		}
	}
	if !ok && c.now.mode == suspending && c.f.Suspension.Ready {
		back := c.onGrid(time.Duration(float64(c.now.flush) / greyboxBack))
		if back < c.now.flush && c.now.busiest < c.cap(suspending)+greyboxNearlyFull {
			down := c.plan(suspending, back)
			return c.move(&down, model.PurposeSafety, over+", and no setting is predicted to hold; in suspension less timeout is less delay")
		}
		if c.now.utilisation < c.cap(suspending)+greyboxFull {
			return c.hold(over + ", and no setting is predicted to hold; the timeout matters little where the CPU is nearly full")
		}
	}
	if !ok && c.now.mode == deferring && c.f.Suspension.Ready && !c.resting(suspending, false) {
		down := c.plan(suspending, c.onGrid(time.Duration(float64(c.now.flush)/greyboxBack)))
		return c.move(&down, model.PurposeSafety, over+", and no setting is predicted to hold; suspension does not fill the CPU with timers")
	}
	if !ok {
		target, ok = c.safest, c.foundSafest
	}
	c.now.delay = max(c.now.delay, micros(c.f.Quantile))
	if !ok || !c.foundBest && c.harm(&target) > greyboxWorth*c.harm(&c.now) {
		if c.foundHope && c.promise(&c.hope) < greyboxHope*micros(c.f.Quantile) {
			return c.move(&c.hope, model.PurposeSafety, over+", no setting is predicted to hold, and of this one the least is known")
		}
		if c.foundHope {
			over += fmt.Sprintf("; at best %v comes to %.0f us", &c.hope, c.promise(&c.hope))
		}
		return c.hold(over + ", and no other setting is predicted to do much better")
	}
	return c.move(&target, model.PurposeSafety, over)
}

// avoid answers a predicted violation.
func (c *greyboxChoice) avoid() model.Decision {
	c.survey(true)
	why := fmt.Sprintf("at %s packets/s %s %.0f us would come to %.0f us with the margin, above the SLO %v", rate(c.rate), quantile(*c.f), c.now.delay, c.now.bound, c.f.Objective.SLO)
	if c.now.busiest > c.cap(c.now.mode) {
		why = fmt.Sprintf("at %s packets/s the CPU would be %.0f%% busy, above %.0f%%", rate(c.rate), 100*c.now.busiest, 100*c.cap(c.now.mode))
	}
	if c.foundBest {
		return c.move(&c.best, model.PurposeSafety, why)
	}
	worth := greyboxWorth
	if c.left < 1 {
		why = fmt.Sprintf("%s, of which late queues beside leave %.0f%%", why, 100*c.left)
		worth = greyboxWorthBeside
		if c.now.mode == deferring && c.f.Suspension.Ready && !c.resting(suspending, false) {
			down := c.plan(suspending, c.onGrid(time.Duration(float64(c.now.flush)/greyboxBack)))
			return c.move(&down, model.PurposeSafety, why+", and no setting is predicted to hold that")
		}
	}
	if !c.foundSafest || c.harm(&c.safest) > worth*c.harm(&c.now) {
		return c.hold(why + "; no other setting is predicted to do much better")
	}
	return c.move(&c.safest, model.PurposeSafety, why)
}

// bound tells what kept cheaper settings out.
func (c *greyboxChoice) bound() string {
	if c.binding == "" {
		return ""
	}
	return fmt.Sprintf("; %s keeps out %v (%.0f us with the margin, CPU %.0f%%)", c.binding, &c.bounds, c.bounds.bound, 100*c.bounds.busiest)
}

func (c *greyboxChoice) hold(why string) model.Decision {
	c.q.forced = c.excess(&c.now, 1) > 0
	if c.q.note != "" {
		why = c.q.note + "; " + why
	}
	return model.Decision{
		Settings: c.f.Active,
		Purpose:  model.PurposeHold,
		Why:      why,
		Forecast: c.forecast(&c.now),
	}
}

func (c *greyboxChoice) move(to *greyboxPlan, purpose model.Purpose, reason string) model.Decision {
	why := fmt.Sprintf("%s; predicted for %v: %.0f ns per packet (within %.1f%%; now %.0f), %s %.0f us (%.0f with what is not known, and %.1f times the noise), CPU %.0f%% busy",
		reason, to, to.cost, 100*to.costError, c.now.cost, quantile(*c.f), to.delay, to.bound, c.q.margin, 100*to.utilisation)
	c.q.forced = c.excess(to, 1) > 0
	if c.q.note != "" {
		why = c.q.note + "; " + why
	}
	return model.Decision{
		Settings:  c.settings(to),
		Purpose:   purpose,
		Why:       why,
		Forecast:  c.forecast(to),
		Otherwise: c.forecast(&c.now),
	}
}
