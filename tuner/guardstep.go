package tuner

import (
	"time"

	"autotune/model"
)

// GuardStep is the part that one guard, which was asked, had in a decision.
type GuardStep struct {
	Guard string `json:"guard"`
	// Verdict is [GuardPassed], [GuardChanged] where another move came out than
	// went in, or what the guard made of the decision.
	Verdict model.Verdict `json:"verdict"`
	// Numbers are what the guard compares, as far as they are known.
	Numbers []GuardNumber `json:"numbers"`
}

// What a guard may say beside the verdicts of a decision.
const (
	GuardPassed  model.Verdict = "passed"
	GuardChanged model.Verdict = "changed"
)

// GuardNumber is one number that a guard compares with a limit. Names carry the
// unit; whether the limit is a least or a most, Least tells.
type GuardNumber struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// Least: the value has to be at least the limit, and not at most.
	Least bool `json:"at_least"`
}

// EntryForecast is what the policy expected of the next window at what it
// proposed. Errors are standard deviations.
type EntryForecast struct {
	PacketRate    float64       `json:"packets_per_s"`
	CostPerPacket time.Duration `json:"cost_per_packet_ns"`
	CostError     float64       `json:"cost_error_share"`
	Delay         time.Duration `json:"quantile_delay_ns"`
	DelayError    time.Duration `json:"quantile_delay_error_ns"`
	Utilisation   *float64      `json:"utilisation"`
}

// maxGuards bounds how many guards a chain has.
const maxGuards = 10

// GuardNames are the guards in the order of the chain, from the outside in.
func GuardNames() [maxGuards]string {
	return [maxGuards]string{
		"evidence", "ownership", "readiness", "bounds", "step-limit", "cooldown", "trial", "tripwire", "breaker", "slo",
	}
}

// seen is what guards saw that is gone once the decision has been carried out.
type seen struct {
	// asked counts the guards that were asked: always the outermost ones.
	asked    int
	verdicts [maxGuards]model.Verdict
	// breaches is the number of windows in a row above the SLO, measured that
	// of the trial's windows, and onTrial tells that there was a trial;
	// references is that of the windows to compare a new one with.
	breaches, measured, references int
	onTrial                        bool
	// rest is the number of windows since the last trial, -1 without.
	rest, trials, credit int
}

// look keeps what there is before the guards are asked.
func (t *turn) look() {
	q := t.q
	t.seen.references, t.seen.credit, t.seen.trials, t.seen.rest = t.references(), q.credit, t.loop.onTrial(), -1
	if q.trial != nil {
		t.seen.onTrial, t.seen.measured = true, len(q.trial.after)
		if !t.thin && !t.settling {
			t.seen.measured++
		}
	}
	if q.trialEnd > 0 {
		t.seen.rest = q.turns - q.trialEnd
	}
}

// verdictOf tells what a guard made of what the guards further in let through.
func verdictOf(r, inner ruling, reached bool) model.Verdict {
	switch {
	case !reached:
		return r.verdict
	case r.verdict != inner.verdict:
		return r.verdict
	case r.settings != inner.settings || r.guard != inner.guard:
		return GuardChanged
	}
	return GuardPassed
}

// guardSteps lays out what each guard that was asked compared and made of it.
func (t *turn) guardSteps(r ruling) []GuardStep {
	out := make([]GuardStep, 0, t.seen.asked)
	for i, name := range GuardNames() {
		if i >= t.seen.asked {
			break
		}
		s := GuardStep{Guard: name, Verdict: t.seen.verdicts[i], Numbers: []GuardNumber{}}
		for _, n := range t.numbers(name, r) {
			if finite(n.Value) && finite(n.Limit) {
				s.Numbers = append(s.Numbers, n)
			}
		}
		out = append(out, s)
	}
	return out
}

// numbers are what a guard compares.
func (t *turn) numbers(guard string, r ruling) []GuardNumber {
	o := &t.loop.options
	most := func(name string, value, limit float64) GuardNumber { return GuardNumber{name, value, limit, false} }
	least := func(name string, value, limit float64) GuardNumber { return GuardNumber{name, value, limit, true} }
	to := r.proposed
	switch guard {
	case "evidence":
		if t.ordered {
			return nil
		}
		return []GuardNumber{
			least("delay_samples", float64(t.merged.Delay.Count()), float64(t.loop.need)),
			most("lost_events", float64(t.sample.Lost), 0),
		}
	case "bounds":
		return []GuardNumber{
			most("gro_flush_timeout_ns", float64(to.GROFlushTimeout), float64(o.Bounds.MaxFlush)),
			most("irq_suspend_timeout_ns", float64(to.IRQSuspendTimeout), float64(o.Bounds.MaxSuspend)),
		}
	case "step-limit":
		return []GuardNumber{most("gro_flush_timeout_ns", float64(to.GROFlushTimeout), float64(t.flushWithinReach()))}
	case "cooldown":
		slots := (len(t.loop.queues) + o.Cooldown.OneIn - 1) / max(1, o.Cooldown.OneIn)
		out := []GuardNumber{
			most("load_rise_share", t.merged.RateChange, o.Cooldown.Rise),
			most("queues_on_trial", float64(t.seen.trials), float64(slots)),
		}
		if t.seen.rest >= 0 {
			out = append(out, least("windows_since_trial", float64(t.seen.rest), float64(o.Cooldown.Windows+1)))
		}
		return out
	case "trial":
		credit := least("forecasts_held_less_failed", float64(t.seen.credit), float64(o.Trial.Credit))
		if t.seen.onTrial {
			return []GuardNumber{most("windows_measured", float64(t.seen.measured), float64(o.Trial.Windows)), credit}
		}
		return []GuardNumber{least("windows_to_compare_with", float64(t.seen.references), float64(o.Trial.Reference)), credit}
	case "tripwire":
		return []GuardNumber{
			most("quantile_delay_ns", float64(t.raw.Quantile), float64(saturate(o.Tripwire.Factor, o.Objective.SLO))),
			most("utilisation", t.raw.Utilisation, o.Tripwire.Utilisation),
		}
	case "breaker":
		reverts := 0
		if f, ok := t.q.fuses[kindOf(t.active, to, r.purpose, t.merged.PacketRate)]; ok {
			reverts = len(f.reverts)
		}
		return []GuardNumber{most("reverts", float64(reverts), float64(o.Breaker.Reverts-1))}
	case "slo":
		return []GuardNumber{
			most("quantile_delay_ns", float64(t.merged.Quantile), float64(o.Objective.SLO)),
			most("windows_above_slo", float64(t.seen.breaches), float64(o.SLO.Confirm-1)),
		}
	}
	return nil
}

// entryForecast is a policy's forecast as the journal keeps it; nil where it
// gave none, or one that is no number.
func entryForecast(f *model.Forecast) *EntryForecast {
	if f == nil || !finite(f.PacketRate) || !finite(f.CostError) {
		return nil
	}
	out := &EntryForecast{
		PacketRate: f.PacketRate, CostPerPacket: f.CostPerPacket, CostError: f.CostError, Delay: f.Delay, DelayError: f.DelayError,
	}
	if u := f.Utilisation; finite(u) {
		out.Utilisation = &u
	}
	return out
}
