package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// explanation is one decision with what came before and after it on its queue.
type explanation struct {
	it *decisionAt
	// previous is the queue's decision before; outcome what became of a move:
	// the end of its trial, or what replaced it. Nil where there is none.
	previous, outcome *decisionAt
	chain             []guardStep
}

// guardStep is a guard's part in a decision.
type guardStep struct {
	Guard string `json:"guard"`
	// Asked is null where the file does not tell: journals of earlier versions
	// name only the guard that decided.
	Asked *bool `json:"asked"`
	// Verdict is what the guard made of it, empty where it was not asked or the
	// file does not tell.
	Verdict model.Verdict `json:"verdict"`
	// Decided tells that this guard gave the verdict.
	Decided bool                `json:"decided"`
	What    string              `json:"what"`
	Numbers []tuner.GuardNumber `json:"numbers"`
}

// guardChain lists the guards from the outside in: each sees what the one
// below it lets through.
func guardChain() []guardStep {
	var out []guardStep
	for _, name := range tuner.GuardNames() {
		out = append(out, guardStep{Guard: name, What: guardQuestion(name)})
	}
	return out
}

// guardQuestion is what a guard asks of a decision.
func guardQuestion(guard string) string {
	switch guard {
	case "evidence":
		return "are there enough undisturbed delays to decide upon"
	case "ownership":
		return "does the queue read what was written, or has it another writer"
	case "readiness":
		return "is suspension asked for only where an application drives this one NAPI"
	case "bounds":
		return "is every value within the hard limits"
	case "step-limit":
		return "is the move up no longer than allowed"
	case "cooldown":
		return "is it not too soon, while load rises, or while others try"
	case "trial":
		return "did the move keep what its purpose promises, beyond noise"
	case "tripwire":
		return "is there no single window that cannot wait"
	case "breaker":
		return "has this direction not failed too often"
	case "slo":
		return "is a confirmed breach answered"
	}
	return ""
}

// asked fills in what the decision tells of a guard.
func (s *guardStep) asked(e *tuner.Entry) {
	s.Numbers = []tuner.GuardNumber{}
	if e.Guards == nil {
		return
	}
	asked := false
	for _, g := range e.Guards {
		if g.Guard == s.Guard {
			asked, s.Verdict = true, g.Verdict
			s.Numbers = append(s.Numbers, g.Numbers...)
		}
	}
	s.Asked = &asked
}

func explain(all []decisionAt, i int) explanation {
	e := explanation{it: &all[i]}
	here := &e.it.entry
	sameRun := func(d *decisionAt) bool { return d.run == e.it.run && d.entry.Queue == here.Queue }
	for j := i - 1; j >= 0; j-- {
		if sameRun(&all[j]) {
			e.previous = &all[j]
			break
		}
	}
	if moved(here) {
		for j := i + 1; j < len(all); j++ {
			if d := &all[j]; sameRun(d) && (d.entry.Verdict != model.VerdictHeld || d.entry.From != here.To) {
				e.outcome = d
				break
			}
		}
	}
	found := false
	for _, s := range guardChain() {
		s.Decided = s.Guard == here.Guard
		found = found || s.Decided
		s.asked(here)
		e.chain = append(e.chain, s)
	}
	if here.Guard != "" && !found {
		e.chain = append(e.chain, guardStep{
			Guard: here.Guard, Decided: true, Verdict: here.Verdict, What: "the loop around the guards: did the host take it",
			Numbers: []tuner.GuardNumber{},
		})
	}
	return e
}

func moved(e *tuner.Entry) bool {
	return e.From != e.To && (e.Verdict == model.VerdictApplied || e.Verdict == model.VerdictAdvised)
}

// explanationLine is the JSON of explain. The decisions are as the file has
// them.
type explanationLine struct {
	Kind     string          `json:"kind"` // "explanation"
	File     string          `json:"file"`
	Line     int             `json:"line"`
	Wall     *time.Time      `json:"at_wall"`
	Run      json.RawMessage `json:"run"`
	Decision json.RawMessage `json:"decision"`
	// Headroom is by how much of the SLO the quantile was below it; negative
	// above.
	Headroom *float64 `json:"slo_headroom_share"`
	// FlushChange is the relative change of the flush timeout that was asked
	// for.
	FlushChange *float64        `json:"flush_change_share"`
	Guards      []guardStep     `json:"guards"`
	Previous    json.RawMessage `json:"previous_decision"`
	Outcome     json.RawMessage `json:"outcome"`
}

func (e *explanation) line(file string) explanationLine {
	l := explanationLine{Kind: "explanation", File: file, Line: e.it.line, Run: e.it.runRaw, Decision: e.it.raw, Guards: e.chain}
	if e.it.run != nil && !e.it.run.BootTime.IsZero() {
		wall := e.it.wall()
		l.Wall = &wall
	}
	l.Headroom, l.FlushChange = e.headroom(), e.flushChange()
	if e.previous != nil {
		l.Previous = e.previous.raw
	}
	if e.outcome != nil {
		l.Outcome = e.outcome.raw
	}
	return l
}

func (e *explanation) headroom() *float64 {
	ev := &e.it.entry.Evidence
	if ev.QuantileDelay == nil || ev.SLO <= 0 {
		return nil
	}
	v := 1 - float64(*ev.QuantileDelay)/float64(ev.SLO)
	return &v
}

func (e *explanation) flushChange() *float64 {
	from, to := e.it.entry.From.GROFlushTimeout, e.it.entry.Proposed.GROFlushTimeout
	if from <= 0 {
		return nil
	}
	v := float64(to)/float64(from) - 1
	return &v
}

func (e *explanation) text() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	d := &e.it.entry
	when := fmt.Sprintf("%v since boot", d.At.Round(time.Millisecond))
	if e.it.run != nil && !e.it.run.BootTime.IsZero() {
		when += ", " + e.it.wall().Local().Format("2006-01-02 15:04:05.000")
	}
	row("decision", "on queue %v (NAPI %d) at %s", d.Queue, d.NAPIID, when)
	row("policy", "%s; target p%g of the delay <= %v", d.Policy, 100*d.Evidence.Quantile, d.Evidence.SLO)
	row("saw", "%s", evidenceText(d.Evidence))
	if h := e.headroom(); h != nil {
		side := "below"
		if *h < 0 {
			side = "above"
		}
		row("compared", "p%g is %.1f%% %s the SLO%s", 100*d.Evidence.Quantile, 100*math.Abs(*h), side, e.trend())
	}
	row("was", "%v (%s)", d.From, d.From.Mode())
	proposed := fmt.Sprintf("%v (%s)", d.Proposed, d.Proposed.Mode())
	switch change := e.flushChange(); {
	case d.Proposed == d.From:
		proposed = "no change"
	case change != nil && *change != 0:
		proposed += fmt.Sprintf(": flush timeout %+.0f%%", 100**change)
	}
	row("proposed", "%s", proposed)
	row("purpose", "%s: %s", d.Purpose, purposeText(d.Purpose))
	row("why", "%s", d.Why)
	if d.PolicyWhy != nil && *d.PolicyWhy != "" && *d.PolicyWhy != d.Why {
		row("policy said", "%s", *d.PolicyWhy)
	}
	row("confidence", "%s", confidenceText(d))
	by := ""
	if d.Guard != "" {
		by = " by " + d.Guard
	}
	row("verdict", "%s%s: %s", d.Verdict, by, verdictText(d.Verdict))
	if d.To != d.From {
		row("set to", "%v (%s)", d.To, d.To.Mode())
	}
	for i, s := range e.chain {
		name := ""
		if i == 0 {
			name = "guards"
		}
		row(name, "%s", s.text())
	}
	if d.Guard == "" {
		row("", "no guard intervened")
	}
	for _, other := range e.others() {
		row(other[0], "%s", other[1])
	}
	if e.previous != nil {
		row("before", "%s", briefly(&e.previous.entry))
	}
	switch {
	case e.outcome != nil:
		row("then", "%s", briefly(&e.outcome.entry))
	case moved(d):
		row("then", "nothing that the file has")
	}
	_ = t.Flush() // a strings.Builder takes everything
	return b.String()
}

// others are the fields of the decision that this version does not know, by
// name: a later one may say more than is laid out here.
func (e *explanation) others() [][2]string {
	known, fields := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	text, err := json.Marshal(e.it.entry)
	if err != nil || json.Unmarshal(text, &known) != nil || json.Unmarshal(e.it.raw, &fields) != nil {
		return nil
	}
	var out [][2]string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if _, ok := known[name]; !ok && name != "kind" {
			out = append(out, [2]string{name, string(fields[name])})
		}
	}
	return out
}

func purposeText(p model.Purpose) string {
	switch p {
	case model.PurposeCost:
		return "less CPU; it must lower cost without breaking the SLO"
	case model.PurposeSafety:
		return "less delay or fewer violations, and it may cost"
	case model.PurposeExploration:
		return "to learn"
	case model.PurposeReturn:
		return "back to what held before"
	case model.PurposeOrder:
		return "a setting that the user asked for"
	case model.PurposeHold:
		return "nothing to change"
	}
	return "not a purpose that this version knows"
}

func verdictText(v model.Verdict) string {
	switch v {
	case model.VerdictHeld:
		return "nothing was changed"
	case model.VerdictApplied:
		return "written and read back"
	case model.VerdictRefused:
		return "a guard forbade the move"
	case model.VerdictKept:
		return "the trial of the move ended in its favour"
	case model.VerdictReverted:
		return "the trial ended against the move, and the settings before it are back"
	case model.VerdictFailed:
		return "the kernel did not take it"
	case model.VerdictAborted:
		return "the trial ended without a result"
	case model.VerdictAdvised:
		return "it would have been applied; the run only observed"
	}
	return "not a verdict that this version knows"
}
