package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"autotune/experiments/workload"
	"autotune/model"
)

// calibrations is how often a calibration is tried while the machine is too
// busy for one.
const calibrations = 3

// calibrate fixes the SLO: the base alone, under the busiest phase's load.
func (e *experiment) calibrate(ctx context.Context) error {
	base, phase := e.options.Contenders[0], e.options.Phases[busiest(e.options.Phases)]
	for try := 1; ; try++ {
		e.progress.now("calibrating: %s alone at %s requests/s for %v", base.Name, thousands(phase.Rate), e.options.Calibration)
		var o observation
		before, beforeErr := e.meter.read()
		began := time.Now()
		intervals, err := e.alone(ctx, base, phase, &o)
		if err != nil {
			return err
		}
		if after, err := e.meter.read(); err == nil && beforeErr == nil {
			other := float64(after.all-before.all-(after.server-before.server)-(after.napi-before.napi)) / float64(time.Since(began))
			if other > MaxOther && try == 1 {
				e.progress.done("the machine is busy, %.0f%% of the server's CPU go elsewhere: above %.0f%% the verdict will be undecided", 100*other, 100*MaxOther)
			}
		}
		c, err := newCalibration(intervals, e.options, o.delayP90())
		if err == nil {
			e.result.Run.Calibration, e.found = c, o.lastActive()
			break
		}
		if try == calibrations {
			return err
		}
		e.progress.done("calibration %d of %d gave no SLO (%v); again", try, calibrations, err)
	}
	c := e.result.Run.Calibration
	e.progress.done("SLO: p90 <= %s, which is %g times the median p90 of %s that %s alone had in %s at %s requests/s (before the rounds)",
		microseconds(c.SLO), c.Factor, microseconds(c.BaseP90), base.Name, model.Count(c.Windows, "window"), thousands(phase.Rate))
	if c.DelayP90 != nil {
		e.progress.done("the tuner sees the server's side only, a p90 of %s meanwhile: it is given %s to meet", microseconds(*c.DelayP90), microseconds(c.Objective))
	}
	return nil
}

// calibrationPhase is what the client calls the phase of a calibration.
const calibrationPhase = "calibration"

// alone runs the contender outside the rounds and returns the client's
// intervals.
func (e *experiment) alone(ctx context.Context, c Contender, phase Phase, o *observation) ([]workload.ClientInterval, error) {
	e.meter.begin(nil)
	err := e.tuned(ctx, c, objective(time.Second), o, func() error {
		// A stretch of the same load first, so that it is warm.
		settle := 2 * e.options.Window
		if _, err := e.client.Phase(ctx, workload.Phase{Name: calibrationPhase, Rate: phase.Rate, Settle: settle}); err != nil {
			return err
		}
		if err := e.wait(ctx, e.options.Calibration+settle); err != nil {
			return err
		}
		_, err := e.client.Phase(ctx, workload.Phase{Name: idle})
		return err
	})
	intervals, _ := e.meter.collected()
	return intervals, err
}

// calibrationExcluded is the greatest share of a window's requests that may be
// excluded. It can be greater than [MaxExcluded]: what is left is too fast, and
// an SLO that is too tight flatters nobody.
const calibrationExcluded = 0.5

// newCalibration fixes the SLO by what the base did, or says why it cannot.
func newCalibration(intervals []workload.ClientInterval, options Options, delayP90 *time.Duration) (Calibration, error) {
	var p90s []float64
	var span time.Duration
	windows := 0
	for _, in := range intervals {
		// Stubs at the ends of a phase hold too few requests for a p90.
		if in.Phase != calibrationPhase || in.Settling || in.End-in.Start < options.Window/2 {
			continue
		}
		windows++
		if in.Completed == 0 || float64(in.ExcludedClient+in.ExcludedServer) > calibrationExcluded*float64(in.Completed) || in.Latency.Count() == 0 {
			continue
		}
		p90s = append(p90s, float64(in.Latency.Quantile(objectiveQuantile)))
		span += in.End - in.Start
	}
	if windows == 0 || 2*len(p90s) < windows {
		return Calibration{}, fmt.Errorf("%w: the machine is too busy, only %d of %d windows had half of their requests clear of scheduling gaps: stop what else runs, or try later",
			ErrCannotRun, len(p90s), windows)
	}
	c := Calibration{
		Span: span, Windows: len(p90s), Factor: options.SLOFactor,
		BaseP90: time.Duration(math.Round(percentile(p90s, 0.5))), DelayP90: delayP90,
	}
	c.SLO = time.Duration(math.Round(c.Factor * float64(c.BaseP90)))
	c.Objective = c.SLO
	if delayP90 != nil {
		c.Objective = c.SLO - max(c.BaseP90-*delayP90, 0)
	}
	return c, nil
}

// wait lets the load run for a while.
func (e *experiment) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.client.Done():
		return errors.New("the load client ended unasked")
	case <-e.server.Done():
		return errors.New("the load server ended unasked")
	}
}

// boundary is the start of a phase, and so the end of the one before.
type boundary struct {
	at   time.Duration
	cpus reading
}

func (e *experiment) phase(ctx context.Context, name string, rate float64) (boundary, error) {
	at, err := e.client.Phase(ctx, workload.Phase{Name: name, Rate: rate})
	if err != nil {
		return boundary{}, err
	}
	cpus, err := e.meter.read()
	return boundary{at, cpus}, err
}

// turn has one contender run all phases. Its rows are kept for the phases that
// were complete, also where it ends early.
func (e *experiment) turn(ctx context.Context, round, turn int, c Contender) error {
	o := observation{found: e.found}
	var bounds []boundary
	e.meter.begin(func(in workload.ClientInterval, cost *time.Duration) { e.show(round, c, in, cost, &o) })
	err := e.tuned(ctx, c, objective(e.result.Run.Calibration.Objective), &o, func() error {
		for i, phase := range e.options.Phases {
			b, err := e.phase(ctx, phase.Name, phase.Rate)
			if err != nil {
				return err
			}
			bounds = append(bounds, b)
			e.finished(round, c, i-1, bounds, &o)
			if err := e.wait(ctx, phase.Duration); err != nil {
				return err
			}
		}
		b, err := e.phase(ctx, idle, 0)
		if err != nil {
			return err
		}
		bounds = append(bounds, b)
		e.finished(round, c, len(e.options.Phases)-1, bounds, &o)
		return nil
	})
	// Only now have all samples come that belong to the phases.
	for i := range max(len(bounds)-1, 0) {
		row := e.row(i, bounds, &o)
		row.Round, row.Turn, row.Contender = round, turn, c.Name
		e.result.Rows = append(e.result.Rows, row)
	}
	if len(bounds) > 0 {
		e.result.Windows = append(e.result.Windows, e.windows(round, c, bounds, &o)...)
	}
	return err
}

// row condenses a phase that is complete.
func (e *experiment) row(index int, bounds []boundary, o *observation) Row {
	phase := e.options.Phases[index]
	start, end := bounds[index], bounds[index+1]
	intervals, _ := e.meter.collected()
	sum := workload.Summarize(intervals, phase.Name)
	row := Row{
		Phase: phase.Name, PhaseIndex: index, Load: phase.Load, Span: end.at - start.at,
		Offered: sum.OfferedRate, Achieved: sum.AchievedRate,
		Requests: sum.Completed, Excluded: sum.Excluded,
	}
	if sum.Latency.Count() > 0 {
		row.P50, row.P90, row.P99 = clientQuantile(sum.Latency, 0.5), clientQuantile(sum.Latency, objectiveQuantile), clientQuantile(sum.Latency, 0.99)
	}
	if sum.RawLatency.Count() > 0 {
		row.RawP50, row.RawP90, row.RawP99 = clientQuantile(sum.RawLatency, 0.5), clientQuantile(sum.RawLatency, objectiveQuantile), clientQuantile(sum.RawLatency, 0.99)
	}
	// A clock that went back is not known, rather than negative: a thread
	// that ended took its time with it.
	spent := func(before, after time.Duration) *time.Duration {
		d := after - before
		if d < 0 {
			return nil
		}
		return &d
	}
	row.ServerCPU = spent(start.cpus.server, end.cpus.server)
	row.NAPICPU = spent(start.cpus.napi, end.cpus.napi)
	row.TunerCPU = spent(start.cpus.tuner, end.cpus.tuner)
	if row.ServerCPU != nil && row.NAPICPU != nil && row.Requests > 0 {
		perRequest := float64(*row.ServerCPU+*row.NAPICPU) / float64(row.Requests)
		row.CPUPerRequest = &perRequest
	}
	if all := end.cpus.all - start.cpus.all; row.ServerCPU != nil && row.NAPICPU != nil && row.Span > 0 && all >= 0 {
		// The whole is counted in ticks and its parts are not.
		share := max(float64(all-*row.ServerCPU-*row.NAPICPU)/float64(row.Span), 0)
		row.OtherCPU = &share
	}
	o.into(&row, start.at, end.at)
	return row
}

func clientQuantile(l *workload.Latency, q float64) *time.Duration {
	d := l.Quantile(q)
	return &d
}

// windows returns the timeline of a turn.
func (e *experiment) windows(round int, c Contender, bounds []boundary, o *observation) []Window {
	intervals, costs := e.meter.collected()
	began := bounds[0].at
	var out []Window
	for i, in := range intervals {
		index := -1
		for j, p := range e.options.Phases {
			if p.Name == in.Phase {
				index = j
			}
		}
		span := in.End - in.Start
		// The stub that the end of a phase leaves is too short to be a point.
		if index < 0 || span < e.options.Window/2 {
			continue
		}
		w := Window{
			Round: round, Contender: c.Name, Phase: in.Phase, PhaseIndex: index,
			At: in.End - began, Span: span, Achieved: float64(in.Completed) / span.Seconds(),
		}
		if in.Latency.Count() > 0 {
			w.P50, w.P90 = clientQuantile(in.Latency, 0.5), clientQuantile(in.Latency, objectiveQuantile)
		}
		w.CPUPerRequest = costPerRequest(costs[i], in.Completed)
		if s, ok := o.settingsAt(in.End); ok {
			w.Flush, w.Defer = &s.GROFlushTimeout, &s.DeferHardIRQs
		}
		out = append(out, w)
	}
	return out
}

func costPerRequest(cost *time.Duration, requests uint64) *float64 {
	if cost == nil || requests == 0 {
		return nil
	}
	v := float64(*cost) / float64(requests)
	return &v
}

// show rewrites the live line with one of the client's intervals.
func (e *experiment) show(round int, c Contender, in workload.ClientInterval, cost *time.Duration, o *observation) {
	if in.Phase == idle {
		return
	}
	var p50, p90 *time.Duration
	if in.Latency.Count() > 0 {
		p50, p90 = clientQuantile(in.Latency, 0.5), clientQuantile(in.Latency, objectiveQuantile)
	}
	setting := "no sample yet"
	if s, ok := o.settings(); ok {
		setting = word(s)
	}
	e.progress.now("round %d/%d  %-12s %-10s %s  %s  %s", round, e.options.Rounds, c.Name, in.Phase,
		line(p50, p90, costPerRequest(cost, in.Completed)), setting, remaining(e.left()))
}

// word names settings for a person.
func word(s model.Settings) string {
	if s.Mode() == model.ModeInterrupts {
		return "plain interrupts"
	}
	out := fmt.Sprintf("flush %v", s.GROFlushTimeout)
	if s.IRQSuspendTimeout != 0 {
		out += fmt.Sprintf(" suspend %v", s.IRQSuspendTimeout)
	}
	return out
}

// finished writes the line of a phase that is complete; an index below 0 is
// none.
func (e *experiment) finished(round int, c Contender, index int, bounds []boundary, o *observation) {
	if index < 0 {
		return
	}
	row := e.row(index, bounds, o)
	setting := "no sample"
	if row.MeanFlush != nil {
		setting = fmt.Sprintf("flush %s on average, %d up %d down", microseconds(*row.MeanFlush), row.Raised, row.Lowered)
	}
	e.progress.done("round %d/%d  %-12s %-10s %s  %s", round, e.options.Rounds, c.Name, row.Phase, line(row.P50, row.P90, row.CPUPerRequest), setting)
}
