package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/probe/trace"
	"autotune/tuner"
)

type replayCmd struct {
	Files []string `arg:"" name:"trace" help:"Traces, each replayed by itself; the parts of one recording, in their order, as the whole."`

	Policies    []string       `help:"What decides; by default the policy of the recorded run. May be given several times." name:"policy" sep:"none" placeholder:"SPEC"`
	SLO         *time.Duration `help:"Target for the delay; by default that of the recorded run, or else 250us." name:"slo" placeholder:"D"`
	SLOQuantile *float64       `help:"Which quantile of the delay is to meet the target; by default that of the recorded run, or else 0.99." name:"slo-quantile" placeholder:"Q"`
	Verbose     bool           `help:"Print holds in every window too."`
	Verify      bool           `help:"Decide as the recorded run did, and prove that its journal comes out byte for byte."`
	Salvage     bool           `help:"Skip damaged frames and use the rest."`
	JSON        bool           `help:"One object per line." name:"json"`

	counterfactualFlags `group:"Counterfactual replay"`
}

// The objective where neither the command line nor the trace has one.
const (
	defaultSLO      = 250 * time.Microsecond
	defaultQuantile = 0.99
)

func (c *replayCmd) check() error {
	for _, spec := range c.Policies {
		if _, err := policy.Parse(spec); err != nil {
			return err
		}
	}
	switch {
	case c.SLO != nil && *c.SLO <= 0:
		return fmt.Errorf("--slo %v: a delay target is above 0, for example 250us", *c.SLO)
	case c.SLOQuantile != nil && !(*c.SLOQuantile > 0 && *c.SLOQuantile < 1):
		return fmt.Errorf("--slo-quantile %v: a quantile is between 0 and 1, for example 0.99", *c.SLOQuantile)
	case c.Verify && c.Salvage:
		return errors.New("--verify: what a salvage skips cannot be proven; leave out --salvage")
	case c.Verify && (len(c.Policies) > 0 || c.SLO != nil || c.SLOQuantile != nil || c.Verbose):
		return errors.New("--verify decides as the recorded run did: leave out --policy, --slo, --slo-quantile and --verbose")
	}
	return c.counterfactualFlags.check(c)
}

// Run implements the command. It exits with 1 where a trace is damaged, or
// where its journal could not be proven.
func (c *replayCmd) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return usageError(err)
	}
	recordings, err := recordingsOf(c.Files, c.Salvage)
	if err != nil {
		return usageError(err)
	}
	// What cannot be replayed at all is said before anything is printed.
	for _, rec := range recordings {
		if err := c.try(rec); err != nil {
			return usageError(err)
		}
	}
	failed := false
	for _, rec := range recordings {
		var ok bool
		var err error
		switch {
		case c.Verify:
			ok, err = c.verify(ctx, std, rec)
		case c.Simulate:
			ok, err = c.simulate(ctx, std, rec)
		case c.OffPolicy:
			ok, err = c.offPolicy(ctx, std, rec)
		default:
			ok, err = c.replayAll(ctx, std, rec)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", rec, err)
		}
		failed = failed || !ok
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (c *replayCmd) try(rec recording) error {
	reader, err := c.open(rec)
	if err != nil {
		return err
	}
	path := rec.String()
	if c.Verify {
		err = verifiable(path, reader.Header())
	}
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	if _, optionsErr := c.options(reader.Header(), c.specs()[0]); optionsErr != nil {
		err = fmt.Errorf("%s: %w", path, optionsErr)
	}
	return errors.Join(err, reader.Close())
}

// specs are the policies to decide; an empty one stands for the recorded.
func (c *replayCmd) specs() []string {
	if len(c.Policies) == 0 {
		return []string{""}
	}
	return c.Policies
}

// replayAll replays each policy in turn.
func (c *replayCmd) replayAll(ctx context.Context, std streams, rec recording) (ok bool, err error) {
	ok = true
	for _, spec := range c.specs() {
		sound, err := c.replay(ctx, std, rec, spec)
		if err != nil {
			return false, err
		}
		ok = ok && sound
	}
	return ok, nil
}

// options are those of the loop: what the command line says, or else the trace.
func (c *replayCmd) options(h trace.Header, spec string) (tuner.Options, error) {
	o, err := tracedOptions(h, spec)
	if c.SLO != nil {
		o.Objective.SLO = *c.SLO
	}
	if c.SLOQuantile != nil {
		o.Objective.Quantile = *c.SLOQuantile
	}
	if c.Verbose {
		o.HoldEvery = -1
	}
	return o, err
}

// replayHead announces one trace in the output of replay --json.
type replayHead struct {
	Kind     string        `json:"kind"` // "trace"
	File     string        `json:"file"`
	Host     string        `json:"host"`
	Kernel   string        `json:"kernel"`
	Started  *time.Time    `json:"started_wall"`
	Interval time.Duration `json:"interval_ns"`
	// Recorded is the policy of the recorded run, null for a mere recording;
	// Applied whether it wrote what it decided.
	Recorded *string `json:"recorded_policy"`
	Applied  *bool   `json:"recorded_apply"`
}

func headOf(path string, h trace.Header) replayHead {
	head := replayHead{
		Kind: "trace", File: path, Host: h.Host, Kernel: h.Kernel, Started: h.StartedWall, Interval: h.Interval,
	}
	if h.Run != nil {
		head.Recorded, head.Applied = &h.Run.Policy, &h.Run.Apply
	}
	return head
}

func (h replayHead) String() string {
	text := h.File + ": recorded"
	if h.Host != "" {
		text += " on " + h.Host
	}
	if h.Kernel != "" {
		text += fmt.Sprintf(" (Linux %s)", h.Kernel)
	}
	if h.Started != nil {
		text += " from " + h.Started.Format(time.RFC3339)
	}
	switch {
	case h.Recorded == nil:
		return text + ", observing only"
	case *h.Applied:
		return text + ", while " + *h.Recorded + " was tuning"
	default:
		return text + ", while " + *h.Recorded + " was advising"
	}
}

// replayed is what a replay came to.
type replayed struct {
	Kind     string        `json:"kind"` // "replay"
	File     string        `json:"file"`
	Policy   string        `json:"policy"`
	SLO      time.Duration `json:"slo_ns"`
	Quantile float64       `json:"slo_quantile"`
	Samples  uint64        `json:"samples"`
	Span     time.Duration `json:"span_ns"`
	// Decisions were journalled, Moves of them would have been written.
	Decisions uint64 `json:"decisions"`
	Moves     uint64 `json:"moves"`
	// EndedBy is why deciding ended before the trace did; null where it did
	// not.
	EndedBy *string    `json:"ended_by"`
	Trace   traceState `json:"trace"`
}

// Record implements [tuner.Journal].
func (r *replayed) Record(e tuner.Entry) error {
	r.Decisions++
	if e.Verdict == model.VerdictAdvised {
		r.Moves++
	}
	return nil
}

// replay prints what the policy would have decided.
func (c *replayCmd) replay(ctx context.Context, std streams, rec recording, spec string) (ok bool, err error) {
	path := rec.String()
	reader, err := c.open(rec)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	options, err := c.options(reader.Header(), spec)
	if err != nil {
		return false, err
	}
	out := bufio.NewWriter(std.out)
	defer func() { err = errors.Join(err, out.Flush()) }()
	head := headOf(path, reader.Header())
	if err := printReplay(out, c.JSON, head); err != nil {
		return false, err
	}
	r := &replayed{
		Kind: "replay", File: path, Policy: options.Policy.Name(), SLO: options.Objective.SLO, Quantile: options.Objective.Quantile,
	}
	steps := newStepSource(reader, false)
	defer steps.close()
	options.Source = steps
	options.Journal = &journals{r, c.journal(out, reader.Header())}
	loop, err := tuner.New(options)
	if err != nil {
		return false, err
	}
	loopErr := loop.Run(ctx)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	steps.drain()
	r.Samples, r.Span, r.Trace = steps.samples, steps.span, stateOf(reader.Stats(), steps.damage)
	var lost *tuner.LostError
	switch {
	case errors.As(loopErr, &lost):
		text := lost.Error()
		r.EndedBy = &text
	case loopErr != nil && steps.damage == nil:
		return false, loopErr
	}
	return steps.damage == nil, printReplay(out, c.JSON, r)
}

// journal prints decisions as run does.
func (c *replayCmd) journal(w io.Writer, h trace.Header) tuner.Journal {
	if c.JSON {
		return tuner.NewJSONL(w)
	}
	var boot time.Time
	if h.StartedWall != nil {
		boot = h.StartedWall.Local().Add(-h.StartedAt)
	}
	return journalText{w: w, boot: boot, ifname: func(q model.Queue) string {
		for _, d := range h.Conditions.Devices {
			if d.Netns == q.Netns && d.Ifindex == q.Ifindex {
				return d.Ifname
			}
		}
		return fmt.Sprintf("ifindex %d", q.Ifindex)
	}}
}

func (r *replayed) String() string {
	text := fmt.Sprintf("%s: %s of %v replayed with %s, SLO p%g <= %v: %s, %s advised",
		r.File, model.Count(r.Samples, "sample"), r.Span.Round(time.Millisecond), r.Policy, 100*r.Quantile, r.SLO,
		model.Count(r.Decisions, "decision"), model.Count(r.Moves, "move"))
	if r.EndedBy != nil {
		text += "\n" + r.File + ": deciding ended early: " + *r.EndedBy
	}
	return text + r.Trace.text(r.File)
}

func printReplay(w io.Writer, asJSON bool, line fmt.Stringer) error {
	if asJSON {
		return printJSON(w, line)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// traceState tells how whole a trace is.
type traceState struct {
	// Closed: its recorder ended it. One that is not may lack its last frames.
	Closed bool `json:"closed"`
	// TruncatedAt is the byte at which an incomplete frame begins.
	TruncatedAt *int64 `json:"truncated_at_byte"`
	// LostSamples and LostRecords could not be written by the recorder.
	LostSamples uint64 `json:"lost_samples"`
	LostRecords uint64 `json:"lost_records"`
	// Skipped counts the damaged places that a salvage passed over.
	Skipped int `json:"skipped"`
	// Damage is what ended the reading; null where nothing did.
	Damage *string `json:"damage"`
}

func stateOf(s trace.Stats, damage error) traceState {
	state := traceState{Closed: s.Ended, LostSamples: s.Gaps.Samples, LostRecords: s.Gaps.Others, Skipped: len(s.Damaged)}
	if s.Truncated != nil {
		state.TruncatedAt = &s.Truncated.Offset
	}
	if damage != nil {
		text := damage.Error()
		state.Damage = &text
	}
	return state
}

// text has a line for each thing that is wrong, each after a line feed.
func (s traceState) text(file string) string {
	text := ""
	switch {
	case s.Damage != nil:
		text += fmt.Sprintf("\n%s: what lies before the damage was used: %s", file, *s.Damage)
	case s.TruncatedAt != nil:
		text += fmt.Sprintf("\n%s: it is cut off; what is complete, up to byte %d, was used", file, *s.TruncatedAt)
	case !s.Closed:
		text += fmt.Sprintf("\n%s: its recorder did not close it; the last seconds may be missing", file)
	}
	if s.Damage != nil && s.Skipped == 0 {
		text += "\n" + file + ": --salvage skips what is damaged and uses the rest"
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf("\n%s: %d damaged places were skipped", file, s.Skipped)
	}
	if s.LostSamples+s.LostRecords > 0 {
		text += fmt.Sprintf("\n%s: its recorder could not write %s and %s", file, model.Count(s.LostSamples, "sample"), model.Count(s.LostRecords, "other record"))
	}
	return text
}
