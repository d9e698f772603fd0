package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"autotune/model"
)

const (
	// greyboxBurstWindows is the number of windows of a full CPU that are
	// remembered, greyboxBurstLeast that from which on they say something, and
	// greyboxBurstLoad by how much their load may differ from the present one.
	greyboxBurstWindows = 32
	greyboxBurstLeast   = 3
	greyboxBurstLoad    = 0.06
	// greyboxBurstFrom is the utilisation from which on there are bursts.
	greyboxBurstFrom = 0.78
	// greyboxBurstUse is the share of the SLO that windows without a burst may use
	// up.
	greyboxBurstUse = 0.955
	// greyboxBurstError and greyboxBurstErrorMoved are the error of the delay that
	// is expected beside bursts, as a share of the SLO: that of what is in place,
	// and that of a move.
	greyboxBurstError      = 1
	greyboxBurstErrorMoved = 0.15
)

// greyboxBursts are the last windows in which deferral filled the CPU. Most of
// them are late by a burst of work, at any timeout; what the timeout does shows
// in the least late: it adds its length and no more.
type greyboxBursts struct {
	windows [greyboxBurstWindows]greyboxBurst
	seen    int
}

// greyboxBurst is one window.
type greyboxBurst struct {
	// rate is the load in packets per second, and rest what the delay has
	// beside the flush timeout, in us.
	rate, rest float64
	flush      time.Duration
}

// see takes a window, unless load changed in it: that describes neither load.
func (b *greyboxBursts) see(f *model.Features) {
	if math.Abs(f.RateChange) > greyboxJump {
		return
	}
	flush := current(f.Active)
	b.windows[b.seen%len(b.windows)] = greyboxBurst{f.PacketRate, micros(f.Quantile - flush), flush}
	b.seen++
}

// at returns the windows at a load.
func (b *greyboxBursts) at(packetRate float64) (out []greyboxBurst) {
	for _, w := range b.windows[:min(b.seen, len(b.windows))] {
		if math.Abs(w.rate-packetRate) <= greyboxBurstLoad*packetRate {
			out = append(out, w)
		}
	}
	return out
}

// rest returns what the delay has beside the flush timeout without bursts, in us;
// ok is false where too few windows say so.
func (b *greyboxBursts) rest(packetRate float64) (least float64, ok bool) {
	windows := b.at(packetRate)
	if len(windows) < greyboxBurstLeast {
		return 0, false
	}
	least = windows[0].rest
	for _, w := range windows {
		least = min(least, w.rest)
	}
	return least, true
}

// full answers a CPU that deferral fills: with the longest timeout at which a
// window without a burst holds the SLO, as the less timers take of the CPU, the
// fewer bursts there are. It is gone to by steps that are not predicted to fill
// the CPU. ok is false where that is no answer.
func (c *greyboxChoice) full() (d model.Decision, ok bool) {
	if c.f.Suspension.Ready || c.now.mode != deferring || c.now.utilisation < greyboxBurstFrom {
		return d, false
	}
	c.survey(true)
	why := fmt.Sprintf("deferral fills the CPU at %s packets/s, which is late in bursts", rate(c.f.PacketRate))
	rest, ok := c.q.bursts.rest(c.f.PacketRate)
	longest := time.Duration((greyboxBurstUse*c.slo - rest) * 1e3)
	if !ok || longest < c.p.options.Min {
		// What moved here already waits for a window without a burst.
		windows := c.q.bursts.at(c.f.PacketRate)
		moved := slices.ContainsFunc(windows, func(w greyboxBurst) bool { return w.flush != c.now.flush })
		if c.foundBest || !moved || len(windows) == greyboxBurstWindows {
			return d, false
		}
		return c.hold(why), true
	}
	why += fmt.Sprintf("; without them %s is %.0f us beside the flush timeout", quantile(*c.f), rest)
	if c.foundBest && (longest < c.p.options.Start || c.best.flush >= c.nearest(longest)) {
		return d, false
	}
	// Shorter ones fill the CPU with timers, and are late in as many windows.
	to := c.nearest(min(max(longest, c.p.options.Start), c.p.options.Max))
	at := c.towards(to)
	if at.flush == c.now.flush || c.resting(deferring, at.flush > c.now.flush) {
		d, at = c.hold(why), c.now
	} else {
		d = c.move(&at, model.PurposeSafety, why)
	}
	if d.Forecast != nil {
		d.Forecast.Delay = time.Duration(rest*1e3) + at.flush
	}
	return d, true
}

// towards returns the plan that is the nearest to a timeout of deferral on the way
// to it and not predicted to fill the CPU.
func (c *greyboxChoice) towards(to time.Duration) greyboxPlan {
	if to >= c.now.flush {
		return c.plan(deferring, to)
	}
	for _, flush := range c.p.grid {
		if flush < to || flush >= c.now.flush {
			continue
		}
		if g := c.plan(deferring, flush); g.utilisation <= greyboxFullRefused {
			return g
		}
	}
	return c.now
}

// bursty returns the error of a plan's predicted delay, in us, where deferral
// would fill the CPU: that of a window with a burst.
func (c *greyboxChoice) bursty(g *greyboxPlan) float64 {
	switch {
	case c.f.Suspension.Ready || g.mode != deferring || g.utilisation < greyboxBurstFrom:
		return 0
	case g.mode == c.now.mode && g.flush == c.now.flush:
		return greyboxBurstError * c.slo
	}
	return greyboxBurstErrorMoved * c.slo
}

// nearest returns the timeout of the grid that is the nearest to flush, as a ratio.
func (c *greyboxChoice) nearest(flush time.Duration) time.Duration {
	return c.onGrid(time.Duration(float64(flush) * math.Sqrt(c.p.options.Grid)))
}
