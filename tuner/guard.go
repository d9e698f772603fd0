package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// guard stands between the policy and the actuator. It may answer a turn
// without asking further in, or change what comes from there.
type guard interface {
	rule(t *turn, next func() ruling) ruling
}

// ruling is what is to become of one queue in one window.
type ruling struct {
	settings model.Settings
	// proposed is what the policy asked for, before the guards.
	proposed   model.Settings
	purpose    model.Purpose
	why        string
	propensity float64
	// forecast is what the policy expects at proposed; nil where it does not
	// say.
	forecast *model.Forecast
	// otherwise is what it expects where the move is held.
	otherwise *model.Forecast
	// verdict is VerdictApplied for a move that still has to be applied.
	verdict model.Verdict
	guard   string
	// own tells that the ruling is about what the policy proposed, and not a
	// guard's move in its place.
	own bool
	// trial tells what the trial guard has to do once the move is applied.
	trial trialAction
}

// moves reports whether there is something to apply.
func (r *ruling) moves() bool {
	return r.verdict == model.VerdictApplied || r.verdict == model.VerdictReverted || r.verdict == model.VerdictAborted
}

// seeks reports whether the move is made for CPU or knowledge, which is never
// urgent.
func (r *ruling) seeks() bool {
	return r.moves() && (r.purpose == model.PurposeCost || r.purpose == model.PurposeExploration)
}

// turn is one queue's decision in one window.
type turn struct {
	loop   *Loop
	q      *queueState
	sample *model.Sample
	queue  *model.QueueSample
	active model.Settings
	// raw is the last window alone; merged is all since the last decision.
	raw, merged model.Features
	rawPackets  uint64
	// ordered tells that the policy needs no evidence.
	ordered bool
	// settling and thin tell that the policy is not to be asked: only the
	// guards that limit harm may act.
	settling, thin bool
	// urgent tells that the policy is asked in a settling window all the same,
	// for a move for safety and no other.
	urgent bool
	// taken is what others took of the CPU beyond the usual, where it spoils the
	// window.
	taken float64
	// enough tells that the merged window bears a decision, and skip that the
	// queue cannot be decided upon.
	enough, skip bool
	// entries are what the guards concluded on the way.
	entries []Entry
	// asked is the policy's answer.
	asked *ruling
	// seen is what the guards saw, for the journal.
	seen seen
}

// hold returns the ruling that changes nothing.
func (t *turn) hold(guard, why string) ruling {
	return ruling{settings: t.active, proposed: t.active, purpose: model.PurposeHold, why: why, verdict: model.VerdictHeld, guard: guard}
}

// deny turns a proposal into a ruling that changes nothing.
func (t *turn) deny(r ruling, verdict model.Verdict, guard, why string) ruling {
	r.settings = t.active
	r.verdict = verdict
	r.guard = guard
	r.trial = trialNone
	r.why = why
	return r
}

// ask asks the policy, once.
func (t *turn) ask() ruling {
	if t.thin && !t.urgent {
		return t.hold("evidence", "")
	}
	if t.asked != nil {
		return *t.asked
	}
	f := t.merged
	f.Outcome = t.q.outcome
	t.q.outcome = model.Outcome{}
	d := t.loop.options.Policy.Decide(f)
	r := ruling{
		settings:   d.Settings,
		proposed:   d.Settings,
		purpose:    d.Purpose,
		why:        d.Why,
		propensity: d.Propensity,
		forecast:   d.Forecast,
		otherwise:  d.Otherwise,
		verdict:    model.VerdictApplied,
		own:        true,
	}
	switch d.Purpose {
	case model.PurposeHold, "":
		r.settings, r.proposed, r.purpose = t.active, t.active, model.PurposeHold
		r.verdict = model.VerdictHeld
	case model.PurposeCost, model.PurposeSafety, model.PurposeExploration, model.PurposeReturn, model.PurposeOrder:
		if d.Settings == t.active {
			r.verdict = model.VerdictHeld
		}
	default:
		r = t.deny(r, model.VerdictRefused, "loop", fmt.Sprintf("the policy gave the unknown purpose %q", d.Purpose))
	}
	if t.urgent && r.moves() && r.purpose != model.PurposeSafety {
		r = t.deny(r, model.VerdictHeld, "evidence", fmt.Sprintf("settling on %v; %s", t.active, r.why))
	}
	t.asked = &r
	return r
}

// direction tells what a move does to how much is deferred: +1, -1 or 0.
func direction(from, to model.Settings) int {
	weight := func(s model.Settings) time.Duration {
		if s.Mode() == model.ModeInterrupts {
			return 0
		}
		return s.GROFlushTimeout
	}
	switch a, b := weight(from), weight(to); {
	case b > a:
		return 1
	case b < a:
		return -1
	case to.IRQSuspendTimeout != from.IRQSuspendTimeout:
		return sign(to.IRQSuspendTimeout > from.IRQSuspendTimeout)
	case to.DeferHardIRQs != from.DeferHardIRQs:
		return sign(to.DeferHardIRQs > from.DeferHardIRQs)
	case to.BusyPoll != from.BusyPoll:
		return sign(from.BusyPoll == model.BusyPoll{} || to.BusyPoll.Span > from.BusyPoll.Span || to.BusyPoll.Budget > from.BusyPoll.Budget)
	}
	return 0
}

func sign(positive bool) int {
	if positive {
		return 1
	}
	return -1
}

// loadIndex numbers half octaves of packets per second.
func loadIndex(rate float64) int {
	if !(rate >= 1) || math.IsInf(rate, 0) {
		return 0
	}
	return int(math.Round(2 * math.Log2(rate)))
}
