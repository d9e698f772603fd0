package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/model/policy"
	"autotune/probe"
	"autotune/tuner"

	"github.com/mdlayher/sdnotify"
)

type runCmd struct {
	Ifaces []string `arg:"" name:"iface" help:"Interfaces to tune."`

	Netns       string        `help:"Network namespace, by name or path." placeholder:"NAME|PATH"`
	Apps        []string      `help:"Applications that follow the settings: their epoll contexts prefer busy polling when the setting asks for it. comm=NAME, pid=N or cgroup=PATH; repeatable." placeholder:"SELECTOR" sep:"none"`
	Apply       bool          `help:"Write to the kernel. Without it nothing is, and each line says what would be."`
	Policy      string        `help:"What decides: NAME[:key=value,...]; see docs/policies.md." default:"greybox" placeholder:"SPEC"`
	Model       string        `help:"File of what the policy learned: read at the start where it is there, written every minute and at the end. Only for policies that learn across runs (greybox)." type:"path" placeholder:"FILE"`
	SLO         time.Duration `help:"Target for the delay." default:"250us" name:"slo"`
	SLOQuantile float64       `help:"Which quantile of the delay is to meet the target." default:"0.99" name:"slo-quantile"`
	Interval    time.Duration `help:"Length of a window." default:"1s"`
	Duration    time.Duration `help:"End after this time; until stopped by default."`
	Keep        bool          `help:"At the end leave the last setting that held, instead of the originals."`
	Placement   placeMode     `help:"Where packets are polled and read: observe says what should move, align moves it (threads, interrupts; packet steering off)." enum:",observe,align" default:"" placeholder:"observe|align"`
	Trace       string        `help:"Write all that is seen, written and decided to this file, which must not exist." type:"path" placeholder:"FILE"`
	detailFlag
	rotationFlags
	State       string        `help:"Directory of the originals and the journal." placeholder:"DIR"`
	MaxFlush    time.Duration `help:"Hard upper bound of gro-flush-timeout." default:"10ms"`
	MaxSuspend  time.Duration `help:"Hard upper bound of irq-suspend-timeout." default:"1s"`
	Verbose     bool          `short:"v" help:"Every decision; a hold that repeats the one before is shown every 10s otherwise."`
	ProbeBudget probeBudget   `help:"Share of a CPU that the probes may take before they sample less, 1% by default; none: no limit." name:"probe-budget" placeholder:"PERCENT"`
	NoCounters  bool          `help:"Leave the hardware's counters of cycles and instructions to other profilers." name:"no-counters"`
	JSON        bool          `help:"One object per line." name:"json"`
}

const (
	// minWindow is the shortest window that the probes allow.
	minWindow = 10 * time.Millisecond
	// maxWindow is the longest after which a decision is still about the load
	// that there is.
	maxWindow = time.Minute
)

func intervalError(d time.Duration) error {
	return fmt.Errorf("--interval %v: from %v to %gm", d, minWindow, maxWindow.Minutes())
}

// defaultState is where a run keeps its state unless told otherwise.
func defaultState() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/autotune", nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find a state directory: %w; name one with --state", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "autotune"), nil
}

func stateOr(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	return defaultState()
}

// check refuses what no run can mean, before anything is touched.
func (c *runCmd) check() (model.Policy, error) {
	p, err := policy.Parse(c.Policy)
	if err != nil {
		return nil, usageError(err)
	}
	switch {
	case c.SLO <= 0:
		return nil, usageError(fmt.Errorf("--slo %v: a delay target is above 0, for example 250us", c.SLO))
	case !(c.SLOQuantile > 0 && c.SLOQuantile < 1):
		return nil, usageError(fmt.Errorf("--slo-quantile %v: a quantile is between 0 and 1, for example 0.99", c.SLOQuantile))
	case c.Interval < minWindow || c.Interval > maxWindow:
		return nil, usageError(intervalError(c.Interval))
	case c.Duration < 0:
		return nil, usageError(fmt.Errorf("--duration %v: leave it out to run until stopped", c.Duration))
	case c.MaxFlush < 0 || c.MaxSuspend < 0:
		return nil, usageError(errors.New("--max-flush and --max-suspend cannot be negative"))
	case c.outOfBounds(p) != nil:
		return nil, usageError(fmt.Errorf("policy %q: %w; --max-flush and --max-suspend widen the bounds", c.Policy, c.outOfBounds(p)))
	case c.Model != "" && !learns(p):
		return nil, usageError(fmt.Errorf("--model: policy %q learns nothing that outlives a run", c.Policy))
	case c.Keep && !c.Apply:
		return nil, usageError(errors.New("--keep needs --apply: without it there is nothing to leave"))
	case c.Placement == placeAlign && !c.Apply:
		return nil, usageError(errors.New("--placement align needs --apply; --placement observe says what it would move"))
	case c.Trace == "" && c.Histograms != nil:
		return nil, usageError(errors.New("--histograms is about a trace: name its file with --trace"))
	case c.rotationFlags.check(c.Trace) != nil:
		return nil, usageError(c.rotationFlags.check(c.Trace))
	}
	return p, nil
}

func (c *runCmd) bounds() model.Bounds {
	bounds := model.DefaultBounds()
	bounds.MaxFlush, bounds.MaxSuspend = c.MaxFlush, c.MaxSuspend
	return bounds
}

// outOfBounds says why a policy that is one setting can never be applied.
func (c *runCmd) outOfBounds(p model.Policy) error {
	if fixed, ok := p.(interface{ Settings() model.Settings }); ok {
		return c.bounds().Check(fixed.Settings())
	}
	return nil
}

// Run implements the command.
func (c *runCmd) Run(ctx context.Context, std streams) error {
	decide, err := c.check()
	if err != nil {
		return err
	}
	out, errs := newOutlet(ctx, std.out), newOutlet(ctx, std.err)
	err = c.run(ctx, decide, streams{out: out, err: errs})
	return errors.Join(err, out.Close(), errs.Close())
}

func (c *runCmd) run(ctx context.Context, decide model.Policy, std streams) (err error) {
	state, err := stateOr(c.State)
	if err != nil {
		return usageError(err)
	}
	if c.Model != "" {
		if err := loadModel(c.Model, decide); err != nil {
			return err
		}
	}
	apps, err := parseSelectors(c.Apps)
	if err != nil {
		return err
	}
	boot, err := bootTime()
	if err != nil {
		return err
	}
	names := map[model.Queue]string{}
	sinks := &journals{journalText{w: std.out, boot: boot, ifname: func(q model.Queue) string { return names[q] }}}
	if c.JSON {
		sinks = &journals{tuner.NewJSONL(std.out)}
	}
	attend := &attendance{std: std, asJSON: c.JSON, name: func(q model.Queue) string { return names[q] }}
	attend.stalls = &stalls{asJSON: c.JSON, out: std.out, err: std.err, name: attend.name}
	s, err := openSession(ctx, sessionOptions{
		namespace: actuate.ParseNamespace(c.Netns),
		ifaces:    c.Ifaces,
		apply:     c.Apply,
		stateDir:  state,
		bounds:    c.bounds(),
		apps:      apps,
		policy:    decide,
		objective: model.Objective{SLO: c.SLO, Quantile: c.SLOQuantile},
		interval:  c.Interval,
		everyHold: c.Verbose,
		journal:   sinks,
		budget:    float64(c.ProbeBudget),
		uncounted: c.NoCounters,
		wrap:      c.keepModel(attend.wrap, decide, std.err),
		contexts:  c.Placement != placeOff,
		trace:     c.Trace,
		rotation:  c.rotation(),
		detail:    c.detail(),
		warn:      std.err,
	})
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if c.Apply {
		// Only now is the state directory this run's own.
		file, err := openJournal(state, journalHead{
			Kind: "run", Started: time.Now().UTC(), BootTime: boot.UTC(), Policy: c.Policy,
			SLO: c.SLO, Quantile: c.SLOQuantile, Interval: c.Interval, Ifaces: c.Ifaces, Netns: c.Netns,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		*sinks = append(*sinks, tuner.NewJSONL(file))
	}
	if s.trace != nil {
		defer func() { err = errors.Join(err, s.trace.finish(std, c.JSON)) }()
	}

	for _, report := range s.host.Recovered() {
		fmt.Fprintf(std.err, "restored what an earlier run had left:\n%s", report)
	}
	napis, leftOut := s.host.NAPIs(ctx)
	if leftOut != nil {
		fmt.Fprintf(std.err, "left out for now: %v\n", leftOut)
	}
	for _, n := range napis {
		names[n.Queue] = n.Ifname
	}
	c.attend(attend, s, decide, napis)
	goQuiet()
	c.announce(std.err, decide, napis, s.source.Missing())
	for _, sel := range apps {
		if err := s.announceApps(ctx, std.err, sel); err != nil {
			return err
		}
	}
	if err := s.host.DeviceWide(); err != nil {
		fmt.Fprintln(std.err, deviceWideText(err))
	}
	ready()

	loopCtx := ctx
	if c.Duration > 0 {
		var cancel context.CancelFunc
		loopCtx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	if c.Model != "" {
		defer func() { err = errors.Join(err, saveModel(c.Model, decide)) }()
	}
	loopErr := s.loop.Run(loopCtx)
	if loopCtx.Err() != nil && errors.Is(loopErr, loopCtx.Err()) {
		loopErr = nil
	}
	if errors.Is(loopErr, tuner.ErrNoQueue) && errors.Is(loopErr, model.ErrForeignWrite) {
		// A service manager that starts it again would take the other
		// writer's values for originals.
		loopErr = cannotError(loopErr)
	}
	if !c.Apply {
		return loopErr
	}
	return errors.Join(loopErr, c.end(ctx, s, std, attend.name))
}

// attend tells what is to be done beside deciding.
func (c *runCmd) attend(a *attendance, s *session, decide model.Policy, napis []model.NAPI) {
	a.host = s.host
	a.asked = mayBusyPoll(decide) || suspended(napis)
	if a.asked || c.Placement != placeOff {
		a.watch = newReadinessWatch("/proc")
	}
	if c.Placement != placeOff {
		a.placer = newPlacer(s.host, a.watch, c.Placement)
		a.placer.onlySelected = len(c.Apps) > 0
	}
}

// end leaves the host as it was found, or, with --keep, as it was last good.
func (c *runCmd) end(ctx context.Context, s *session, std streams, name func(model.Queue) string) error {
	if c.Keep {
		return c.keep(ctx, s, std, name)
	}
	report, err := s.restore(ctx)
	if c.JSON {
		err = errors.Join(err, printRestore(std.out, report))
	}
	if err == nil {
		fmt.Fprint(std.err, restoredText(report))
	}
	return err
}

// keep settles queues whose trial was cut short at what was confirmed before
// it.
//
// A queue that has no NAPI instance now keeps nothing that could be read; what
// was written there can come back with it, so the state is kept all the same.
func (c *runCmd) keep(ctx context.Context, s *session, std streams, name func(model.Queue) string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWait)
	defer cancel()
	kept, err := s.actuator.Apply(ctx, s.loop.Confirmed())
	lost := whyNot(err)
	if len(lost) > 0 {
		// Each is said below.
		err = nil
	}
	state, _ := stateOr(c.State)
	for _, q := range slices.SortedFunc(maps.Keys(kept), model.Queue.Compare) {
		settings := kept[q]
		if c.JSON {
			err = errors.Join(err, printJSON(std.out, keptLine{"kept", q, &settings, nil}))
			continue
		}
		fmt.Fprintf(std.err, "%s queue %d keeps %v\n", name(q), q.Index, settings)
	}
	for _, q := range slices.SortedFunc(maps.Keys(lost), model.Queue.Compare) {
		if _, read := kept[q]; read {
			fmt.Fprintf(std.err, "%s queue %d: %v\n", name(q), q.Index, lost[q])
			continue
		}
		if c.JSON {
			err = errors.Join(err, printJSON(std.out, keptLine{"kept", q, nil, textOfError(lost[q])}))
			continue
		}
		fmt.Fprintf(std.err, "%s queue %d: what it keeps is not known: %v\n", name(q), q.Index, lost[q])
	}
	what := "kept"
	if len(kept) == 0 {
		what = "nothing could be read to be kept"
	}
	fmt.Fprintf(std.err, "%s; autotune restore --state %s puts the originals back\n", what, state)
	return err
}

// keptLine is one queue at the end of run --keep --json.
type keptLine struct {
	Kind  string      `json:"kind"` // "kept"
	Queue model.Queue `json:"queue"`
	// Settings are null where the queue could not be read; Why then says why.
	Settings *model.Settings `json:"settings"`
	Why      *string         `json:"why"`
}

func (c *runCmd) announce(w io.Writer, p model.Policy, napis []model.NAPI, missing []probe.Missing) {
	what := "observing (nothing is written; --apply tunes)"
	if c.Apply {
		what = "tuning"
	}
	fmt.Fprintf(w, "%s %s: %s, policy %s, SLO p%g <= %v, windows of %v\n",
		what, strings.Join(c.Ifaces, " "), model.Count(len(napis), "queue"), p.Name(), 100*c.SLOQuantile, c.SLO, c.Interval)
	for _, n := range napis {
		if n.Mapping == model.MappingPosition {
			fmt.Fprintf(w, "%s does not report which NAPI serves which queue: matched by ascending ID\n", n.Ifname)
			break
		}
	}
	for _, m := range missing {
		fmt.Fprintf(w, "without %s: %s (%v)\n", m.Name, m.Lost, m.Err)
	}
}

// goQuiet makes the runtime disturb the host less once everything is loaded.
// The loop is one goroutine: more processors only mean threads that wake up to
// look for work, and garbage collection on CPUs that serve packets.
func goQuiet() { runtime.GOMAXPROCS(1) }

// openError sorts the failures before the first window by who can mend them.
func openError(err error) error {
	var coded *exitError
	var unusable *actuate.StateError
	switch {
	case errors.As(err, &coded):
		return err
	case errors.As(err, &unusable):
		return usageError(err)
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		return cannotError(fmt.Errorf("%w; run as root (autotune doctor says what works without)", err))
	case errors.Is(err, os.ErrPermission), errors.Is(err, model.ErrReadOnly), errors.Is(err, probe.ErrNoPolls):
		return cannotError(fmt.Errorf("%w; autotune doctor says what is missing", err))
	case errors.Is(err, actuate.ErrStacked):
		return usageError(err)
	case errors.Is(err, model.ErrLinkDown):
		return cannotError(fmt.Errorf("%w; set the link up first", err))
	case errors.Is(err, model.ErrGone):
		return usageError(err)
	default:
		return err
	}
}

// ready tells a service manager, where there is one, that windows are being
// observed.
func ready() {
	n, err := sdnotify.New()
	if err != nil {
		return
	}
	// Nothing depends on whether the manager listens.
	_ = n.Notify(sdnotify.Ready)
	_ = n.Close()
}
