package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"autotune/experiments/compare"
	"autotune/experiments/counterfactual"
	"autotune/experiments/scenarios"
	"autotune/model"
	"autotune/model/sim"
	"autotune/probe/trace"
)

// compareTraces are the recordings whose load drives a comparison.
type compareTraces struct {
	loads []recordedLoad
	// all gathers the samples of all of them, for a fit; nil without.
	all *counterfactual.Recording
}

// recordedLoad is one recording of a comparison.
type recordedLoad struct {
	name   string
	files  recording
	header trace.Header
	// conditions are those at the start and after each change.
	conditions []trace.Conditions
	*counterfactual.Recording
}

// partNumber is what a recording that goes on in another file puts before the
// extension.
var partNumber = regexp.MustCompile(`\.[0-9]{6}$`)

// traceScenario returns the name of a recording's scenario: that of its file.
func traceScenario(files recording) string {
	name := filepath.Base(files[0])
	for _, extension := range []string{".zst", ".trace"} {
		name = strings.TrimSuffix(name, extension)
	}
	return scenarios.Name(partNumber.ReplaceAllString(name, ""))
}

// expand replaces patterns by the files that they match, in order of their
// names.
func expand(paths []string) []string {
	var out []string
	for _, path := range paths {
		matches, err := filepath.Glob(path)
		if err != nil || len(matches) == 0 {
			// What matches nothing is told by whoever opens it.
			matches = []string{path}
		}
		out = append(out, matches...)
	}
	return out
}

// readTraces reads the recordings that are named, and refuses those that tell
// no load or do not compare with each other.
func (c *compareGridCmd) readTraces(ctx context.Context, std streams) (*compareTraces, error) {
	recordings, err := recordingsOf(expand(c.Traces), false)
	if err != nil {
		return nil, err
	}
	out := &compareTraces{}
	if c.Fit {
		out.all = &counterfactual.Recording{}
	}
	for _, files := range recordings {
		l, err := readLoad(ctx, std, files, out.all)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files, err)
		}
		out.loads = append(out.loads, *l)
	}
	if !c.ForceConditions {
		if err := out.comparable(); err != nil {
			return nil, fmt.Errorf("%w; --force-conditions compares them all the same", err)
		}
	}
	return out, nil
}

// readLoad gathers one recording, and adds its samples to all where that is not
// nil. Unlike a replay, which tells how far it came, it refuses what is damaged:
// the results would be of another load than the one that is named.
func readLoad(ctx context.Context, std streams, files recording, all *counterfactual.Recording) (_ *recordedLoad, err error) {
	reader, err := trace.OpenParts(files, trace.ReaderOptions{AllowTruncated: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	l := &recordedLoad{
		name: traceScenario(files), files: files, header: reader.Header(),
		conditions: []trace.Conditions{reader.Header().Conditions}, Recording: &counterfactual.Recording{},
	}
	p := newLateProgress(std.err, "reading "+files.String())
	defer p.clear()
	for {
		record, err := reader.Record()
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case errors.Is(err, io.EOF):
			return l, l.CheckLoad()
		case damaged(err):
			return nil, fmt.Errorf("%w; autotune trace cut --salvage FILE -o SOUND keeps what is sound", err)
		case err != nil:
			return nil, err
		}
		switch record.Kind {
		case trace.KindSample:
			l.Add(&record.Sample)
			if all != nil {
				all.Add(&record.Sample)
			}
			p.read(reader.Stats())
		case trace.KindEvents:
			l.AddEvents(record.Events)
			if all != nil {
				all.AddEvents(record.Events)
			}
		case trace.KindConditions:
			l.conditions = append(l.conditions, *record.Conditions)
		default:
		}
	}
}

// comparable refuses recordings under different conditions, at any time of
// theirs.
func (t *compareTraces) comparable() error {
	for i, b := range t.loads {
		for _, a := range t.loads[:i] {
			var differ []string
			for _, x := range a.conditions {
				for _, y := range b.conditions {
					for _, line := range x.Differences(y) {
						if !slices.Contains(differ, line) {
							differ = append(differ, line)
						}
					}
				}
			}
			if len(differ) > 0 {
				return fmt.Errorf("%s and %s: %w: %s", a.files, b.files, trace.ErrConditions, strings.Join(differ, "; "))
			}
		}
	}
	return nil
}

// queues returns how many queues are to be simulated, of which asked is zero
// for all.
func (t *compareTraces) queues(asked int) (int, error) {
	least := &t.loads[0]
	for i := range t.loads {
		if l := &t.loads[i]; len(l.Queues) < len(least.Queues) {
			least = l
		}
	}
	for i := range t.loads {
		if l := &t.loads[i]; asked == 0 && len(l.Queues) != len(least.Queues) {
			return 0, fmt.Errorf("the numbers of queues differ, %s has %d and %s has %d: say with --queues how many, of each the busiest, are to be simulated",
				least.files, len(least.Queues), l.files, len(l.Queues))
		}
	}
	if asked < 0 || asked > len(least.Queues) {
		return 0, fmt.Errorf("--queues %d: %s has %d", asked, least.files, len(least.Queues))
	}
	if asked == 0 {
		return len(least.Queues), nil
	}
	return asked, nil
}

// regime returns what the recorded applications do.
func (t *compareTraces) regime() (compare.Regime, error) {
	regimes := make([]compare.Regime, len(t.loads))
	for i := range t.loads {
		regimes[i] = compare.RegimeDeferral
		if wait, known := t.loads[i].Wait(); known && wait.Prefer {
			regimes[i] = compare.RegimeSuspend
		}
		if regimes[i] != regimes[0] {
			return "", fmt.Errorf("the applications of %s and %s differ: only some prefer busy polling; choose with --regime suspend or deferral",
				t.loads[0].files, t.loads[i].files)
		}
	}
	return regimes[0], nil
}

// windows returns the number of windows of interval in the longest recording.
func (t *compareTraces) windows(interval time.Duration) int {
	most := 1
	for i := range t.loads {
		n, _ := t.loads[i].Windows()
		most = max(most, int(time.Duration(n)*t.loads[i].Each()/interval))
	}
	return most
}

// scenarios returns the loads of the busiest queues, in bursts where single
// arrivals are not known, over at most so many windows of interval: of longer recordings stretches, spread evenly, that a policy has
// time to act in.
func (t *compareTraces) scenarios(queues, windows int, interval time.Duration, bursts counterfactual.ToldBursts) []compare.Trace {
	bound := time.Duration(windows) * interval
	out := make([]compare.Trace, len(t.loads))
	for i := range t.loads {
		l := &t.loads[i]
		n, _ := l.Windows()
		recorded := func(d time.Duration) int { return int((d + l.Each() - 1) / l.Each()) }
		budget := recorded(bound)
		stretches := max(1, budget/recorded(blockLength*interval))
		blocks := counterfactual.Blocks(n, budget, budget/stretches)
		busiest := l.Busiest(queues)
		load := l.Arrivals(busiest, blocks, bursts.Bursts)
		duration := min(bound, time.Duration(len(load.PerSecond[0]))*load.Each)
		about := fmt.Sprintf("recorded, %v", duration.Round(time.Millisecond))
		switch whole := (time.Duration(n) * l.Each()).Round(time.Millisecond); {
		case len(blocks) > 1:
			about += fmt.Sprintf(" of %v in %d stretches", whole, len(blocks))
		case blocks[0][1] < n:
			about += fmt.Sprintf(" of %v from its beginning", whole)
		}
		about += fmt.Sprintf(", %d of %s, %.2f packets per request", queues, model.Count(len(l.Queues), "queue"), l.PacketsPerRequest())
		if known := l.Known(busiest, blocks); known.Single > 0 {
			about += fmt.Sprintf(", arrivals observed one by one in %s of queues, as in one that is alike in %d, at random in %d", model.Count(known.Single, "window"), known.Alike, known.Random)
		}
		if !bursts.AtRandom() {
			about += ", in " + burstsText(bursts) + " where not observed one by one"
		}
		out[i] = compare.NewTrace(l.name, about, duration, load)
	}
	return out
}

// addTraces puts the recorded loads into the plan, and what follows from them
// where no flag says otherwise.
func (c *compareGridCmd) addTraces(t *compareTraces, p *compare.Plan) error {
	var err error
	if p.Queues, err = t.queues(p.Queues); err != nil {
		return err
	}
	if p.Regime == "" {
		if p.Regime, err = t.regime(); err != nil {
			return err
		}
	}
	if p.Windows == 0 {
		p.Windows = t.windows(p.Interval)
	}
	p.Traces = t.scenarios(p.Queues, p.Windows, p.Interval, counterfactual.ToldBursts{})
	return nil
}

// fit makes the plan's machine that of the recordings, taken together as of one
// host, and has requests come in bursts where it finds that they do.
func (c *compareGridCmd) fit(ctx context.Context, t *compareTraces, p *compare.Plan, progress func(string)) error {
	start, err := fitStart(c.Preset, t.loads[0].header)
	if err != nil {
		return err
	}
	fitted, err := counterfactual.Fit(ctx, t.all, counterfactual.FitOptions{
		Start: start, Seed: c.Seed, Workers: c.Jobs,
		Progress: func(round, rounds int, loss float64) {
			progress(fmt.Sprintf("fitting a host to what was recorded: round %d of %d, loss %.1f", round+1, rounds, loss))
		},
	})
	if err != nil {
		return err
	}
	if bursts := fitted.Bursts(); !bursts.AtRandom() {
		p.Traces = t.scenarios(p.Queues, p.Windows, p.Interval, bursts)
	}
	names := make([]string, len(t.loads))
	for i := range t.loads {
		names[i] = t.loads[i].name
	}
	p.Preset = cmp.Or(c.Preset, start.Name)
	p.Fitted = t.all.Host(fitted.Best(), p.Queues)
	p.Fitted.Name = "fitted"
	p.Fitted.About = fmt.Sprintf("fitted to %s from preset %s", strings.Join(names, ", "), start.Name)
	return nil
}

// fitStart returns the preset that a fit to a recording starts from: the one that
// is named, or else what comes closest to the recorded devices.
func fitStart(name string, h trace.Header) (*sim.Preset, error) {
	if name == "" {
		name = "generic"
		for _, d := range h.Conditions.Devices {
			if d.Driver != nil && *d.Driver == "veth" {
				name = "veth"
			}
		}
	}
	return sim.LoadPreset(name)
}
