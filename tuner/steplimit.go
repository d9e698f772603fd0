package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// stepLimitGuard shortens moves that go up too far at once. Orders and returns
// to what held before are not limited.
type stepLimitGuard struct{}

func (stepLimitGuard) rule(t *turn, next func() ruling) ruling {
	r := next()
	if !r.moves() || r.verdict != model.VerdictApplied || r.purpose == model.PurposeOrder ||
		r.purpose == model.PurposeReturn && t.q.held(r.settings, t.merged.PacketRate) {
		return r
	}
	o := t.loop.options.StepLimit
	limited := r.settings
	limited.GROFlushTimeout = min(limited.GROFlushTimeout, t.flushWithinReach())
	limited.IRQSuspendTimeout = min(limited.IRQSuspendTimeout, reach(t.active.IRQSuspendTimeout, o.Factor, o.Suspend))
	limited.DeferHardIRQs = uint32(min(time.Duration(limited.DeferHardIRQs), reach(time.Duration(t.active.DeferHardIRQs), o.Factor, time.Duration(o.Defer))))
	if limited == r.settings {
		return r
	}
	farthest := fmt.Sprintf("by a factor of %g", o.Factor)
	if t.headroom() > 0 {
		farthest += fmt.Sprintf(", or by %g of the delay that the SLO leaves,", o.Headroom)
	}
	why := fmt.Sprintf("%v shortened to %v: one step goes up %s at most; %s", r.settings, limited, farthest, r.why)
	if limited == t.active {
		return t.deny(r, model.VerdictRefused, "step-limit", why)
	}
	r.settings, r.guard, r.why = limited, "step-limit", why
	return r
}

// flushWithinReach returns how far up the flush timeout may go in one step.
func (t *turn) flushWithinReach() time.Duration {
	o := t.loop.options.StepLimit
	return max(reach(t.active.GROFlushTimeout, o.Factor, o.Flush), t.headroom())
}

// headroom returns the flush timeout that would use up the allowed share of
// what the SLO leaves: a packet waits for the timer by the flush timeout at
// most, so a step of that size cannot break the SLO by itself. It is zero where
// the delay is not known, and where no share is allowed.
func (t *turn) headroom() time.Duration {
	share, free := t.loop.options.StepLimit.Headroom, t.loop.options.Objective.SLO-t.merged.Quantile
	if !(share > 0) || t.merged.Quantile <= 0 || free <= 0 {
		return 0
	}
	step := time.Duration(share * float64(free))
	return t.active.GROFlushTimeout + step.Truncate(time.Microsecond)
}

// reach returns how far a value may go up, saturating.
func reach(from time.Duration, factor float64, always time.Duration) time.Duration {
	far := float64(max(0, from)) * factor
	if far >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Duration(far), always)
}
