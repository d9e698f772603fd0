package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/model"
	"autotune/model/readiness"
	"autotune/probe"
	"autotune/probe/process"
)

const (
	// appWindows is how many windows an application is watched for, and
	// appWindow their length. In the first a process is only met.
	appWindows = 4
	appWindow  = 500 * time.Millisecond
	// appLook is how often it is looked where its threads are.
	appLook = 20 * time.Millisecond
)

// readinessLine is one answer in the output of doctor --app --json.
type readinessLine struct {
	Kind string `json:"kind"` // "readiness"
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	readiness.Answer
}

// readyLine sums up one process.
type readyLine struct {
	Kind string `json:"kind"` // "readiness_summary"
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// Ready tells that nothing stands in the way of suspension.
	Ready bool `json:"ready"`
	// GainsNothing tells that even so suspension would not pay at the load
	// that was seen.
	GainsNothing bool `json:"gains_nothing"`
	// Questions counts the answers, and No and Unknown those among them.
	Questions int `json:"questions"`
	No        int `json:"no"`
	Unknown   int `json:"unknown"`
}

// application watches the selected processes and reports on each.
func (c *doctorCmd) application(ctx context.Context, std streams) error {
	selector, err := model.ParseSelector(c.App)
	if err != nil {
		return usageError(fmt.Errorf("--app: %w", err))
	}
	if selector.Kind == model.SelectAll {
		return usageError(errors.New("--app all: name one application by comm=NAME, pid=N or cgroup=PATH"))
	}
	processes, err := process.Find("/proc", selector)
	if err != nil {
		return err
	}
	if len(processes) == 0 {
		return usageError(fmt.Errorf("--app %v: no such process is running here (`ps -eo pid,comm` shows what is)", selector))
	}
	byNamespace, order, err := c.namespaces(processes)
	if err != nil {
		return err
	}
	ready := true
	for _, ref := range order {
		all, err := c.inNamespace(ctx, std, ref, byNamespace[ref])
		if err != nil {
			return err
		}
		ready = ready && all
	}
	if !ready {
		return &exitError{code: exitMissed}
	}
	return nil
}

// namespaces sorts processes by their network namespace, each named by a
// process in it unless the command line names one.
func (c *doctorCmd) namespaces(processes []process.Process) (map[actuate.NamespaceRef][]process.Process, []actuate.NamespaceRef, error) {
	out := map[actuate.NamespaceRef][]process.Process{}
	if c.Netns != "" {
		ref := actuate.ParseNamespace(c.Netns)
		out[ref] = processes
		return out, []actuate.NamespaceRef{ref}, nil
	}
	byLink := map[string]actuate.NamespaceRef{}
	var order []actuate.NamespaceRef
	for _, p := range processes {
		link, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "ns/net"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, cannotError(fmt.Errorf("find the network namespace of %s (pid %d): %w; run as root", p.Comm, p.PID, err))
		}
		ref, known := byLink[link]
		if !known {
			ref = actuate.NamespaceRef{PID: p.PID}
			byLink[link] = ref
			order = append(order, ref)
		}
		out[ref] = append(out[ref], p)
	}
	return out, order, nil
}

// inNamespace reports on the processes of one namespace, and whether all are
// ready.
func (c *doctorCmd) inNamespace(ctx context.Context, std streams, ref actuate.NamespaceRef, processes []process.Process) (ready bool, err error) {
	host, err := actuate.Open(ctx, actuate.Options{Namespace: ref, Ifaces: c.Iface, ReadOnly: true})
	if err != nil {
		return false, openError(err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	watch := newReadinessWatch("/proc")
	for _, p := range processes {
		watch.app(p.PID).comm = p.Comm
	}
	if err := watchApps(ctx, std, host, watch, processes); err != nil {
		return false, err
	}
	napis, err := host.NAPIs(ctx)
	if len(napis) == 0 {
		if err == nil {
			err = cannotError(errors.New("no interface of its network namespace has a NAPI instance with an ID"))
		}
		return false, openError(err)
	}
	conditions, err := host.Conditions(ctx)
	if err != nil {
		fmt.Fprintln(std.err, err)
	}
	ready = true
	var answers []readiness.Answer
	for _, p := range processes {
		facts := watch.facts(p.PID, napis, conditions)
		found := readiness.Judge(facts)
		answers = append(answers, found...)
		ready = ready && readiness.Ready(found)
		if err := printReadiness(std.out, c.JSON, facts.App, found); err != nil {
			return ready, err
		}
	}
	if c.Fix {
		return ready, c.fix(ctx, std, ref, watch, napis, answers)
	}
	return ready, nil
}

// watchApps lets the probes see some windows. Where there are none it is said,
// and what they would have told stays unknown.
func watchApps(ctx context.Context, std streams, host *actuate.Host, watch *readinessWatch, processes []process.Process) (err error) {
	source, err := probe.Open(ctx, probe.Options{Interval: appWindow, Inventory: host, Contexts: true, EpollEvents: true})
	if errors.Is(err, probe.ErrNoPolls) {
		fmt.Fprintf(std.err, "what the processes do cannot be watched: %v\n", err)
		for _, p := range processes {
			if err := watch.look(p.PID); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	fmt.Fprintf(std.err, "watching %s for %v\n", model.Count(len(processes), "process"), appWindows*appWindow)
	looked := make(chan error, 1)
	stop := make(chan struct{})
	// The watch is touched by one goroutine at a time: this one looks while
	// the other waits for a window.
	samples := make(chan model.Sample)
	go func() {
		defer close(looked)
		tick := time.NewTicker(appLook)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case s := <-samples:
				watch.add(&s)
			case <-tick.C:
				for _, p := range processes {
					if err := watch.look(p.PID); err != nil {
						looked <- err
						return
					}
				}
			}
		}
	}()
	for range appWindows {
		sample, nextErr := source.Next(ctx)
		if nextErr != nil {
			err = nextErr
			break
		}
		select {
		case samples <- sample:
		case lookErr := <-looked:
			return lookErr
		}
	}
	close(stop)
	return errors.Join(err, <-looked)
}

// printReadiness prints the answers about one process.
func printReadiness(w io.Writer, asJSON bool, app readiness.App, answers []readiness.Answer) error {
	sum := readyLine{Kind: "readiness_summary", PID: app.PID, Comm: app.Comm, Ready: readiness.Ready(answers), GainsNothing: readiness.GainsNothing(answers), Questions: len(answers)}
	for _, a := range answers {
		switch a.Verdict {
		case readiness.No:
			sum.No++
		case readiness.Unknown:
			sum.Unknown++
		default:
		}
		if !asJSON {
			continue
		}
		if err := printJSON(w, readinessLine{"readiness", app.PID, app.Comm, a}); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(w, sum)
	}
	fmt.Fprintf(w, "%s (pid %d): suspension\n", app.Comm, app.PID)
	t := newTable(w, "QUESTION", "OF", "ANSWER", "FOUND")
	for _, a := range answers {
		t.row(string(a.Question), dashIfEmpty(a.Subject), string(a.Verdict), a.Detail)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, a := range answers {
		if a.Verdict == readiness.Yes {
			continue
		}
		subject := string(a.Question)
		if a.Subject != "" {
			subject += " of " + a.Subject
		}
		fmt.Fprintf(w, "\n%s: %s\n", subject, a.Verdict)
		if a.Consequence != "" {
			fmt.Fprintf(w, "  consequence:  %s\n", a.Consequence)
		}
		fmt.Fprintf(w, "  remedy:       %s\n", a.Remedy)
		if a.Fix != "" {
			fmt.Fprintf(w, "  --fix:        %s\n", fixText(a.Fix))
		}
	}
	verdict := "ready: nothing stands in the way of suspension"
	switch {
	case !sum.Ready:
		verdict = "not ready"
	case sum.GainsNothing:
		verdict = "ready, but suspension gains nothing at this load"
	}
	_, err := fmt.Fprintf(w, "\n%s (%d of %d answers are yes)\n", verdict, sum.Questions-sum.No-sum.Unknown, sum.Questions)
	return err
}

func fixText(f readiness.Fix) string {
	switch f {
	case readiness.FixPrefer:
		return "turns it on"
	case readiness.FixDeferral:
		return "sets " + readiness.Deferral().String()
	default:
		return "moves what polls to what reads, and narrows threads"
	}
}

// fixLine is one thing that doctor --fix did.
type fixLine struct {
	Kind    string        `json:"kind"` // "fix"
	Fix     readiness.Fix `json:"fix"`
	Subject string        `json:"subject"`
	From    string        `json:"from"`
	To      string        `json:"to"`
	// Error is why it could not be done; null where it was.
	Error *string `json:"error"`
}

// fix does what autotune can do by itself. It is kept, as by run --keep, and
// restore undoes it. What was done is printed also where something else failed.
func (c *doctorCmd) fix(ctx context.Context, std streams, ref actuate.NamespaceRef, watch *readinessWatch, napis []model.NAPI, answers []readiness.Answer) (err error) {
	wanted := map[readiness.Fix]bool{}
	for _, a := range answers {
		wanted[a.Fix] = true
	}
	if !wanted[readiness.FixPrefer] && !wanted[readiness.FixDeferral] && !wanted[readiness.FixPlacement] {
		fmt.Fprintln(std.err, "nothing here is autotune's to fix")
		return nil
	}
	state, err := stateOr(c.State)
	if err != nil {
		return usageError(err)
	}
	apps := &applications{}
	defer func() { err = errors.Join(err, apps.Close()) }()
	host, err := actuate.Open(ctx, actuate.Options{
		System: actuate.Live{Applications: apps}, Namespace: ref, Ifaces: fixedIfaces(napis), StateDir: state,
	})
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if err := host.Privilege(); err != nil {
		return cannotError(err)
	}
	var lines []fixLine
	var errs []error
	take := func(done []fixLine, err error) {
		lines, errs = append(lines, done...), append(errs, err)
	}
	if wanted[readiness.FixPrefer] {
		take(fixPrefer(ctx, std, host, apps, watch, napis))
	}
	if wanted[readiness.FixDeferral] {
		take(fixDeferral(ctx, host, napis, answers))
	}
	if wanted[readiness.FixPlacement] {
		take(fixPlacement(ctx, host, watch))
	}
	if err := c.printFixes(std.out, lines); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if len(lines) > 0 {
		fmt.Fprintf(std.err, "kept; autotune restore --state %s puts the originals back\n", state)
	}
	return errors.Join(errs...)
}

func (c *doctorCmd) printFixes(w io.Writer, lines []fixLine) error {
	for _, l := range lines {
		var err error
		switch {
		case c.JSON:
			err = printJSON(w, l)
		case l.Error != nil:
			_, err = fmt.Fprintf(w, "not fixed: %s: %s\n", l.Subject, *l.Error)
		default:
			_, err = fmt.Fprintf(w, "fixed: %s: %s -> %s\n", l.Subject, l.From, l.To)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func fixedIfaces(napis []model.NAPI) []string {
	var out []string
	for _, n := range napis {
		if !slices.Contains(out, n.Ifname) {
			out = append(out, n.Ifname)
		}
	}
	return out
}

// fixPrefer has the contexts of the watched processes that are of one instance
// of the interfaces alone prefer busy polling.
func fixPrefer(ctx context.Context, std streams, host *actuate.Host, apps *applications, watch *readinessWatch, napis []model.NAPI) ([]fixLine, error) {
	if err := apps.whole(); err != nil {
		return nil, err
	}
	rows, err := apps.List(ctx, slices.Sorted(maps.Keys(watch.apps)), false)
	if err != nil {
		return nil, applicationsError(err)
	}
	ours := func(id uint32) bool {
		return slices.ContainsFunc(napis, func(n model.NAPI) bool { return n.ID == id })
	}
	var wishes []actuate.Wish
	for _, d := range rows {
		if watch.apps[d.PID] == nil || d.Mixed() || len(d.NAPIIDs) != 1 || !ours(d.NAPIIDs[0]) || d.Params == nil || d.Params.Prefer {
			continue
		}
		wishes = append(wishes, actuate.Wish{Descriptor: d, To: withPrefer})
	}
	owned := host.Applications()
	granted, err := owned.Apply(ctx, wishes)
	for _, report := range owned.Recovered() {
		fmt.Fprintf(std.err, "restored what another run had left:\n%s", report)
	}
	var lines []fixLine
	for _, g := range granted {
		line := fixLine{
			Kind: "fix", Fix: readiness.FixPrefer, Error: textOfError(g.Err),
			Subject: fmt.Sprintf("%s (pid %d) epoll context %d", g.Descriptor.Comm, g.Descriptor.PID, g.Descriptor.FD),
		}
		if g.From != nil {
			line.From, line.To = g.From.String(), withPrefer(*g.From).String()
		}
		lines = append(lines, line)
	}
	if err != nil {
		return lines, applicationsError(err)
	}
	return lines, nil
}

// withPrefer turns preferred busy polling on. The budget is that of the
// published measurements where the application has chosen none.
func withPrefer(p busypoll.Params) busypoll.Params {
	p.Prefer = true
	if p.Budget == 0 {
		p.Budget = model.DefaultBounds().MaxBudget
	}
	return p
}

// fixDeferral sets the instances that an answer is about. A value that is there
// already stays.
func fixDeferral(ctx context.Context, host *actuate.Host, napis []model.NAPI, answers []readiness.Answer) ([]fixLine, error) {
	want := model.Config{}
	var lines []fixLine
	for _, n := range napis {
		subject := fmt.Sprintf("%s queue %d", n.Ifname, n.Queue.Index)
		if !slices.ContainsFunc(answers, func(a readiness.Answer) bool { return a.Fix == readiness.FixDeferral && a.Subject == subject }) {
			continue
		}
		to := n.Settings
		if to.DeferHardIRQs == 0 {
			to.DeferHardIRQs = readiness.Deferral().DeferHardIRQs
		}
		if to.GROFlushTimeout == 0 {
			to.GROFlushTimeout = readiness.Deferral().GROFlushTimeout
		}
		want[n.Queue] = to
		lines = append(lines, fixLine{Kind: "fix", Fix: readiness.FixDeferral, Subject: subject, From: n.Settings.String(), To: to.String()})
	}
	_, err := host.Apply(ctx, want)
	if err != nil && len(whyNot(err)) == 0 {
		return nil, err
	}
	failed := whyNot(err)
	at := 0
	for _, n := range napis {
		if _, asked := want[n.Queue]; asked {
			lines[at].Error = textOfError(failed[n.Queue])
			at++
		}
	}
	return lines, nil
}

// fixPlacement moves what polls and what reads together.
func fixPlacement(ctx context.Context, host *actuate.Host, watch *readinessWatch) ([]fixLine, error) {
	moves, err := newPlacer(host, watch, placeAlign).moves(ctx)
	if err != nil {
		return nil, err
	}
	done, err := host.Place(ctx, moves)
	var lines []fixLine
	for _, d := range done {
		lines = append(lines, fixLine{Kind: "fix", Fix: readiness.FixPlacement, Subject: d.Item.String(), From: d.From, To: d.To, Error: textOfError(d.Err)})
	}
	return lines, err
}

func textOfError(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
