package tuner

import (
	"fmt"
	"slices"
	"time"

	"autotune/model"
)

// evidenceGuard lets the policy decide only upon enough of undisturbed
// observation.
type evidenceGuard struct{}

func (evidenceGuard) rule(t *turn, next func() ruling) ruling {
	if t.ordered {
		return next()
	}
	q, o := t.q, t.loop.options.Evidence
	if t.lapsed() {
		// Another writer's queue is not taken back either.
		return ownershipGuard{}.rule(t, t.giveUp)
	}
	if t.sample.Lost > 0 {
		return t.hold("evidence", fmt.Sprintf("the probes lost %s; the window decides nothing", model.Count(t.sample.Lost, "event")))
	}
	if cpu, steal, ok := t.loop.stolen(t.sample, q.queue); ok {
		return t.hold("evidence", fmt.Sprintf("the hypervisor took %v of %v from CPU %d; the window decides nothing", steal, t.sample.Span, cpu))
	}
	if t.taken > 0 {
		return t.hold("evidence", fmt.Sprintf("others took %.0f%% of the CPU more than usual; the window decides nothing", 100*t.taken))
	}
	if t.settling {
		t.thin, t.urgent = true, t.overtaken()
		if r := next(); t.asked != nil || r.moves() || r.guard == "ownership" {
			return r
		}
		return t.hold("evidence", fmt.Sprintf("settling on %v", t.active))
	}
	need := t.loop.need
	have := q.window.DelaySamples()
	if t.enough {
		return next()
	}
	t.thin = true
	if r := next(); r.moves() || r.guard == "ownership" {
		return r
	}
	aged := q.window.Windows() >= o.Windows
	packets := q.window.Packets()
	if aged {
		q.restartWindow(t)
	}
	switch {
	case aged && packets < need && q.wrote && t.active != q.original && t.active != model.Settings{}:
		q.dropTrial()
		return ruling{
			proposed: model.Settings{},
			purpose:  model.PurposeReturn,
			why:      fmt.Sprintf("only %s in %s: too few to tune by, so plain interrupts", model.Count(packets, "packet"), model.Count(o.Windows, "window")),
			verdict:  model.VerdictApplied,
			guard:    "evidence",
		}
	case t.merged.Delay == nil:
		return t.hold("evidence", "no delay was observed")
	}
	return t.hold("evidence", fmt.Sprintf("%s in %s; p%g needs %d", model.Count(have, "delay"), model.Count(t.merged.Windows, "window"), 100*t.loop.options.Objective.Quantile, need))
}

// lapsed reports whether what the loop wrote has gone unjudged for too long.
func (t *turn) lapsed() bool {
	q, o := t.q, t.loop.options.Evidence
	return o.Lapse > 0 && q.wrote && t.active != q.original &&
		q.unjudged >= o.Windows && t.sample.At-q.judgedAt >= o.Lapse
}

// giveUp goes back to where the queue began.
func (t *turn) giveUp() ruling {
	q := t.q
	q.dropTrial()
	back, _ := t.loop.options.Bounds.Clamp(q.original)
	return ruling{
		settings: back,
		proposed: back,
		purpose:  model.PurposeReturn,
		why: fmt.Sprintf("nothing could be decided for %v (%s; in the last %s), so back from %v to how the queue began",
			(t.sample.At - q.judgedAt).Round(time.Millisecond), model.Count(q.unjudged, "window"), t.lack(), t.active),
		verdict: model.VerdictApplied,
		guard:   "evidence",
	}
}

// lack tells why the present window bears no decision.
func (t *turn) lack() string {
	if t.sample.Lost > 0 {
		return fmt.Sprintf("the probes lost %s", model.Count(t.sample.Lost, "event"))
	}
	if cpu, steal, ok := t.loop.stolen(t.sample, t.q.queue); ok {
		return fmt.Sprintf("the hypervisor took %v of %v from CPU %d", steal, t.sample.Span, cpu)
	}
	if t.taken > 0 {
		return fmt.Sprintf("others took %.0f%% of the CPU more than usual", 100*t.taken)
	}
	if t.merged.Delay == nil {
		return "no delay was observed"
	}
	return fmt.Sprintf("%s, where p%g needs %d", model.Count(t.merged.Delay.Count(), "delay"), 100*t.loop.options.Objective.Quantile, t.loop.need)
}

// stolen reports a CPU that serves the queue and of which the hypervisor took
// more than allowed.
func (l *Loop) stolen(s *model.Sample, q model.Queue) (cpu int, steal time.Duration, ok bool) {
	o := l.options.Evidence
	allowed := max(time.Duration(o.Steal*float64(s.Span)), o.Tick)
	var qs *model.QueueSample
	if i := slices.IndexFunc(s.Queues, func(qs model.QueueSample) bool { return qs.Queue == q }); i >= 0 {
		qs = &s.Queues[i]
	}
	serving, listed := l.servedBy(q, qs)
	for i := range s.CPUs {
		c := &s.CPUs[i]
		if c.Steal > allowed && (!listed || serving[c.CPU]) {
			return c.CPU, c.Steal, true
		}
	}
	return 0, 0, false
}
