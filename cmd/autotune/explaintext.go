package main

import (
	"fmt"
	"strings"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// trend compares with the decision before.
func (e *explanation) trend() string {
	if e.previous == nil {
		return ""
	}
	now, before := &e.it.entry.Evidence, &e.previous.entry.Evidence
	var parts []string
	add := func(name string, now, before float64) {
		if now > 0 && before > 0 {
			parts = append(parts, fmt.Sprintf("%s %+.1f%%", name, 100*(now/before-1)))
		}
	}
	add("load", now.PacketRate, before.PacketRate)
	if now.CostPerPacket != nil && before.CostPerPacket != nil {
		add("CPU/packet", float64(*now.CostPerPacket), float64(*before.CostPerPacket))
	}
	if now.QuantileDelay != nil && before.QuantileDelay != nil {
		add("delay", float64(*now.QuantileDelay), float64(*before.QuantileDelay))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; since the decision before: " + strings.Join(parts, ", ")
}

func briefly(e *tuner.Entry) string {
	by := ""
	if e.Guard != "" {
		by = " by " + e.Guard
	}
	move := e.From.String()
	if e.To != e.From {
		move += " -> " + e.To.String()
	}
	return fmt.Sprintf("at %v %s %s%s, %s: %s", e.At.Round(time.Millisecond), e.Purpose, e.Verdict, by, move, e.Why)
}

// text is a guard's line: what it made of the decision, the numbers that it
// compared, and which of them bound.
func (s *guardStep) text() string {
	verdict := "not known" // a journal of an earlier version
	switch {
	case s.Asked != nil && *s.Asked:
		verdict = string(s.Verdict)
	case s.Asked != nil:
		verdict = "not asked"
	case s.Decided:
		verdict = string(s.Verdict)
	}
	line := fmt.Sprintf("%-10s  %-9s  %s", s.Guard, verdict, s.What)
	if s.Asked != nil && !*s.Asked {
		line = fmt.Sprintf("%-10s  %s", s.Guard, verdict)
	}
	var parts []string
	for _, n := range s.Numbers {
		parts = append(parts, numberText(n, s.Verdict != tuner.GuardPassed))
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	if s.Decided {
		line += "  <- decided"
	}
	return line
}

// numberText writes a number beside its limit. One that is beyond it is marked
// where the guard acted: one that let the decision pass had its reason.
func numberText(n tuner.GuardNumber, acted bool) string {
	name, unit := n.Name, ""
	write := func(v float64) string { return fmt.Sprintf("%.6g", v) }
	switch {
	case strings.HasSuffix(name, "_ns"):
		name = strings.TrimSuffix(name, "_ns")
		write = func(v float64) string { return time.Duration(v).String() }
	case strings.HasSuffix(name, "_share"):
		name = strings.TrimSuffix(name, "_share")
		unit = "%"
		write = func(v float64) string { return fmt.Sprintf("%.3g", 100*v) }
	}
	relation, beyond := "at most", n.Value > n.Limit
	if n.Least {
		relation, beyond = "at least", n.Value < n.Limit
	}
	mark := ""
	if beyond && acted {
		mark = " (!)"
	}
	return fmt.Sprintf("%s %s%s, %s %s%s%s", strings.ReplaceAll(name, "_", " "), write(n.Value), unit, relation, write(n.Limit), unit, mark)
}

// confidenceText tells how sure the decision is of what it rests on.
func confidenceText(d *tuner.Entry) string {
	parts := []string{fmt.Sprintf("%s behind the p%g", model.Count(d.Evidence.DelaySamples, "delay"), 100*d.Evidence.Quantile)}
	if f := d.Forecast; f != nil {
		text := fmt.Sprintf("expects p%g %v +- %v and %v CPU/packet +- %.0f%% at %v",
			100*d.Evidence.Quantile, f.Delay.Round(time.Microsecond), f.DelayError.Round(time.Microsecond),
			f.CostPerPacket.Round(10*time.Nanosecond), 100*f.CostError, d.Proposed)
		if f.Utilisation != nil {
			text += fmt.Sprintf(", CPU %.0f%%", 100**f.Utilisation)
		}
		parts = append(parts, text)
	}
	if d.Propensity != nil {
		parts = append(parts, fmt.Sprintf("chosen with probability %.3g", *d.Propensity))
	}
	if d.Forecast == nil && d.Propensity == nil {
		parts = append(parts, "the policy foretells nothing")
	}
	return strings.Join(parts, "; ")
}
