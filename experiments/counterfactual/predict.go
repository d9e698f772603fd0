package counterfactual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
	"autotune/tuner"
)

// PredictOptions says what to predict.
type PredictOptions struct {
	// Hosts are the simulated hosts, one run on each. They have the shape of
	// [Recording.Host].
	Hosts []Candidate
	// Policy is the spec of the policy that tunes; empty repeats the recorded
	// settings, window by window.
	Policy string
	// Original is what queues are set to before the policy decides.
	Original  func(model.Queue) model.Settings
	Objective model.Objective
	Bounds    model.Bounds
	// Prefer has the application prefer busy polling by itself, with a budget
	// of 64, where the recorded one did not.
	Prefer bool
	// Blocks are the stretches of the recording to predict, as [from, to)
	// windows; nil is all of it.
	Blocks [][2]int
	Seed   uint64
	// Workers is the number of goroutines; zero is one per usable CPU.
	Workers int
	// Progress, when not nil, is told how many runs are done. It is called
	// from one goroutine at a time.
	Progress func(done, all int)
}

// Predict runs the policy, through the same loop as live, on each host under
// the recorded arrivals, and returns the outcomes in the order of the hosts.
func Predict(ctx context.Context, r *Recording, o PredictOptions) ([]Outcome, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Bounds == (model.Bounds{}) {
		o.Bounds = model.DefaultBounds()
	}
	if o.Blocks == nil {
		o.Blocks = [][2]int{{0, len(r.windows)}}
	}
	out := make([]Outcome, len(o.Hosts))
	errs := make([]error, len(o.Hosts))
	var wait sync.WaitGroup
	var mu sync.Mutex
	done := 0
	free := make(chan struct{}, o.Workers)
	for i, host := range o.Hosts {
		wait.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if ctx.Err() != nil {
				errs[i] = ctx.Err()
				return
			}
			out[i], errs[i] = r.predict(ctx, o, host)
			mu.Lock()
			defer mu.Unlock()
			done++
			if o.Progress != nil {
				o.Progress(done, len(o.Hosts))
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("predict: %w", err)
	}
	return out, nil
}

func (r *Recording) predict(ctx context.Context, o PredictOptions, host Candidate) (Outcome, error) {
	host.Preset = r.Host(host.Preset, len(r.Queues))
	total := newTally(o.Objective)
	var decide model.Policy
	memory := tuner.NewMemory()
	if o.Policy != "" {
		var err error
		if decide, err = policy.Parse(o.Policy); err != nil {
			return Outcome{}, err
		}
	}
	for n, block := range o.Blocks {
		if err := r.block(ctx, o, host, block, uint64(n), decide, memory, total); err != nil {
			return Outcome{}, err
		}
	}
	return total.outcome(), nil
}

// block simulates windows [from, to) of the recording. What the policy learned
// is kept from block to block, and so are the settings.
func (r *Recording) block(ctx context.Context, o PredictOptions, host Candidate, block [2]int, n uint64, decide model.Policy, memory *tuner.Memory, total *tally) error {
	from, to := block[0], block[1]
	wait, _ := r.Wait()
	if o.Prefer && !wait.Prefer {
		wait.Prefer, wait.Budget = true, 64
	}
	original := model.Settings{}
	if o.Original != nil && len(r.Queues) > 0 {
		original = o.Original(r.Queues[0])
	}
	plant, err := sim.New(sim.Options{
		Preset: host.Preset, Case: sim.Case{NAPI: original, Wait: wait}, Load: r.load(from, to, host.Bursts),
		Seed: o.Seed + n, Window: r.Each(), Duration: time.Duration(to-from) * r.Each(), Workers: 1,
	})
	if err != nil {
		return err
	}
	if o.Original != nil {
		config := model.Config{}
		for i, q := range r.Queues {
			config[sim.SimulatedQueue(i)] = o.Original(q)
		}
		if _, err := plant.Apply(ctx, config); err != nil {
			return err
		}
	}
	source := &metered{source: plant, total: total}
	if decide == nil {
		return r.repeat(ctx, plant, source, from, to)
	}
	actuator := &counted{actuator: plant, total: total}
	loop, err := tuner.New(tuner.Options{
		Source: source, Actuator: actuator, Policy: decide, Memory: memory,
		Objective: o.Objective, Bounds: o.Bounds,
	})
	if err != nil {
		return err
	}
	return loop.Run(ctx)
}

// repeat sets each window to what it was recorded under.
func (r *Recording) repeat(ctx context.Context, plant *sim.Simulator, source *metered, from, to int) error {
	for i := from; i < to; i++ {
		config := model.Config{}
		for queue := range r.tracks {
			config[sim.SimulatedQueue(queue)] = r.tracks[queue].active.at(i)
		}
		if _, err := plant.Apply(ctx, config); err != nil {
			return err
		}
		if _, err := source.Next(ctx); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return nil
}

// metered adds up the samples of a simulated host.
type metered struct {
	source *sim.Simulator
	total  *tally
}

// Next implements [tuner.Source].
func (m *metered) Next(ctx context.Context) (model.Sample, error) {
	s, err := m.source.Next(ctx)
	if err != nil {
		return s, err
	}
	var delay model.Histogram
	requests := 0.0
	for i := range s.Queues {
		if d := s.Queues[i].Delay; d != nil {
			delay.Merge(d)
			requests += float64(d.Count())
		}
	}
	var cost time.Duration
	for _, c := range model.Costs(&s) {
		cost += c
	}
	m.total.add(&delay, requests, cost, true, s.Span)
	for i := range s.CPUs {
		m.total.outcomeOf.Utilisation = max(m.total.outcomeOf.Utilisation, float64(s.CPUs[i].Busy)/float64(s.Span))
	}
	return s, nil
}

// counted counts the settings that are written.
type counted struct {
	actuator *sim.Simulator
	total    *tally
}

// Apply implements [tuner.Actuator].
func (c *counted) Apply(ctx context.Context, config model.Config) (model.Config, error) {
	c.total.outcomeOf.Moves += float64(len(config))
	return c.actuator.Apply(ctx, config)
}

// Blocks spreads about budget windows over a recording of n, in stretches of
// equal length that a policy has time to act in; all of it where that is no
// more.
func Blocks(n, budget, length int) [][2]int {
	if budget <= 0 || n <= budget {
		return [][2]int{{0, n}}
	}
	count := max(1, budget/length)
	length = min(length, n)
	out := make([][2]int, 0, count)
	for i := range count {
		from := 0
		if count > 1 {
			from = i * (n - length) / (count - 1)
		}
		out = append(out, [2]int{from, from + length})
	}
	return out
}
