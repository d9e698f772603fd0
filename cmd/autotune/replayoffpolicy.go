package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"autotune/experiments/counterfactual"
	"autotune/model"
	"autotune/tuner"
)

// offPolicyLine is what replay --off-policy says of one policy.
type offPolicyLine struct {
	Kind     string        `json:"kind"` // "off_policy"
	File     string        `json:"file"`
	Policy   string        `json:"policy"`
	SLO      time.Duration `json:"slo_ns"`
	Quantile float64       `json:"slo_quantile"`
	// Choices were recorded, Matched of them are the policy's too.
	Choices   int     `json:"choices"`
	Matched   int     `json:"matched"`
	Effective float64 `json:"effective_sample_size"`
	Clipped   int     `json:"clipped_weights"`
	// Refused is why there is no estimate; null where there is one.
	Refused      *string     `json:"refused"`
	Weighted     *resultLine `json:"self_normalised_ips"`
	Error        *resultLine `json:"standard_error"`
	DoublyRobust *resultLine `json:"doubly_robust"`
	Trace        traceState  `json:"trace"`
}

type resultLine struct {
	CPUPerPacketUs float64 `json:"cpu_per_packet_us"`
	DelayUs        float64 `json:"delay_quantile_us"`
	Violating      float64 `json:"violating_windows_share"`
}

// overheard remembers what a policy wants each queue to be set to: what it
// proposed last, and before that what the queue was set to when the run began. A
// policy that holds wants what it wanted: what it holds is what the recorded run
// had drawn. Where it draws by itself, what is there may be what it drew.
type overheard struct {
	model.Policy
	wanted map[model.Queue]model.Settings
}

// Decide implements [model.Policy].
func (o *overheard) Decide(f model.Features) model.Decision {
	d := o.Policy.Decide(f)
	if d.Purpose != model.PurposeHold && d.Purpose != "" || d.Propensity > 0 {
		o.wanted[f.Queue] = d.Settings
	}
	return d
}

// NeedsEvidence passes on what the loop asks of policies.
func (o *overheard) NeedsEvidence() bool {
	p, ok := o.Policy.(interface{ NeedsEvidence() bool })
	return !ok || p.NeedsEvidence()
}

// offPolicy prints what each policy would have come to, by what the recorded
// run drew at random. The policies decide upon the recorded samples through the
// same loop as ever.
func (c *replayCmd) offPolicy(ctx context.Context, std streams, rec recording) (ok bool, err error) {
	ok = true
	for _, spec := range c.Policies {
		line, sound, err := c.estimate(ctx, rec, spec)
		if err != nil {
			return false, err
		}
		ok = ok && sound && line.Refused == nil
		if c.JSON {
			err = json.NewEncoder(std.out).Encode(line)
		} else {
			_, err = fmt.Fprintln(std.out, line)
		}
		if err != nil {
			return false, err
		}
	}
	return ok, nil
}

func (c *replayCmd) estimate(ctx context.Context, rec recording, spec string) (line offPolicyLine, sound bool, err error) {
	path := rec.String()
	reader, err := c.open(rec)
	if err != nil {
		return line, false, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	options, err := c.options(reader.Header(), spec)
	if err != nil {
		return line, false, err
	}
	if run := reader.Header().Run; run == nil || !run.Apply {
		return line, false, usageError(errors.New("an off-policy estimate needs a recorded run that applied what it drew: run --apply --trace FILE --policy random"))
	}
	line = offPolicyLine{Kind: "off_policy", File: path, Policy: spec, SLO: options.Objective.SLO, Quantile: options.Objective.Quantile}
	ownPath := !memoryless(options.Policy)
	target := &overheard{Policy: options.Policy, wanted: make(map[model.Queue]model.Settings)}
	for _, o := range reader.Header().Run.Originals {
		target.wanted[o.Queue] = o.Settings
	}
	options.Policy = target
	loop, err := tuner.New(options)
	if err != nil {
		return line, false, err
	}
	steps := newStepSource(reader, false)
	defer steps.close()
	choices := counterfactual.Choices{Objective: options.Objective}
	for {
		sample, err := steps.Next(ctx)
		if errors.Is(err, io.EOF) || steps.damage != nil {
			break
		}
		if err != nil {
			return line, false, err
		}
		choices.Add(&sample)
		if err := loop.Step(ctx, sample); err != nil && !errors.Is(err, tuner.ErrNoQueue) {
			return line, false, err
		}
		for _, raw := range steps.step.Entries {
			var e tuner.Entry
			if err := json.Unmarshal(raw, &e); err != nil {
				return line, false, fmt.Errorf("a recorded decision: %w", err)
			}
			if e.Verdict != model.VerdictApplied {
				continue
			}
			propensity := 0.0
			if e.Propensity != nil && e.To == e.Proposed {
				propensity = *e.Propensity
			}
			wanted, known := target.wanted[e.Queue]
			if !known {
				wanted, propensity = e.From, 0
			}
			choices.Decide(e.Queue, e.Evidence.PacketRate, e.To, propensity, wanted)
		}
	}
	line.Trace = stateOf(reader.Stats(), steps.damage)
	estimate, err := counterfactual.OffPolicy(choices.List())
	line.Choices, line.Matched, line.Effective, line.Clipped = estimate.Choices, estimate.Matched, estimate.Effective, estimate.Clipped
	refuse := func(of, format string, args ...any) {
		text := policyKind(of) + ": " + fmt.Sprintf(format, args...)
		line.Refused = &text
	}
	switch {
	case errors.Is(err, counterfactual.ErrDeterministic):
		refuse(reader.Header().Run.Policy, "%v", err)
	case ownPath:
		refuse(spec, "%v, and the recorded run took others; --simulate runs it in a closed loop", counterfactual.ErrOwnPath)
	case errors.Is(err, counterfactual.ErrTooFew):
		refuse(spec, "%v", err)
	case err != nil:
		return line, false, err
	default:
		result := func(r counterfactual.Result) *resultLine {
			return &resultLine{r.CPUPerPacketUs, r.DelayUs, r.Violating}
		}
		line.Weighted, line.Error, line.DoublyRobust = result(estimate.Weighted), result(estimate.Error), result(estimate.DoublyRobust)
	}
	return line, steps.damage == nil, nil
}

// memoryless reports that a policy decides by what it sees, and not by what came
// of what it decided before: only then are its choices in the recorded states
// those that it would have made.
func memoryless(p model.Policy) bool {
	m, ok := p.(interface{ Memoryless() bool })
	return ok && m.Memoryless()
}

// policyKind is the name that a spec begins with.
func policyKind(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	return name
}

func (l offPolicyLine) String() string {
	head := fmt.Sprintf("%s: %s, by %d of %d recorded choices that it makes too (effective sample %.0f)", l.File, l.Policy, l.Matched, l.Choices, l.Effective)
	if l.Refused != nil {
		return head + "\n  no estimate: " + *l.Refused + l.Trace.text(l.File)
	}
	text := func(name string, r *resultLine) string {
		return fmt.Sprintf("\n  %s: CPU %.2f us per packet, p%g of a window %.0f us, %.1f%% of windows above %v", name, r.CPUPerPacketUs, 100*l.Quantile, r.DelayUs, 100*r.Violating, l.SLO)
	}
	return head + text("weighted", l.Weighted) + text("doubly robust", l.DoublyRobust) +
		fmt.Sprintf("\n  standard errors of the weighted: %.2f us per packet, %.0f us, %.1f%%", l.Error.CPUPerPacketUs, l.Error.DelayUs, 100*l.Error.Violating) + l.Trace.text(l.File)
}
