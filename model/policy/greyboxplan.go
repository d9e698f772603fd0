package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
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

// String names the mode and, where there is one, the flush timeout.
func (g *greyboxPlan) String() string {
	if g.mode == interrupting {
		return "plain interrupts"
	}
	return fmt.Sprintf("%v at %.0f us", g.mode, micros(g.flush))
}

// promise is the delay if the optimistic side of the belief is right; the longer
// the SLO is broken, the more optimistic.
func (c *greyboxChoice) promise(g *greyboxPlan) float64 {
	const patience = 4 // windows
	late := float64(c.q.bad) / patience
	return (g.delay - g.unknown*(1+late)) / (1 + late/2)
}

// plan predicts a setting.
func (c *greyboxChoice) plan(mode greyboxMode, flush time.Duration) greyboxPlan {
	out := c.costOf(mode, flush)
	c.addDelay(&out)
	return out
}

// costOf predicts what a setting costs, and not yet its delay.
func (c *greyboxChoice) costOf(mode greyboxMode, flush time.Duration) greyboxPlan {
	out := greyboxPlan{mode: mode, flush: flush}
	x := costRow(mode, flush, c.rate)
	mean, variance := c.q.cost.Predict(&x)
	out.cost, out.costError = math.Exp(min(mean, 30)), math.Sqrt(variance)
	out.utilisation = c.q.full * c.rate * out.cost * 1e-9
	out.busiest = out.utilisation * (1 + min(greyboxBusier, out.costError))
	if c.p.options.Goal == GoalCPU {
		out.score = out.cost * math.Exp(-c.optimism(mode)*out.costError)
	}
	return out
}

// optimism returns how many errors of its cost a setting is given in advance. For
// suspension that was never tried it grows: what is known of it by way of deferral
// alone is not proven wrong by waiting.
func (c *greyboxChoice) optimism(mode greyboxMode) float64 {
	if mode != suspending || c.q.held[suspending] > 0 {
		return greyboxOptimism
	}
	return greyboxOptimism * (1 + min(greyboxCurious, float64(c.q.windows)/greyboxCuriousWindows))
}

// filled predicts the utilisation by what is in place, at a load.
func (c *greyboxChoice) filled(packetRate float64) float64 {
	other := *c
	other.rate = packetRate
	now := other.costOf(c.now.mode, c.now.flush)
	return now.utilisation
}

// addDelay predicts the delay of a setting of which the cost is.
func (c *greyboxChoice) addDelay(g *greyboxPlan) {
	x := delayRow(g.mode, g.flush, c.rate, g.utilisation)
	mean, variance := c.q.delay.Predict(&x)
	g.delay = max(mean, 1)
	noise := c.q.delayNoise.variance * g.delay * g.delay
	g.unknown = math.Sqrt(variance)
	g.delayError = math.Sqrt(variance + noise)
	ignorance := greyboxIgnorance
	if c.first {
		ignorance = greyboxIgnoranceFirst
	}
	g.bound = g.delay + math.Sqrt(ignorance*ignorance*variance+c.q.margin*c.q.margin*noise)
	if ceiling, ok := c.q.ceilings.of(g.flush, c.rate); ok && g.mode == deferring && g.utilisation <= c.cap(g.mode) {
		g.delay, g.bound = min(g.delay, ceiling), min(g.bound, ceiling)
	}
	switch c.p.options.Goal {
	case GoalLatency:
		g.score = g.delay
	case GoalBalanced:
		g.score = g.cost + float64(c.p.options.Price)*g.delay
	case GoalCPU:
	}
}

// dearer reports whether a plan of which the cost is predicted does not save the
// share, whatever its delay is.
func (c *greyboxChoice) dearer(g *greyboxPlan, share float64) bool {
	return c.p.options.Goal == GoalCPU && g.score > (1-share)*c.now.score
}

// price adds to a plan's score what it is worth to be prepared for a jump of the
// load.
func (c *greyboxChoice) price(g *greyboxPlan) {
	caution := c.q.caution
	if c.f.Suspension.Ready {
		caution *= greyboxCautionReady
	}
	if c.peak > c.rate && c.q.caution > greyboxCautionLeast && c.p.options.Goal != GoalLatency {
		g.score += caution / c.rate * 1e9 * c.lateAtPeak(g.mode, g.flush)
	}
}

// lateAtPeak returns the probability that the SLO breaks if load jumps to what
// is prepared for.
func (c *greyboxChoice) lateAtPeak(mode greyboxMode, flush time.Duration) float64 {
	x := costRow(mode, flush, c.peak)
	logCost, _ := c.q.cost.Predict(&x)
	u := c.q.full * c.peak * math.Exp(min(logCost, 30)) * 1e-9
	limit := c.cap(mode)
	if mode == deferring && !c.f.Suspension.Ready {
		// What is late in bursts is so at any timeout.
		limit = greyboxBurstFrom
	}
	if u > limit {
		return 1
	}
	x = delayRow(mode, flush, c.peak, u)
	mean, variance := c.q.delay.Predict(&x)
	return above(mean+greyboxIgnorance*math.Sqrt(variance), math.Sqrt(c.q.delayNoise.variance)*mean, greyboxUse*c.slo)
}

// above returns the probability that a normal variable exceeds a limit.
func above(mean, deviation, limit float64) float64 {
	return 0.5 * math.Erfc((limit-mean)/(math.Sqrt2*max(deviation, 1e-9)))
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

// harm returns how many windows a plan violates, as a share, if all is as
// predicted or, of what is not known, somewhat worse, and by how much.
func (c *greyboxChoice) harm(g *greyboxPlan) float64 {
	full := max(0, g.utilisation-c.cap(g.mode))
	delay := g.delay + g.unknown
	limit := c.left * c.slo
	late := above(delay, math.Sqrt(c.q.delayNoise.variance)*delay, limit)
	return late + max(0, delay/limit-1) + greyboxFullPrice*full*full
}

func (c *greyboxChoice) forecast(g *greyboxPlan) *model.Forecast {
	if !(g.cost > 0) || g.cost > 1e12 || g.delay > 1e12 {
		return nil
	}
	const further = 1.25
	other := *c
	other.rate *= further
	more := other.plan(g.mode, g.flush)
	return &model.Forecast{
		PacketRate:      c.rate,
		CostPerPacket:   time.Duration(g.cost),
		CostError:       math.Sqrt(g.costError*g.costError + c.q.costNoise.variance),
		Delay:           time.Duration(g.delay * 1e3),
		DelayError:      time.Duration(min(max(g.delayError, c.bursty(g)), 1e12) * 1e3),
		CostElasticity:  math.Log(more.cost/g.cost) / math.Log(further),
		DelayElasticity: math.Log(more.delay/g.delay) / math.Log(further),
		Utilisation:     g.utilisation,
	}
}
