package tuner

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// entry describes a ruling for the journal.
func (t *turn) entry(r ruling, from model.Settings) Entry {
	f := &t.merged
	e := Entry{
		At:       t.sample.At,
		Queue:    t.q.queue,
		NAPIID:   t.q.napiID,
		Policy:   t.loop.options.Policy.Name(),
		From:     from,
		To:       r.settings,
		Proposed: r.proposed,
		Purpose:  r.purpose,
		Verdict:  r.verdict,
		Guard:    r.guard,
		Why:      r.why,
		Evidence: Evidence{
			Span:         f.Span,
			Windows:      f.Windows,
			DelaySamples: f.Delay.Count(),
			Quantile:     t.loop.options.Objective.Quantile,
			SLO:          t.loop.options.Objective.SLO,
			Lost:         t.sample.Lost,
		},
	}
	if t.asked != nil && !t.skip {
		why := t.asked.why
		e.PolicyWhy, e.Forecast = &why, entryForecast(t.asked.forecast)
	}
	if finite(r.propensity) && r.propensity > 0 {
		p := r.propensity
		e.Propensity = &p
	}
	if finite(f.PacketRate) {
		e.Evidence.PacketRate = f.PacketRate
	}
	if e.Evidence.DelaySamples > 0 {
		quantile, median := f.Quantile, f.Median
		e.Evidence.QuantileDelay, e.Evidence.MedianDelay = &quantile, &median
	}
	if f.CostPerPacket > 0 {
		cost := f.CostPerPacket
		e.Evidence.CostPerPacket = &cost
	}
	if u := f.Utilisation; finite(u) && f.Windows > 0 {
		e.Evidence.Utilisation = &u
	}
	return e
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// recordThinned journals a ruling. A hold, or an order that cannot be followed,
// that repeats the one before is left out until Options.HoldEvery has passed.
func (l *Loop) recordThinned(t *turn, r ruling) error {
	e := t.entry(r, t.active)
	if l.options.Actuator == nil && r.verdict == model.VerdictAdvised {
		// Nothing was written: To is what would be.
		e.To = r.settings
	}
	last := &t.q.last
	order := r.purpose == model.PurposeOrder && (r.verdict == model.VerdictRefused || r.verdict == model.VerdictAdvised)
	repeats := r.verdict == model.VerdictHeld || t.skip && r.verdict == model.VerdictFailed || order
	if !repeats {
		last.valid = false
		e.Guards = t.guardSteps(r)
		return l.record(e)
	}
	now := held{valid: true, guard: r.guard, verdict: r.verdict, from: t.active, proposed: r.proposed, purpose: r.purpose, at: e.At}
	switch {
	case !order:
		now.proposed = model.Settings{}
	case r.verdict == model.VerdictRefused:
		now.why = e.Why
	}
	same := *last
	same.at = now.at
	if l.options.HoldEvery > 0 && now == same && e.At-last.at < l.options.HoldEvery && e.At >= last.at {
		return nil
	}
	*last = now
	e.Guards = t.guardSteps(r)
	return l.record(e)
}

func (l *Loop) record(e Entry) error {
	if l.options.Journal == nil {
		return nil
	}
	if err := l.options.Journal.Record(e); err != nil {
		return fmt.Errorf("journal the decision on queue %v at %v: %w", e.Queue, e.At.Round(time.Millisecond), err)
	}
	return nil
}
