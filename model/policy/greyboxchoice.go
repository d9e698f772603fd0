package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

const (
	// greyboxUse is the share of the SLO that a move may be predicted to use
	// up, margin included; what is in place may use all of it, so that a
	// prediction at the border does not move to and fro.
	greyboxUse = 0.98
	// greyboxIgnorance is the number of errors of what is not known of the delay
	// that are kept free below the SLO, besides the margin for the noise of
	// windows.
	greyboxIgnorance = 1.5
	// greyboxFullSuspending and greyboxFullDeferring bound the predicted
	// utilisation. Deferral has less room: softirqs and the application take
	// the CPU from each other.
	greyboxFullSuspending = 0.93
	greyboxFullDeferring  = 0.86
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
	// greyboxHuge is the multiple of the SLO at which one window suffices.
	greyboxHuge = 1.5
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
	// advance.
	greyboxOptimism = 0.5
	// greyboxUnknown is the relative error of a predicted cost above which a
	// move is one for knowledge.
	greyboxUnknown = 0.1
)

// greyboxPlan is a setting with what is predicted of it.
type greyboxPlan struct {
	mode  greyboxMode
	flush time.Duration
	// cost is in ns per packet; costError relative to it, without the noise of
	// a window.
	cost, costError float64
	// delay is in us; bound has the margin on top.
	delay, delayError, bound float64
	// unknown is the error of delay without the noise of a window.
	unknown              float64
	utilisation, busiest float64
	score                float64
}

// promise is the delay if the optimistic side of the belief is right; the longer
// the SLO is broken, the more optimistic.
func (c *greyboxChoice) promise(g *greyboxPlan) float64 {
	const patience = 4 // windows
	late := float64(c.q.bad) / patience
	return (g.delay - g.unknown*(1+late)) / (1 + late/2)
}

// greyboxChoice is one decision.
type greyboxChoice struct {
	p *Greybox
	q *greyboxQueue
	f *model.Features
	// rate is the load that is prepared for.
	rate float64
	// peak is the load that the delay is to hold at.
	peak float64
	slo  float64
	now  greyboxPlan
	// best is the cheapest plan that should hold, safest the one predicted to
	// violate least; they are valid if found.
	best, safest           greyboxPlan
	foundBest, foundSafest bool
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

func newGreyboxChoice(p *Greybox, q *greyboxQueue, f *model.Features) *greyboxChoice {
	c := &greyboxChoice{p: p, q: q, f: f, slo: micros(f.Objective.SLO)}
	c.rate = f.PacketRate * (1 + risen(f.RateChange))
	c.peak = c.rate + q.caution*(q.peak-c.rate)
	c.now = c.plan(greyboxModeOf(f.Active), current(f.Active))
	return c
}

// risen returns by how much load is expected to exceed the last window's, where
// it rose: half as much again, of what can be a slope. A jump is over when it is
// seen.
func risen(change float64) float64 {
	const steepest = 0.1
	if !(change > 0) {
		return 0
	}
	return 0.5 * min(steepest, change/(1+change))
}

// plan predicts a setting.
func (c *greyboxChoice) plan(mode greyboxMode, flush time.Duration) greyboxPlan {
	out := greyboxPlan{mode: mode, flush: flush}
	x := costRow(mode, flush, c.rate)
	mean, variance := c.q.cost.Predict(&x)
	out.cost, out.costError = math.Exp(min(mean, 30)), math.Sqrt(variance)
	out.utilisation = c.q.full * c.rate * out.cost * 1e-9
	out.busiest = out.utilisation * (1 + min(greyboxBusier, out.costError))
	x = delayRow(mode, flush, c.rate, out.utilisation)
	if c.peak > c.rate {
		// Of a load that jumps, the delay after the jump counts.
		at := costRow(mode, flush, c.peak)
		logCost, _ := c.q.cost.Predict(&at)
		x = delayRow(mode, flush, c.peak, c.q.full*c.peak*math.Exp(min(logCost, 30))*1e-9)
	}
	mean, variance = c.q.delay.Predict(&x)
	out.delay = max(mean, 1)
	noise := c.q.delayNoise.variance * out.delay * out.delay
	out.unknown = math.Sqrt(variance)
	out.delayError = math.Sqrt(variance + noise)
	out.bound = out.delay + math.Sqrt(greyboxIgnorance*greyboxIgnorance*variance+c.q.margin*c.q.margin*noise)
	switch c.p.options.Goal {
	case GoalLatency:
		out.score = out.delay
	case GoalBalanced:
		out.score = out.cost + float64(c.p.options.Price)*out.delay
	case GoalCPU:
		out.score = out.cost * math.Exp(-greyboxOptimism*out.costError)
	}
	return out
}

// cap returns the utilisation that a plan must stay below.
func (c *greyboxChoice) cap(mode greyboxMode) float64 {
	limit := greyboxFullDeferring
	if mode == suspending {
		limit = greyboxFullSuspending
	}
	if c.p.options.Goal == GoalLatency {
		limit = min(limit, c.p.options.CPU)
	}
	return limit
}

// excess returns by how much a plan is predicted to violate; zero where it
// should hold.
func (c *greyboxChoice) excess(g *greyboxPlan, use float64) float64 {
	full := max(0, g.busiest-c.cap(g.mode))
	return max(0, g.bound/(use*c.slo)-1) + greyboxFullPrice*full*full
}

// harm returns by how much a plan violates if all is as predicted: where none
// should hold, what is known the least is no worse for it.
func (c *greyboxChoice) harm(g *greyboxPlan) float64 {
	full := max(0, g.utilisation-c.cap(g.mode))
	return max(0, g.delay/(greyboxUse*c.slo)-1) + greyboxFullPrice*full*full
}

// limit returns how far up a mode's flush timeout may go.
func (c *greyboxChoice) limit(mode greyboxMode) time.Duration {
	held := c.q.held[mode]
	for m, h := range c.q.held {
		// What holds with one loop is near what holds with another, where the
		// present setting is taken as the start.
		if greyboxMode(m) != interrupting && greyboxMode(m) == c.now.mode {
			held = max(held, min(h, c.now.flush))
		}
	}
	step := greyboxStep
	if c.q.proven < greyboxProven {
		step = greyboxFirst
	}
	return min(c.p.options.Max, max(c.p.options.Start, time.Duration(step*float64(held))))
}

// survey predicts the settings that may be chosen: all, or those near the
// present flush timeout.
func (c *greyboxChoice) survey(all bool) {
	c.consider(interrupting, 0)
	for _, mode := range []greyboxMode{suspending, deferring} {
		if mode == suspending && !c.f.Suspension.Ready {
			continue
		}
		low, high := time.Duration(0), c.limit(mode)
		far := high
		if c.q.proven >= greyboxProven && (c.q.windows < greyboxLookAlways || (c.q.windows+c.q.queue.Index)%greyboxLookEvery == 0) {
			far = c.p.options.Max
		}
		looked := high
		if !all && c.now.mode != interrupting {
			low = time.Duration(float64(c.now.flush) / 1.3)
		}
		for _, flush := range c.p.grid {
			if flush > high && flush <= far && (float64(flush) >= greyboxFirst*float64(looked) || flush == c.p.options.Max) {
				c.look(mode, flush, high)
				looked = flush
			}
			if flush < low || flush > high {
				continue
			}
			if mode != c.now.mode || flush != c.now.flush {
				c.consider(mode, flush)
			}
		}
	}
}

// look predicts a setting that is out of reach. Where it should hold and beats
// all that are in reach, the way there is worth going.
func (c *greyboxChoice) look(mode greyboxMode, flush, high time.Duration) {
	if c.resting(mode, flush > c.now.flush) {
		return
	}
	g := c.plan(mode, flush)
	if c.worthTrying(&g) && (!c.foundFar || g.score < c.far.score) {
		c.far, c.foundFar, c.reach = g, true, c.onGrid(high)
	}
}

// worthTrying reports whether a plan may be tried under the eyes of the guards:
// they see to the CPU, in one window.
func (c *greyboxChoice) worthTrying(g *greyboxPlan) bool {
	return g.bound <= greyboxUse*c.slo && g.utilisation <= max(c.cap(g.mode), greyboxTried)
}

func (c *greyboxChoice) resting(mode greyboxMode, up bool) bool {
	r, ok := c.q.rests[greyboxMove{mode, up, octave(c.f.PacketRate)}]
	return ok && c.q.windows < r.until
}

func (c *greyboxChoice) consider(mode greyboxMode, flush time.Duration) {
	if mode == c.now.mode && flush == c.now.flush {
		return
	}
	g := c.plan(mode, flush)
	rests := c.resting(mode, flush > c.now.flush)
	if rests && c.q.bad < 2 {
		return
	}
	excess := c.excess(&g, greyboxUse)
	if !rests && (!c.foundHope || c.promise(&g) < c.promise(&c.hope)) {
		c.hope, c.foundHope = g, true
	}
	if !c.foundSafest || c.harm(&g) < c.harm(&c.safest) || c.harm(&g) == c.harm(&c.safest) && g.score < c.safest.score {
		c.safest, c.foundSafest = g, true
	}
	if excess > 0 {
		if g.score < c.now.score && (c.binding == "" || g.score > c.bounds.score) {
			c.bounds = g
			c.binding = "the SLO"
			if g.busiest > c.cap(g.mode) {
				c.binding = "the CPU"
			}
		}
		return
	}
	if !c.foundBest || g.score < c.best.score {
		c.best, c.foundBest = g, true
	}
}

// decide chooses.
func (c *greyboxChoice) decide() model.Decision {
	f, q := c.f, c.q
	if f.CostPerPacket <= 0 || f.Quantile <= 0 {
		return c.hold(fmt.Sprintf("cost %v per packet and %s %v: not both were observed", f.CostPerPacket, quantile(*f), f.Quantile))
	}
	huge := micros(f.Quantile) > greyboxHuge*c.slo
	if q.bad >= 2 || q.bad == 1 && huge {
		return c.retreat()
	}
	if excess := c.excess(&c.now, 1); excess > 0 && (c.now.mode != interrupting || q.bad > 0) {
		return c.avoid()
	}
	if q.bad == 1 {
		return c.hold(fmt.Sprintf("%s %v is above the SLO %v, where %.0f us was predicted; one window does not confirm it", quantile(*f), f.Quantile, f.Objective.SLO, c.now.delay))
	}
	c.survey(false)
	if d, ok := c.setOut(); ok {
		return d
	}
	if !c.foundBest {
		return c.hold("no other setting is predicted to hold" + c.bound())
	}
	gain := 1 - c.best.score/c.now.score
	need := c.threshold()
	if c.best.flush > c.now.flush && q.windows-q.moved < greyboxDwell && q.last == nil && q.bad > 0 {
		return c.hold("waiting after a step back")
	}
	if gain < need {
		return c.hold(fmt.Sprintf("%v at %.0f us would save %.1f%%, less than %.1f%%%s", c.best.mode, micros(c.best.flush), 100*gain, 100*need, c.bound()))
	}
	purpose := model.PurposeCost
	if c.best.costError > greyboxUnknown {
		purpose = model.PurposeExploration
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
	return c.move(&step, model.PurposeExploration, fmt.Sprintf("on the way to %v at %.0f us, which would save %.1f%%", c.far.mode, micros(c.far.flush), 100*(1-c.far.score/c.now.score))), true
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
	if !ok {
		target, ok = c.safest, c.foundSafest
	}
	c.now.delay = max(c.now.delay, micros(c.f.Quantile))
	if !ok || !c.foundBest && c.harm(&target) > 0.9*c.harm(&c.now) {
		if c.foundHope && c.promise(&c.hope) < greyboxHope*micros(c.f.Quantile) {
			return c.move(&c.hope, model.PurposeSafety, over+", no setting is predicted to hold, and of this one the least is known")
		}
		if c.foundHope {
			over += fmt.Sprintf("; at best %v at %.0f us comes to %.0f us", c.hope.mode, micros(c.hope.flush), c.promise(&c.hope))
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
	target, ok := c.best, c.foundBest
	if !ok {
		target, ok = c.safest, c.foundSafest
		if !ok || c.harm(&target) > 0.9*c.harm(&c.now) {
			return c.hold(why + "; no other setting is predicted to do much better")
		}
	}
	return c.move(&target, model.PurposeSafety, why)
}

// onGrid returns the largest timeout of the grid that is not above flush.
func (c *greyboxChoice) onGrid(flush time.Duration) time.Duration {
	out := c.p.grid[0]
	for _, g := range c.p.grid {
		if g <= flush {
			out = g
		}
	}
	return out
}

// bound tells what kept cheaper settings out.
func (c *greyboxChoice) bound() string {
	if c.binding == "" {
		return ""
	}
	return fmt.Sprintf("; %s keeps out %v at %.0f us (%.0f us with the margin, CPU %.0f%%)", c.binding, c.bounds.mode, micros(c.bounds.flush), c.bounds.bound, 100*c.bounds.busiest)
}

func (c *greyboxChoice) hold(why string) model.Decision {
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
	why := fmt.Sprintf("%s; %v at %.0f us is predicted to cost %.0f ns per packet (within %.1f%%; now %.0f) with %s %.0f us (%.0f with what is not known, and %.1f times the noise) and the CPU %.0f%% busy",
		reason, to.mode, micros(to.flush), to.cost, 100*to.costError, c.now.cost, quantile(*c.f), to.delay, to.bound, c.q.margin, 100*to.utilisation)
	if c.q.note != "" {
		why = c.q.note + "; " + why
	}
	return model.Decision{
		Settings: c.settings(to),
		Purpose:  purpose,
		Why:      why,
		Forecast: c.forecast(to),
	}
}

func (c *greyboxChoice) forecast(g *greyboxPlan) *model.Forecast {
	if !(g.cost > 0) || g.cost > 1e12 || g.delay > 1e12 {
		return nil
	}
	const further = 1.25
	other := *c
	other.peak = 0
	if c.peak > c.rate {
		plan := other.plan(g.mode, g.flush)
		g = &plan
	}
	other.rate *= further
	more := other.plan(g.mode, g.flush)
	return &model.Forecast{
		PacketRate:      c.rate,
		CostPerPacket:   time.Duration(g.cost),
		CostError:       math.Sqrt(g.costError*g.costError + c.q.costNoise.variance),
		Delay:           time.Duration(g.delay * 1e3),
		DelayError:      time.Duration(min(g.delayError, 1e12) * 1e3),
		CostElasticity:  math.Log(more.cost/g.cost) / math.Log(further),
		DelayElasticity: math.Log(more.delay/g.delay) / math.Log(further),
		Utilisation:     g.utilisation,
	}
}

// settings returns the whole settings of a plan.
func (c *greyboxChoice) settings(g *greyboxPlan) model.Settings {
	if g.mode == interrupting {
		return model.Settings{}
	}
	s := model.Settings{DeferHardIRQs: deferUntil(g.flush, c.f.PacketRate), GROFlushTimeout: g.flush}
	if g.mode == suspending {
		s.IRQSuspendTimeout = suspendWithin(c.f.CostPerPacket)
		if c.f.Suspension.Steered {
			s.BusyPoll = model.BusyPoll{Prefer: true, Budget: greyboxPollBudget}
		}
	}
	return s
}

// greyboxPollBudget is the packets per busy poll: what the kernel grants
// everybody, and as good as any below saturation.
const greyboxPollBudget = 64

// suspendWithin returns the suspend timeout for an application that takes so long
// per packet: twice the time for the largest batch, two polls of 64 packets. At
// 1 ms and less it ends in the midst of batches near saturation; longer than
// 20 ms a stuck application would hold packets up. It is rounded up to few
// values.
func suspendWithin(perPacket time.Duration) time.Duration {
	const batch = 2 * greyboxPollBudget
	for _, t := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond} {
		if 2*batch*perPacket <= t {
			return t
		}
	}
	return 20 * time.Millisecond
}

// deferUntil returns the defer count for a flush timeout: as many empty polls
// as outlast all but one in a thousand of the gaps between pairs of packets (a
// request and the acknowledgement of the response before) that come at random,
// and one more; at least 5, and for no longer than 2 ms. A gap that outlasts
// them puts the next packet under the device's interrupt moderation, and one in
// twenty of those would be what a p99 shows. It is rounded up to few values, so
// that a load that wanders does not change it.
func deferUntil(flush time.Duration, packetRate float64) uint32 {
	const gaps = 2 * 6.9 // -ln(0.001)
	longest := deferFor(flush)
	need := math.Ceil(gaps/(packetRate*flush.Seconds())) + 1
	for _, n := range []uint32{5, 10, 20, 40} {
		if need <= float64(n) {
			return min(n, longest)
		}
	}
	return longest
}
