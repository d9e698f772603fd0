package sim

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// TableOptions says which cells to simulate.
type TableOptions struct {
	// Preset is the machine; nil is the shipped epyc7662-cx5.
	Preset *Preset
	// Cases are names of cases; nil is all twelve.
	Cases []string
	// Loads are as [ParseLoad] reads them; nil is 200K to 1000K in steps of
	// 200K, and MAX.
	Loads []string
	// Runs is how often each cell is run, from different random numbers; zero
	// is 1.
	Runs int
	Seed uint64
	// Span is the measured time of a run, zero is 1 s; Warmup comes before it,
	// zero is 200 ms.
	Span, Warmup time.Duration
	// Workers is the number of goroutines; zero is one per usable CPU.
	Workers int
	// Progress, when not nil, is told how many of all runs are done.
	Progress func(done, all int)
}

// Row is one cell of a simulated table with all of its runs.
type Row struct {
	// Cell has the medians over the runs, as the published table does.
	Cell
	Runs []Result
}

// Saturated reports whether a run's cores had hardly a moment to spare:
// utilisation above 0.9, beyond which the model must not be used to rank
// settings without saying so. Where applications busy poll, utilisation says
// nothing while most polls are empty.
func (r *Row) Saturated() bool {
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Utilisation > 0.9 && (run.BusyPolls == 0 || run.EmptyShare < 0.5) {
			return true
		}
	}
	return false
}

// DefaultLoads are the loads of the published runs.
func DefaultLoads() []string { return []string{"200K", "400K", "600K", "800K", "1000K", "MAX"} }

// Table simulates every case at every load. Runs are independent and their
// random numbers follow from the seed, the cell and the run alone, so that the
// result does not depend on the number of workers.
func Table(ctx context.Context, o TableOptions) ([]Row, error) {
	if o.Preset == nil {
		p, err := LoadPreset(DefaultPreset)
		if err != nil {
			return nil, err
		}
		o.Preset = p
	}
	if o.Cases == nil {
		for _, c := range Cases() {
			o.Cases = append(o.Cases, c.Name)
		}
	}
	if o.Loads == nil {
		o.Loads = DefaultLoads()
	}
	o.Runs = max(o.Runs, 1)
	if o.Span == 0 {
		o.Span = time.Second
	}
	if o.Warmup == 0 {
		o.Warmup = 200 * time.Millisecond
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	var rows []Row
	var jobs []Options
	for _, text := range o.Loads {
		load, err := ParseLoad(text)
		if err != nil {
			return nil, err
		}
		for _, name := range o.Cases {
			c, err := CaseByName(name)
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{Cell: Cell{Case: name, Load: text}, Runs: make([]Result, o.Runs)})
			for run := range o.Runs {
				jobs = append(jobs, Options{
					Preset: o.Preset, Case: c, Load: load, Workers: 1,
					Seed:     runSeed(o.Seed, name, text, run),
					Duration: o.Span, Warmup: o.Warmup,
				})
			}
		}
	}
	if err := runAll(ctx, jobs, o.Workers, o.Progress, func(i int, r Result) {
		rows[i/o.Runs].Runs[i%o.Runs] = r
	}); err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Cell = medianCell(rows[i].Load, rows[i].Runs)
	}
	return rows, nil
}

// runSeed names the random numbers of one run of one cell.
func runSeed(seed uint64, name, load string, run int) uint64 {
	r := newRandom(seed, uint64(run))
	for _, b := range []byte(name + "/" + load) {
		r.state = mix64(r.state ^ uint64(b))
	}
	return r.uint64()
}

// runAll runs the jobs on so many goroutines and hands over their results; put
// is called for different i from different goroutines.
func runAll(ctx context.Context, jobs []Options, workers int, progress func(done, all int), put func(i int, r Result)) error {
	var wait sync.WaitGroup
	var mutex sync.Mutex
	var failed []error
	done := 0
	next := make(chan int)
	for range min(workers, len(jobs)) {
		wait.Go(func() {
			for i := range next {
				r, err := Run(ctx, jobs[i])
				if err == nil {
					put(i, r)
				}
				mutex.Lock()
				if err != nil {
					failed = append(failed, err)
				}
				done++
				if progress != nil {
					progress(done, len(jobs))
				}
				mutex.Unlock()
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	wait.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed...)
}

func medianCell(load string, runs []Result) Cell {
	cells := make([]Cell, len(runs))
	for i := range runs {
		cells[i] = runs[i].Cell(load)
	}
	out := Cell{Case: cells[0].Case, Load: load}
	values := make([]float64, len(cells))
	for i, to := range []*float64{&out.QPS, &out.Avg, &out.P95, &out.P99, &out.CPU, &out.Cycles} {
		for j, c := range cells {
			values[j] = Columns()[i].Value(c)
		}
		*to = median(values)
	}
	return out
}

// median sorts values and returns their median; NaN where there are none.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	switch {
	case n == 0:
		return nan
	case n%2 == 1:
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}
