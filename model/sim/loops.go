package sim

import (
	"time"

	"autotune/model"
)

// starter is what started a poll, and so which of the three loops it belongs
// to.
type starter uint8

const (
	starterNone starter = iota
	starterInterrupt
	starterTimer
	starterApplication
	starters
)

// loops is what a live probe remembers of a NAPI instance between two polls
// (bpf/state.h), so that samples tell the same of a simulated one.
type loops struct {
	starter starter
	// fired tells that the hrtimer has scheduled the NAPI since the last poll,
	// again that the last poll used up its budget, and masked that it left the
	// interrupt masked for longer than an application busy polls.
	fired, again, masked bool
	// suspendedAt is when the suspension under way began, never if there is
	// none; safety tells that the hrtimer was last armed with its timeout.
	suspendedAt int64
	safety      bool
}

// notePoll takes note of a poll that ended at the instant at, before
// napi_complete_done.
func (l *lane) notePoll(at int64, work, budget int, softirq bool) {
	o, c := &l.loops, &l.count
	by := starterInterrupt
	switch {
	case !softirq:
		by = starterApplication
	case o.fired, o.again && o.starter == starterTimer:
		by = starterTimer
		c.timerPolls.add(work, budget)
	}
	if by != o.starter {
		c.takeovers[o.starter][by]++
		o.starter = by
	}
	if softirq && o.suspendedAt != never {
		c.resumed++
		l.endSuspension(at)
	}
	deferring := l.knobs.DeferHardIRQs > 0 && l.flush > 0
	left := l.deferCount
	if work > 0 {
		left = l.knobs.DeferHardIRQs
	}
	masked := work >= budget || (deferring && (!softirq || left > 0))
	if o.masked && !masked && softirq && deferring {
		c.unmasked++
	}
	o.masked = masked
	o.fired, o.again = false, work >= budget
}

// noteTimer takes note of the hrtimer that schedules the NAPI at the instant at.
func (l *lane) noteTimer(at int64) {
	o := &l.loops
	o.fired = true
	if o.suspendedAt == never {
		return
	}
	if o.safety {
		l.count.expired++
	} else {
		l.count.flushed++
	}
	l.endSuspension(at)
}

// noteSuspension takes note of an epoll_wait that suspends the interrupt. A
// timeout that is not above the flush timeout cannot be told from it.
func (l *lane) noteSuspension() {
	o := &l.loops
	if o.starter != starterApplication || int64(l.knobs.IRQSuspendTimeout) <= l.flush {
		return
	}
	o.safety = true
	if o.suspendedAt == never {
		o.suspendedAt = l.now
		l.count.suspended++
	}
}

func (l *lane) endSuspension(at int64) {
	l.count.suspension.Add(time.Duration(at-l.loops.suspendedAt), 1)
	l.loops.suspendedAt = never
}

// takeoverCounts returns the counts as samples have them.
func (c *counters) takeoverCounts() *model.Takeovers {
	t := &c.takeovers
	return &model.Takeovers{
		InterruptToTimer:       t[starterInterrupt][starterTimer],
		InterruptToApplication: t[starterInterrupt][starterApplication],
		TimerToInterrupt:       t[starterTimer][starterInterrupt],
		TimerToApplication:     t[starterTimer][starterApplication],
		ApplicationToInterrupt: t[starterApplication][starterInterrupt],
		ApplicationToTimer:     t[starterApplication][starterTimer],
	}
}
