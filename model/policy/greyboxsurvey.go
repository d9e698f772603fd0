package policy

import (
	"slices"
	"time"
)

// greyboxEntry is the share of what the delay with interrupts leaves of the SLO
// that the first flush timeout may use up.
const greyboxEntry = 0.9

// greyboxFirstRoom is the utilisation with plain interrupts below which the first
// move goes to deferral also where interrupts may be suspended.
const greyboxFirstRoom = 0.65

// greyboxKeptWindows is the number of windows for which a setting must have held
// to be gone back to at once.
const greyboxKeptWindows = 4

// known returns the cheapest setting that held at this load before and should
// hold again.
func (c *greyboxChoice) known() (best greyboxPlan, ok bool) {
	for k, windows := range c.q.kept {
		if windows < greyboxKeptWindows || !k.near(c.f.PacketRate) || k.mode == suspending && !c.f.Suspension.Ready {
			continue
		}
		g := c.plan(k.mode, k.flush)
		if c.excess(&g, c.use) > 0 {
			continue
		}
		c.price(&g)
		if !ok || g.score < best.score || g.score == best.score && (g.flush < best.flush || g.flush == best.flush && g.mode < best.mode) {
			best, ok = g, true
		}
	}
	return best, ok
}

// longestKept returns the largest flush timeout of a mode that held at this load
// before, or at up to half an octave more: what a still higher load did not bear says
// nothing of it.
func (c *greyboxChoice) longestKept(mode greyboxMode) (longest time.Duration) {
	for k, windows := range c.q.kept {
		if windows >= greyboxKeptWindows && k.mode == mode && k.near(c.f.PacketRate) && k.halfOctave >= halfOctave(c.f.PacketRate) {
			longest = max(longest, k.flush)
		}
	}
	return longest
}

// greyboxSeldom is the number of windows up to which what interrupts showed at a
// load says little.
const greyboxSeldom = 3

// greyboxStuck is the number of windows in a row above the SLO after which a
// deferral may be doubled.
const greyboxStuck = 4

// interruptsHold reports whether plain interrupts hold the SLO at this load as a
// rule. Where they do, a timeout that costs more than they do is for nothing.
func (c *greyboxChoice) interruptsHold() bool {
	l := c.q.ceilings[halfOctave(c.f.PacketRate)]
	return l != nil && l.median() <= c.slo && (c.q.bad == 0 || l.seen > greyboxSeldom)
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
	first := c.p.options.Start
	if mode == deferring && !c.f.Suspension.Ready {
		first = max(first, c.longestKept(mode))
	}
	if c.now.mode != interrupting && c.f.Suspension.Ready || c.now.mode == deferring && c.now.utilisation < greyboxBurstFrom {
		first = max(first, c.now.flush+c.room())
	}
	if c.now.mode == interrupting && mode == deferring {
		// Deferral adds its timeout to the delay at most, so what fits into the
		// SLO beside the present delay can be tried at once: short timeouts can
		// cost more than interrupts, and long ones less.
		first = max(first, time.Duration(greyboxEntry*float64(c.f.Objective.SLO-c.f.Quantile)))
	}
	if c.now.mode == deferring && mode == deferring && c.q.bad >= greyboxStuck && c.now.busiest > greyboxTried {
		// Nothing near holds; where the timers fill the CPU, twice the timeout
		// frees half of what they take.
		first = max(first, 2*c.now.flush)
	}
	return min(c.p.options.Max, max(first, time.Duration(step*float64(held))))
}

// survey predicts the settings that may be chosen: all, or those near the
// present flush timeout.
func (c *greyboxChoice) survey(all bool) {
	c.all = all
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
		if mode == suspending && c.now.mode == deferring {
			// The timer is the same: what holds with suspension is not far beyond
			// what holds with deferral, whatever is not known of suspension.
			high = min(high, c.now.flush)
			far = min(far, high)
		}
		looked := high
		switch {
		case c.now.mode == interrupting && mode == deferring && c.interruptsHold():
			low = fruitful(c.f.PacketRate, packetsPerPoll(*c.f))
		case !all && c.now.mode != interrupting:
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
		for _, flush := range c.between() {
			if flush >= low && flush <= high {
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
	g := c.costOf(mode, flush)
	if c.dearer(&g, greyboxFarGain) {
		return
	}
	c.addDelay(&g)
	if !c.worthTrying(&g) || c.foundFar && g.score >= c.far.score {
		return
	}
	c.price(&g)
	if !c.foundFar || g.score < c.far.score {
		c.far, c.foundFar, c.reach = g, true, c.onGrid(high)
	}
}

// worthTrying reports whether a plan may be tried under the eyes of the guards:
// they see to the CPU, in one window.
func (c *greyboxChoice) worthTrying(g *greyboxPlan) bool {
	return g.bound <= greyboxUse*c.left*c.slo && g.utilisation <= max(c.cap(g.mode), greyboxTried)
}

func (c *greyboxChoice) resting(mode greyboxMode, up bool) bool {
	r, ok := c.q.rests[greyboxMove{mode, up, octave(c.f.PacketRate)}]
	return ok && c.q.windows < r.until
}

func (c *greyboxChoice) consider(mode greyboxMode, flush time.Duration) {
	if mode == c.now.mode && flush == c.now.flush {
		return
	}
	if c.first && mode != interrupting && (mode == deferring) != (c.now.utilisation < greyboxFirstRoom) {
		// Where the CPU has room deferral costs less; suspension does not fill it
		// with timers, whatever the load.
		return
	}
	g := c.costOf(mode, flush)
	if !c.all && c.dearer(&g, 0) {
		return
	}
	c.addDelay(&g)
	rests := c.resting(mode, flush > c.now.flush)
	if rests && c.q.bad < 2 {
		return
	}
	if mode != suspending && c.now.mode == deferring && flush < c.now.flush && c.f.Utilisation > fullCPU && g.utilisation > greyboxFullRefused {
		// The timers would be the load.
		return
	}
	if c.now.mode == interrupting && mode == deferring {
		c.enter(&g)
	}
	excess := c.excess(&g, c.use)
	if c.all {
		c.lastResort(&g, rests)
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
	if c.foundBest && g.score >= c.best.score {
		return
	}
	c.price(&g)
	if !c.foundBest || g.score < c.best.score {
		c.best, c.foundBest = g, true
	}
}

// lastResort keeps what is to be done where nothing is predicted to hold.
func (c *greyboxChoice) lastResort(g *greyboxPlan, rests bool) {
	if g.mode != suspending && c.f.Suspension.Ready && max(g.utilisation, c.now.utilisation) > greyboxFullDeferring {
		// Where an application that polls by itself cannot keep up, softirqs take
		// from it what it has.
		return
	}
	if !c.f.Suspension.Ready && g.mode == interrupting && c.now.mode == deferring && g.utilisation > max(greyboxFullDeferring, c.now.utilisation) {
		// More work does not free a CPU.
		return
	}
	if !rests && (!c.foundHope || c.promise(g) < c.promise(&c.hope)) {
		c.hope, c.foundHope = *g, true
	}
	if harm := c.harm(g); !c.foundSafest || harm < c.leastHarm || harm == c.leastHarm && g.score < c.safest.score {
		c.safest, c.foundSafest, c.leastHarm = *g, true, harm
	}
}

// enter tightens what is predicted of a first deferral by what needs no model: a
// packet waits for the timer by the flush timeout at most, and what costs no
// more does not fill the CPU further.
func (c *greyboxChoice) enter(g *greyboxPlan) {
	if c.f.Quantile <= c.f.Objective.SLO {
		g.bound = min(g.bound, micros(c.f.Quantile+g.flush))
	}
	if g.utilisation <= c.now.utilisation {
		g.busiest = min(g.busiest, c.cap(g.mode))
	}
}

// between returns the flush timeouts of the finer grid that are next to the
// present one. Where a shorter one always mends what came out otherwise, the SLO
// is gone near to by smaller steps.
func (c *greyboxChoice) between() []time.Duration {
	if !c.f.Suspension.Ready || c.now.mode == interrupting {
		return nil
	}
	at, _ := slices.BinarySearch(c.p.fine, c.now.flush)
	return c.p.fine[max(0, at-1):min(len(c.p.fine), at+2)]
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
