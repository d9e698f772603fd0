package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"autotune/actuate"
	"autotune/actuate/placement"
	"autotune/model"
	"autotune/model/readiness"
	"autotune/tuner"
)

// attendance is what a run does after each window beside deciding: it reports
// instances that were made anew and queues that were left to another writer,
// answers once whether the applications are ready for suspension, and keeps
// polls where packets are read.
//
// It is put between the source and the loop, so that it sees each sample before
// it is decided upon. None of its failures ends a run.
type attendance struct {
	std    streams
	asJSON bool
	name   func(model.Queue) string

	// host is set once the session is open.
	host    *actuate.Host
	yielded map[model.Queue]string

	watch *readinessWatch
	// asked tells that readiness is to be reported, and answered of which
	// processes it was.
	asked    bool
	answered map[int]bool
	// present are the processes of the window before.
	present map[int]bool
	windows int

	placer *placer
	stalls *stalls
}

// wrap puts the attendance behind a source.
func (a *attendance) wrap(source tuner.Source) tuner.Source { return attendedSource{source, a} }

type attendedSource struct {
	tuner.Source
	a *attendance
}

// Next implements [tuner.Source].
func (s attendedSource) Next(ctx context.Context) (model.Sample, error) {
	sample, err := s.Source.Next(ctx)
	if err == nil {
		s.a.window(ctx, &sample)
	}
	return sample, err
}

// readinessWindows is how many windows with applications are watched before
// their readiness is reported.
const readinessWindows = 3

func (a *attendance) window(ctx context.Context, s *model.Sample) {
	if a.host == nil {
		return
	}
	a.rebinds()
	a.yields()
	if a.stalls != nil {
		a.stalls.window(s)
	}
	if a.watch == nil {
		return
	}
	a.watch.add(s)
	if err := a.watch.exited(s); err != nil {
		fmt.Fprintf(a.std.err, "look at the applications' threads: %v\n", err)
	}
	if a.asked {
		a.readiness(ctx, s)
	}
	if a.placer != nil && a.placer.due(s) {
		a.place(ctx)
	}
}

// rebindLine is a queue whose instance was made anew.
type rebindLine struct {
	Kind   string         `json:"kind"` // "rebind"
	Queue  model.Queue    `json:"queue"`
	Ifname string         `json:"ifname"`
	OldID  uint32         `json:"old_napi_id"`
	NewID  uint32         `json:"new_napi_id"`
	Found  model.Settings `json:"found"`
}

func (a *attendance) rebinds() {
	list, dropped := a.host.Events()
	for _, r := range list {
		if a.asJSON {
			_ = printJSON(a.std.out, rebindLine{"rebind", r.Queue, r.Ifname, r.OldID, r.NewID, r.Found})
			continue
		}
		fmt.Fprintln(a.std.err, r)
	}
	if dropped > 0 {
		fmt.Fprintf(a.std.err, "%d more instances were made anew\n", dropped)
	}
}

// yieldLine is a queue that was left to another writer, or is the run's again.
type yieldLine struct {
	Kind    string      `json:"kind"` // "yield"
	Queue   model.Queue `json:"queue"`
	Ifname  string      `json:"ifname"`
	Yielded bool        `json:"yielded"`
	Why     string      `json:"why"`
}

func (a *attendance) yields() {
	now := a.host.Yielded()
	for _, q := range slices.SortedFunc(maps.Keys(now), model.Queue.Compare) {
		if why := now[q].Error(); a.yielded[q] != why {
			if a.yielded == nil {
				a.yielded = map[model.Queue]string{}
			}
			a.yielded[q] = why
			a.yield(q, true, why)
		}
	}
	for q := range a.yielded {
		if now[q] == nil {
			delete(a.yielded, q)
			a.yield(q, false, "it reads again what was last written")
		}
	}
}

func (a *attendance) yield(q model.Queue, yielded bool, why string) {
	if a.asJSON {
		_ = printJSON(a.std.out, yieldLine{"yield", q, a.name(q), yielded, why})
		return
	}
	what := "is left to another writer"
	if !yielded {
		what = "is taken back"
	}
	fmt.Fprintf(a.std.err, "%s queue %d %s: %s\n", a.name(q), q.Index, what, why)
}

// readiness reports on each application once, when it has been watched for a
// few windows.
func (a *attendance) readiness(ctx context.Context, s *model.Sample) {
	// Another process may get the ID of one that has ended.
	maps.DeleteFunc(a.answered, func(pid int, _ bool) bool { return a.watch.apps[pid] == nil })
	if len(s.Apps) == 0 {
		return
	}
	// A process that comes for one window and goes is nothing to report on.
	var fresh []int
	present := make(map[int]bool, len(s.Apps))
	for i := range s.Apps {
		pid := s.Apps[i].PID
		present[pid] = true
		if a.present[pid] && !a.answered[pid] {
			fresh = append(fresh, pid)
		}
	}
	a.present = present
	if a.windows++; a.windows < readinessWindows {
		return
	}
	if len(fresh) == 0 {
		return
	}
	// What cannot be read, the loop names.
	napis, _ := a.host.NAPIs(ctx)
	if len(napis) == 0 {
		return
	}
	conditions, err := a.host.Conditions(ctx)
	if err != nil {
		fmt.Fprintln(a.std.err, err)
	}
	for _, pid := range fresh {
		if a.answered == nil {
			a.answered = map[int]bool{}
		}
		a.answered[pid] = true
		facts := a.watch.facts(pid, napis, conditions)
		w := a.std.err
		if a.asJSON {
			w = a.std.out
		}
		if err := printReadiness(w, a.asJSON, facts.App, readiness.Judge(facts)); err != nil {
			fmt.Fprintln(a.std.err, err)
		}
	}
}

// placementLine is one finding about placement.
type placementLine struct {
	Kind string `json:"kind"` // "placement"
	placement.Finding
}

// placedLine is one move that was carried out or refused.
type placedLine struct {
	Kind string `json:"kind"` // "placed"
	placement.Move
	// Error is why it was not moved; null where it was.
	Error *string `json:"error"`
}

func (a *attendance) place(ctx context.Context) {
	news, done, err := a.placer.step(ctx)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(a.std.err, "placement: %v\n", err)
	}
	for _, f := range news {
		switch {
		case a.asJSON:
			_ = printJSON(a.std.out, placementLine{"placement", f})
		case f.Aligned:
			fmt.Fprintf(a.std.err, "placement: %s: %s\n", f.Subject, f.Detail)
		default:
			fmt.Fprintf(a.std.err, "placement: %s: %s; %s; aligning: %s\n", f.Subject, f.Detail, f.Consequence, f.Remedy)
		}
	}
	for _, d := range done {
		switch {
		case a.asJSON:
			_ = printJSON(a.std.out, placedLine{"placed", d.Move, textOfError(d.Err)})
		case d.Err != nil:
			fmt.Fprintf(a.std.err, "not placed: %v\n", d.Err)
		default:
			fmt.Fprintf(a.std.err, "placed: %v\n", d.Move)
		}
	}
}
