package compare

import (
	"math"
	"time"

	"autotune/model"
	"autotune/model/sim"
)

const (
	gridStart = 8 * time.Microsecond
	gridStep  = 1.25
	// suspendTimeout is that of the published runs. It bounds the harm of an
	// application that is stuck, and has no effect otherwise.
	suspendTimeout = 20 * time.Millisecond
	// busyBudget is the packets per busy poll of the published runs.
	busyBudget = 64
)

// grid returns the settings that references choose from: plain interrupts, and
// flush timeouts from 8 us up to the largest, each 25% above the one before,
// with deferral and, where interrupts may be suspended, with suspension.
func (p *Plan) grid() []model.Settings {
	var timeouts []time.Duration
	for g := float64(gridStart); g < float64(p.MaxFlush)*0.99; g *= gridStep {
		timeouts = append(timeouts, time.Duration(g).Round(100*time.Nanosecond))
	}
	timeouts = append(timeouts, p.MaxFlush)
	out := []model.Settings{{}}
	for _, flush := range timeouts {
		out = append(out, p.at(flush))
	}
	if p.Regime == RegimeDeferral {
		return out
	}
	for _, flush := range timeouts {
		out = append(out, deferral(flush))
	}
	return out
}

// deferral returns the settings that only defer with a flush timeout. The defer
// count is what fits into 2 ms, 5 to 100.
func deferral(flush time.Duration) model.Settings {
	return model.Settings{
		DeferHardIRQs:   uint32(max(5, min(100, 2*time.Millisecond/flush))),
		GROFlushTimeout: flush,
	}
}

// at returns the regime's settings for a flush timeout: suspension where the
// application prefers busy polling or can be made to, and deferral otherwise.
func (p *Plan) at(flush time.Duration) model.Settings {
	s := deferral(flush)
	if p.Regime != RegimeDeferral {
		s.IRQSuspendTimeout = suspendTimeout
	}
	if p.Regime == RegimeSteer {
		s.BusyPoll = model.BusyPoll{Prefer: true, Budget: busyBudget}
	}
	return s
}

// host returns what the simulated host is set to at the start.
func (p *Plan) host(s model.Settings) sim.Case {
	c := sim.Case{Name: s.String(), NAPI: s}
	if p.Regime == RegimeSuspend {
		c.Wait = sim.Wait{Prefer: true, Budget: busyBudget}
	}
	return c
}

// distance returns how far apart two settings are, in steps of the grid; plain
// interrupts count as one step below its start.
func distance(a, b model.Settings) float64 {
	flush := func(s model.Settings) float64 {
		if s.Mode() == model.ModeInterrupts {
			return float64(gridStart) / gridStep
		}
		return float64(s.GROFlushTimeout)
	}
	return math.Abs(math.Log(flush(a)/flush(b))) / math.Log(gridStep)
}
