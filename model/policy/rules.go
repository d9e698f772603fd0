package policy

import (
	"math"
	"time"

	"autotune/model"
)

// Policies learn one number, the flush timeout. What else a setting holds
// follows from it by the rules of this file, so that equal timeouts are equal
// settings: what guards and policies remember of one is then not spread over
// many.

const (
	// deferredFor is how long deferral outlasts the last packet: longer than
	// the usual gaps between packets, and short enough that a queue that falls
	// quiet is soon back at interrupts.
	deferredFor = 2 * time.Millisecond
	// suspendLeast and suspendMost bound the suspend timeout. With 1 ms a
	// saturated application falls back to softirqs; 20 ms is the value of the
	// published measurements.
	suspendLeast = 5 * time.Millisecond
	suspendMost  = 20 * time.Millisecond
	// pollBudget is the packets per busy poll: more loses at saturation and
	// gains nothing below it.
	pollBudget = 64
	// fullCPU is the utilisation above which a smaller flush timeout makes
	// delays longer, not shorter, where interrupts are only deferred: the
	// softirq work of the timers is then the load.
	fullCPU = 0.8
)

// deferFor returns the defer count that goes with a flush timeout: as many empty
// polls as fit into 2 ms, 5 to 100.
func deferFor(flush time.Duration) uint32 {
	if flush <= 0 {
		return 0
	}
	return uint32(max(5, min(100, deferredFor/flush)))
}

// deferral returns the settings for a flush timeout; zero is plain interrupts.
func deferral(flush time.Duration) model.Settings {
	if flush <= 0 {
		return model.Settings{}
	}
	return model.Settings{DeferHardIRQs: deferFor(flush), GROFlushTimeout: flush}
}

// modeFor returns the mode in which a flush timeout of more than zero is the
// cheapest: suspension where an application drives the queue, deferral
// elsewhere.
func modeFor(f model.Features) model.Mode {
	if f.Suspension.Ready {
		return model.ModeSuspension
	}
	return model.ModeDeferral
}

// settingsFor returns the whole setting for a mode and a flush timeout on the
// queue that f describes. A flush timeout of zero or less, or
// [model.ModeInterrupts], is plain interrupts. Suspension where the queue is
// not ready for it is deferral.
func settingsFor(mode model.Mode, flush time.Duration, f model.Features) model.Settings {
	if flush <= 0 || mode == model.ModeInterrupts {
		return model.Settings{}
	}
	s := deferral(flush)
	if mode != model.ModeSuspension || !f.Suspension.Ready {
		return s
	}
	s.IRQSuspendTimeout = suspendFor(f)
	if f.Suspension.Steered {
		s.BusyPoll = model.BusyPoll{Budget: pollBudget, Prefer: true}
	}
	return s
}

// suspendFor returns the suspend timeout. It is the safety net for an
// application that stalls, and is to be longer than its longest batch of
// events, which is not known beforehand; so it is the longest that is safe,
// unless the queue has one in the safe range already.
func suspendFor(f model.Features) time.Duration {
	if t := f.Active.IRQSuspendTimeout; t >= suspendLeast && t <= suspendMost {
		return t
	}
	return suspendMost
}

// timersAreTheLoad reports whether less flush timeout would add load that the
// CPU has no room for.
func timersAreTheLoad(f model.Features) bool {
	return f.Active.Mode() != model.ModeSuspension && f.Utilisation > fullCPU
}

// delaysByItself reports whether the flush timeout makes up so much of the SLO
// that a larger one breaks it whatever it frees.
func delaysByItself(f model.Features) bool {
	return 2*f.Active.GROFlushTimeout >= f.Objective.SLO
}

// unobserved returns what a window lacks for a comparison of delay and cost;
// empty when it lacks nothing.
func unobserved(f model.Features) string {
	switch {
	case !(f.PacketRate > 0) || math.IsInf(f.PacketRate, 0):
		return "no packets, nothing to learn"
	case f.Quantile <= 0:
		return "the delay was not observed"
	case f.CostPerPacket <= 0:
		return "the CPU cost is not known, so that nothing can be gained knowingly"
	}
	return ""
}

// broken reports whether the quantile is above the SLO. Without an SLO nothing
// breaks it.
func broken(f model.Features) bool {
	return f.Objective.SLO > 0 && f.Quantile > f.Objective.SLO
}

// resting counts windows down for which a direction that failed is left alone;
// each failure in a row doubles them.
type resting struct {
	left, failures int
}

const (
	restFirst = 16
	restMost  = 4096
)

func (r *resting) fail() {
	r.left = min(restFirst<<min(r.failures, 10), restMost)
	r.failures++
}

func (r *resting) tick() { r.left = max(0, r.left-1) }

// fruitful returns the smallest flush timeout that can save anything where
// interrupts are only deferred: its timer polls half as often as interrupts
// would, since arming and firing it costs up to twice what an interrupt does.
// perPoll is what packetsPerPoll returns.
func fruitful(packetRate, perPoll float64) time.Duration {
	const polls = 2
	d := polls * perPoll / packetRate * float64(time.Second)
	if !(d < float64(math.MaxInt64/2)) {
		return math.MaxInt64 / 2
	}
	return time.Duration(d).Round(time.Microsecond)
}

// packetsPerPoll returns how many packets a poll finds under plain interrupts,
// where that is what is active and was seen; otherwise 1, the least.
func packetsPerPoll(f model.Features) float64 {
	if f.Active.Mode() != model.ModeInterrupts || math.IsInf(f.PacketsPerPoll, 0) || !(f.PacketsPerPoll > 1) {
		return 1
	}
	return f.PacketsPerPoll
}
