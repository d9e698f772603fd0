package readiness

import (
	"fmt"

	"autotune/model"
)

// An application that is busy less of the time sleeps between its batches, and
// each time it does the kernel polls in its place. Memcached gained where it
// polled 95% of its packets or more itself, being busy all the time, and lost
// under every open load that was tried: up to 90% of a CPU and 89% of the
// packets (docs/applications.md).
const (
	// driven is the least share of packets that an application has to poll
	// itself to gain.
	driven = 0.9
	// busy is the share of a CPU that it has to use for that, together with
	// what polls for it.
	busy = 0.9
)

// gain tells whether the application is busy enough for its own polls to find
// packets. Where suspensions were seen it is measured, and otherwise predicted:
// suspended, the application does the polling as well, so what polls for it now
// counts as its work.
func (j judge) gain(watching []model.EpollContext, used []*NAPI) Answer {
	a := Answer{Question: QuestionGain}
	var own, all, suspended uint64
	for _, n := range used {
		if n.Suspension == nil || n.Suspension.Started == 0 || n.Polled == nil {
			continue
		}
		own += n.Polled.Application
		all += n.Polled.Packets
		suspended += n.Suspension.Started
	}
	var enough bool
	switch cpus := j.cpus(used); {
	case all > 0:
		share := float64(own) / float64(all)
		a.Detail = fmt.Sprintf("in %s it polled %.0f%% of its packets itself", model.Count(suspended, "suspension"), 100*share)
		enough = share >= driven
	case cpus == nil:
		a.Verdict, a.Detail = Unknown, "how busy it is was not observed"
		a.Remedy = "ask again under load, as root"
		return a
	default:
		each := *cpus / float64(len(watching))
		a.Detail = fmt.Sprintf("with what polls for it, it uses %.0f%% of a CPU for %s", 100**cpus, model.Count(len(watching), "context"))
		enough = each >= busy
	}
	if enough {
		a.Verdict = Yes
		return a
	}
	a.Verdict = No
	a.Consequence = "suspension gains nothing at this load: the application often sleeps, and each time hands the instance back to timers and interrupts, " +
		"which costs CPU and waits for the flush timeout"
	a.Remedy = "plain interrupts, or deferral where CPU matters more than delay; ask again when the load is higher, or have fewer threads do the work"
	return a
}

// cpus returns how many CPUs the process and what polls for it use; nil where
// that was not observed.
func (j judge) cpus(used []*NAPI) *float64 {
	if j.facts.App.CPUs == nil {
		return nil
	}
	sum := *j.facts.App.CPUs
	for _, n := range used {
		if n.ThreadCPUs != nil {
			sum += *n.ThreadCPUs
		}
	}
	return &sum
}

// GainsNothing reports whether the application, even where it is ready, would
// not gain at its present load.
func GainsNothing(answers []Answer) bool {
	for _, a := range answers {
		if a.Question == QuestionGain && a.Verdict == No {
			return true
		}
	}
	return false
}
