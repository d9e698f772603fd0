package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"autotune/experiments/counterfactual"
	"autotune/model"
	"autotune/model/sim"
	"autotune/probe/trace"
)

// untrusted is the utilisation above which settings must not be ranked by what
// is predicted: near saturation small errors of the costs become large ones of
// the delay.
const untrusted = 0.9

// misfitting is the error of what is reproduced above which what is predicted
// must not be relied on.
const misfitting = 0.3

// blockLength is the number of windows of a stretch, where not all of a
// recording is simulated: a policy needs some to settle.
const blockLength = 60

// simulatedLine is one row of replay --simulate.
type simulatedLine struct {
	Kind string `json:"kind"` // "counterfactual"
	File string `json:"file"`
	// Role is "recorded" for what was measured, "reproduced" for the simulated
	// host under the recorded settings, and "policy".
	Role   string `json:"role"`
	Policy string `json:"policy"`
	bandsLine
	// Trusted is false where the utilisation is so high that settings must
	// not be ranked by this row.
	Trusted bool `json:"trusted"`
}

// bandsLine has null for what is not known.
type bandsLine struct {
	P50Us           bandLine `json:"p50_us"`
	P90Us           bandLine `json:"p90_us"`
	P99Us           bandLine `json:"p99_us"`
	CPUPerRequestUs bandLine `json:"cpu_per_request_us"`
	Requests        bandLine `json:"requests_per_s"`
	Violating       bandLine `json:"violating_windows_share"`
	Utilisation     bandLine `json:"highest_utilisation"`
	Moves           bandLine `json:"moves"`
}

type bandLine struct {
	Low    *float64 `json:"low"`
	Median *float64 `json:"median"`
	High   *float64 `json:"high"`
}

func lineOf(b counterfactual.Bands) bandsLine {
	known := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	line := func(b counterfactual.Band) bandLine { return bandLine{known(b.Low), known(b.Median), known(b.High)} }
	return bandsLine{
		P50Us: line(b.P50Us), P90Us: line(b.P90Us), P99Us: line(b.P99Us), CPUPerRequestUs: line(b.CPUPerRequestUs),
		Requests: line(b.RequestsPerSecond), Violating: line(b.Violating), Utilisation: line(b.Utilisation), Moves: line(b.Moves),
	}
}

// modelLine says what a prediction rests on, in the output of replay
// --simulate --json.
type modelLine struct {
	Kind   string `json:"kind"` // "counterfactual_model"
	File   string `json:"file"`
	Preset string `json:"preset"`
	// Fitted tells whether the preset was fitted to the recording; Costs are
	// then its costs.
	Fitted  bool       `json:"fitted"`
	Costs   []costLine `json:"costs"`
	Assumed []string   `json:"assumed"`
	// Windows were recorded, Disturbed of them not used for the fit, and
	// Simulated simulated.
	Windows   int `json:"windows"`
	Disturbed int `json:"disturbed_windows"`
	Simulated int `json:"simulated_windows"`
	// PacketsPerRequest is measured; requests are packets divided by it.
	PacketsPerRequest float64 `json:"packets_per_request"`
	// Of the simulated windows of queues that had packets: how many had their
	// arrivals observed one by one, how many take those of a window that is
	// alike, and in how many requests come at random.
	ArrivalsSingle int `json:"arrivals_single_windows"`
	ArrivalsAlike  int `json:"arrivals_alike_windows"`
	ArrivalsRandom int `json:"arrivals_random_windows"`
	// ArrivalsBursts is in how many they come as Bursts says, which is null where
	// nothing speaks for bursts.
	ArrivalsBursts int         `json:"arrivals_bursts_windows"`
	Bursts         *burstsLine `json:"bursts"`
	// UnusedEvents is how many windows with single events were of no use, as
	// some were lost or the window was disturbed.
	UnusedEvents int `json:"unused_event_windows"`
	// ServiceTimes is how many single service times their distribution is from;
	// null where requests are equal work.
	ServiceTimes *int `json:"service_times"`
	// Misfit is by how much the reproduced row is off the recorded, as a share:
	// the most of p50, p90 and CPU per request. Null where neither is known.
	Misfit *float64 `json:"reproduction_error"`
}

// arrivals counts the simulated windows of queues that had packets.
func (m modelLine) arrivals() int {
	return m.ArrivalsSingle + m.ArrivalsAlike + m.ArrivalsRandom + m.ArrivalsBursts
}

// burstsLine is how requests come in bursts, fitted, each value with the factor
// within which it is with probability 2/3.
type burstsLine struct {
	Requests        float64 `json:"requests"`
	RequestsFactor  float64 `json:"requests_uncertain_by_factor"`
	PerSecond       float64 `json:"requests_per_s_within"`
	PerSecondFactor float64 `json:"requests_per_s_within_uncertain_by_factor"`
	Alone           float64 `json:"alone_share"`
	AloneFactor     float64 `json:"alone_share_uncertain_by_factor"`
}

func burstsLineOf(b counterfactual.ToldBursts) *burstsLine {
	return &burstsLine{b.Requests, b.Factors.Requests, b.PerSecond, b.Factors.PerSecond, b.Alone, b.Factors.Alone}
}

// eventsText says what single events told.
func (m modelLine) eventsText() string {
	text := ""
	if m.ArrivalsSingle > 0 {
		text += "; when requests came, one by one, in " + ofWindows(m.ArrivalsSingle, m.arrivals())
	}
	if m.ServiceTimes != nil {
		text += fmt.Sprintf("; the distribution of %s", model.Count(*m.ServiceTimes, "service time"))
	}
	if m.UnusedEvents > 0 {
		text += fmt.Sprintf("; the single events of %s were of no use, as some were lost or the window was disturbed", model.Count(m.UnusedEvents, "window"))
	}
	return text
}

type costLine struct {
	Name   string  `json:"name"`
	Value  int64   `json:"value_ns"`
	Factor float64 `json:"uncertain_by_factor"`
	// Told is false where the recording says next to nothing of it.
	Told bool `json:"told_by_recording"`
}

// readRecording gathers a trace. Damage ends it, and is returned beside what
// came before.
func (c *replayCmd) readRecording(ctx context.Context, std streams, files recording) (_ *counterfactual.Recording, h trace.Header, state traceState, err error) {
	reader, err := c.open(files)
	if err != nil {
		return nil, h, state, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	// A long recording is most of the heap, and a third of it is as much as
	// garbage may add.
	defer debug.SetGCPercent(debug.SetGCPercent(33))
	steps := newStepSource(reader, true)
	defer steps.close()
	progress := newTicker(std.err)
	var r counterfactual.Recording
	for {
		sample, err := steps.Next(ctx)
		if errors.Is(err, io.EOF) || steps.damage != nil {
			break
		}
		if err != nil {
			return nil, h, state, err
		}
		r.Add(&sample)
		for _, e := range steps.step.Events {
			r.AddEvents(e)
		}
		if n := steps.samples; n%5000 == 0 {
			progress.say(fmt.Sprintf("read %s", model.Count(n, "window")))
		}
	}
	progress.end()
	return &r, reader.Header(), stateOf(reader.Stats(), steps.damage), nil
}

// simulate prints what each policy would have come to.
func (c *replayCmd) simulate(ctx context.Context, std streams, files recording) (ok bool, err error) {
	path := files.String()
	recording, header, state, err := c.readRecording(ctx, std, files)
	if err != nil {
		return false, err
	}
	if err := recording.Check(); err != nil {
		if state.Damage != nil {
			err = fmt.Errorf("%w before its damage: %s", err, *state.Damage)
		}
		return false, usageError(err)
	}
	options, err := c.options(header, c.specs()[0])
	if err != nil {
		return false, err
	}
	start, err := fitStart(c.Preset, header)
	if err != nil {
		return false, err
	}
	hosts := []counterfactual.Candidate{{Preset: recording.Host(start, 1)}}
	m := modelLine{Kind: "counterfactual_model", File: path, Preset: start.Name, Costs: []costLine{}, PacketsPerRequest: recording.PacketsPerRequest()}
	m.Windows, m.Disturbed = recording.Windows()
	var told []counterfactual.Told
	var bursts counterfactual.ToldBursts
	if c.Preset == "" || c.Fit {
		progress := newTicker(std.err)
		fitted, err := counterfactual.Fit(ctx, recording, counterfactual.FitOptions{
			Start: start, Seed: c.Seed,
			Progress: func(round, rounds int, loss float64) {
				progress.say(fmt.Sprintf("fitting a host to the recording: round %d of %d, loss %.1f", round+1, rounds, loss))
			},
		})
		progress.end()
		if err != nil {
			return false, err
		}
		hosts = fitted.Draws(c.Draws, c.Seed)
		told, bursts, m.Fitted = fitted.Told(), fitted.Bursts(), true
		for _, t := range told {
			m.Costs = append(m.Costs, costLine{Name: t.Name, Value: int64(t.Value), Factor: t.Factor, Told: !t.Assumed()})
		}
		if c.WritePreset != "" {
			if err := writePreset(c.WritePreset, fitted.Best(), path, start.Name); err != nil {
				return false, err
			}
		}
	}
	budget := c.budget(recording.RequestsPerWindow())
	blocks := counterfactual.Blocks(m.Windows, budget, min(blockLength, max(budget, 1)))
	for _, b := range blocks {
		m.Simulated += b[1] - b[0]
	}
	known := recording.Known(recording.Busiest(len(recording.Queues)), blocks)
	m.ArrivalsSingle, m.ArrivalsAlike, m.ArrivalsRandom = known.Single, known.Alike, known.Random
	if !bursts.AtRandom() {
		m.ArrivalsBursts, m.ArrivalsRandom = m.ArrivalsRandom, 0
		m.Bursts = burstsLineOf(bursts)
	}
	_, m.UnusedEvents = recording.Events()
	if n := recording.Services(); n > 0 && m.Fitted {
		m.ServiceTimes = &n
	}
	m.Assumed = c.assumptions(recording, start, m)
	predict := counterfactual.PredictOptions{
		Hosts: hosts, Objective: options.Objective, Bounds: options.Bounds, Blocks: blocks,
		Prefer: c.AssumePrefer, Seed: c.Seed, Original: originalsOf(header),
	}
	lines := []simulatedLine{{
		Kind: "counterfactual", File: path, Role: "recorded", Policy: recordedPolicy(header), Trusted: true,
		bandsLine: lineOf(counterfactual.BandsOf([]counterfactual.Outcome{recording.Measured(blocks, options.Objective)})),
	}}
	// Nothing is written by a host that was only looked at.
	lines[0].Utilisation, lines[0].Moves = bandLine{}, bandLine{}
	for i, spec := range append([]string{""}, c.simulated(header)...) {
		predict.Policy = spec
		role, name := "policy", spec
		if i == 0 {
			role, name = "reproduced", "the recorded settings"
		}
		progress := newTicker(std.err)
		predict.Progress = func(done, all int) {
			progress.say(fmt.Sprintf("%s: %d of %d hosts", name, done, all))
		}
		outcomes, err := counterfactual.Predict(ctx, recording, predict)
		progress.end()
		if err != nil {
			return false, err
		}
		bands := counterfactual.BandsOf(outcomes)
		lines = append(lines, simulatedLine{
			Kind: "counterfactual", File: path, Role: role, Policy: spec, bandsLine: lineOf(bands),
			Trusted: bands.Utilisation.Median <= untrusted,
		})
	}
	m.Misfit = misfit(lines[0], lines[1])
	return state.Damage == nil, c.printSimulated(std, headOf(path, header), m, told, bursts, lines, state)
}

// The default of --windows: a host is simulated some hundred thousand requests a
// second, and each policy on twenty. A policy has little to show in less than
// leastWindows.
const (
	mostWindows  = 1200
	mostRequests = 2e6
	leastWindows = 30
)

// budget returns the number of windows to simulate; zero is all.
func (c *replayCmd) budget(requestsPerWindow float64) int {
	if c.Windows != nil {
		return *c.Windows
	}
	return int(max(leastWindows, min(mostWindows, mostRequests/requestsPerWindow)))
}

// misfit returns the largest relative error of what was reproduced.
func misfit(recorded, reproduced simulatedLine) *float64 {
	var worst *float64
	for _, v := range [][2]bandLine{
		{recorded.P50Us, reproduced.P50Us}, {recorded.P90Us, reproduced.P90Us}, {recorded.CPUPerRequestUs, reproduced.CPUPerRequestUs},
	} {
		if v[0].Median == nil || v[1].Median == nil || *v[0].Median <= 0 {
			continue
		}
		if e := math.Abs(*v[1].Median / *v[0].Median - 1); worst == nil || e > *worst {
			worst = &e
		}
	}
	return worst
}

// simulated are the policies to predict.
func (c *replayCmd) simulated(h trace.Header) []string {
	if len(c.Policies) > 0 {
		return c.Policies
	}
	return []string{h.Run.Policy}
}

func recordedPolicy(h trace.Header) string {
	if h.Run == nil || !h.Run.Apply {
		return ""
	}
	return h.Run.Policy
}

// originalsOf returns what queues were set to when the recording began.
func originalsOf(h trace.Header) func(model.Queue) model.Settings {
	settings := make(map[model.Queue]model.Settings)
	for _, d := range h.Conditions.Devices {
		for _, n := range d.NAPIs {
			settings[n.Queue] = n.Settings
		}
	}
	if h.Run != nil {
		for _, o := range h.Run.Originals {
			settings[o.Queue] = o.Settings
		}
	}
	return func(q model.Queue) model.Settings { return settings[q] }
}

// assumptions lists what is neither measured nor fitted.
func (c *replayCmd) assumptions(r *counterfactual.Recording, start *sim.Preset, m modelLine) []string {
	host := r.Host(start, 1)
	out := []string{
		fmt.Sprintf("%d connections per queue, each with one request at a time", host.Host.Connections),
		"device moderation, client and scheduler as in preset " + start.Name,
	}
	all := m.arrivals()
	if m.ArrivalsRandom > 0 {
		out = append(out, fmt.Sprintf("requests arrive at random (Poisson) within %s", ofWindows(m.ArrivalsRandom, all)))
	}
	if m.ArrivalsBursts > 0 {
		out = append(out, "bursts are of a geometric number of requests, alike at all loads, and follow each other at random")
	}
	if m.ArrivalsAlike > 0 {
		out = append(out, fmt.Sprintf("within %s they arrive as in the nearest with single events and about as many requests", ofWindows(m.ArrivalsAlike, all)))
	}
	if m.ServiceTimes == nil {
		out = append(out, "requests are equal work")
	}
	if !m.Fitted {
		out = append(out, "all costs as in preset "+start.Name)
	}
	if c.AssumePrefer {
		out = append(out, "applications prefer busy polling, with a budget of 64")
	}
	if len(r.Queues) > 1 {
		out = append(out, "queues do not influence each other, and their applications wait alike")
	}
	if _, known := r.Wait(); !known {
		out = append(out, "how applications wait was not observed: as if none prefers busy polling")
	}
	if windows, _ := r.Windows(); r.Unserved() > windows/2 {
		out = append(out, "the applications' CPU time, which was not observed and so is missing from the row recorded: compare CPU only among the other rows")
	}
	if per := r.PacketsPerRequest(); per < 0.9 || per > 2.2 {
		out = append(out, fmt.Sprintf("requests of 1 to 2 packets, where the recording has %.2f per request", per))
	}
	return out
}

// ofWindows says how many of all windows.
func ofWindows(n, all int) string {
	if n == all {
		return "every window"
	}
	return fmt.Sprintf("%d of %s", n, model.Count(all, "window"))
}

// writePreset writes a fitted host to a file that does not exist.
func writePreset(path string, p *sim.Preset, trace, start string) error {
	p.Name = strings.TrimSuffix(path, ".json")
	p.About = fmt.Sprintf("fitted to the recording %s from preset %s", trace, start)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return usageError(fmt.Errorf("write the preset: %w", err))
	}
	return errors.Join(p.Write(f), f.Close())
}

func (c *replayCmd) printSimulated(std streams, head replayHead, m modelLine, told []counterfactual.Told, bursts counterfactual.ToldBursts, lines []simulatedLine, state traceState) error {
	if c.JSON {
		encoder := json.NewEncoder(std.out)
		for _, line := range lines {
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return encoder.Encode(struct {
			modelLine
			Trace traceState `json:"trace"`
		}{m, state})
	}
	fmt.Fprintln(std.out, head)
	t := newTable(std.out, "", "P50", "P90", "P99", "CPU/REQUEST", "VIOLATING", "UTILISATION", "MOVES")
	text := func(b bandLine, format string, scale float64) string {
		switch {
		case b.Median == nil:
			return "-"
		case b.Low == nil || *b.Low == *b.High:
			return fmt.Sprintf(format, scale**b.Median)
		}
		return fmt.Sprintf(format+" ["+format+", "+format+"]", scale**b.Median, scale**b.Low, scale**b.High)
	}
	for _, l := range lines {
		name := l.Role
		if l.Role == "policy" {
			name = l.Policy
		}
		t.row(name, text(l.P50Us, "%.0fus", 1), text(l.P90Us, "%.0fus", 1), text(l.P99Us, "%.0fus", 1), text(l.CPUPerRequestUs, "%.2fus", 1),
			text(l.Violating, "%.1f%%", 100), text(l.Utilisation, "%.2f", 1), text(l.Moves, "%.0f", 1))
	}
	if err := t.flush(); err != nil {
		return err
	}
	out := std.out
	fmt.Fprintf(out, "\nbands hold 90%% of %s; delays are the server's own\n", model.Count(c.Draws, "simulated host"))
	fmt.Fprintf(out, "measured: packets per window and queue, delays, CPU time, polls; %.2f packets per request%s\n", m.PacketsPerRequest, m.eventsText())
	if m.Bursts != nil {
		fmt.Fprintf(out, "fitted to packets per poll: requests come in bursts in %s: %s\n", ofWindows(m.ArrivalsBursts, m.arrivals()), burstsText(bursts))
	}
	if m.Fitted {
		fmt.Fprintln(out, toldText(told))
	}
	fmt.Fprintf(out, "assumed: %s\n", strings.Join(m.Assumed, "; "))
	if m.Disturbed > 0 {
		fmt.Fprintf(out, "not fitted to %d of %s, which were disturbed (lost events, stolen CPU time)\n", m.Disturbed, model.Count(m.Windows, "window"))
	}
	if m.Simulated < m.Windows {
		fmt.Fprintf(out, "simulated %d of %s, spread evenly; --windows 0 simulates all\n", m.Simulated, model.Count(m.Windows, "window"))
	}
	if slices.ContainsFunc(lines, func(l simulatedLine) bool { return !l.Trusted }) {
		fmt.Fprintf(out, "utilisation above %.1f: do not rank by those rows\n", untrusted)
	}
	if m.Misfit != nil && *m.Misfit > misfitting {
		fmt.Fprintf(out, "the simulated host does not behave as the recorded one (off by %.0f%%): do not rely on what is predicted\n", 100**m.Misfit)
	}
	if text := strings.TrimPrefix(state.text(head.File), "\n"); text != "" {
		fmt.Fprintln(out, text)
	}
	return nil
}
