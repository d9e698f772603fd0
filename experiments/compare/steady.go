package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"autotune/model"
	"autotune/model/sim"
)

// steadyLoads are the loads of the table of steady states, in requests per
// second of the whole host; [Plan.LoadScale] multiplies them. Delays bend near
// the capacity of the published machine, so loads are closer there.
func steadyLoads() []float64 {
	return []float64{
		20e3, 50e3, 100e3, 200e3, 300e3, 400e3, 500e3, 600e3, 700e3, 800e3,
		850e3, 900e3, 950e3, 1000e3, 1050e3, 1100e3, 1200e3,
	}
}

const (
	// steadySpan is the simulated time of a cell, where that makes
	// steadyLeast to steadyMost windows.
	steadySpan               = 3 * time.Second
	steadyLeast, steadyMost  = 6, 24
	steadyWarmup             = 500 * time.Millisecond
	maxViolating             = 0.01
	minAchieved              = 0.97
	steadyVersion            = 1
	leastDeviation           = 0.005
	saturatedPenaltyQuantile = 1e9
)

// steadyCell is one setting at one load, in steady state.
type steadyCell struct {
	// Quantile and Deviation are mean and standard deviation, over windows, of
	// the SLO quantile of the delay, in nanoseconds.
	Quantile  float64 `json:"quantile_ns"`
	Deviation float64 `json:"quantile_deviation_ns"`
	// Cycles are per request.
	Cycles float64 `json:"cycles_per_request"`
	// Short is the share of windows in which less than 97% of the offered
	// requests were served.
	Short float64 `json:"short_windows_share"`
}

// violating returns the predicted share of violating windows.
func (c steadyCell) violating(slo time.Duration) float64 {
	sd := max(c.Deviation, leastDeviation*c.Quantile, 1)
	late := distuv.Normal{Mu: c.Quantile, Sigma: sd}.Survival(float64(slo))
	return min(1, max(late, c.Short))
}

// steady is the table of steady states: what each setting of the grid does at
// each load. References choose by it.
type steady struct {
	// Key identifies everything that the cells depend on.
	Key      string           `json:"key"`
	Settings []model.Settings `json:"settings"`
	Loads    []float64        `json:"loads_per_s"`
	// Cells is indexed by setting, then by load.
	Cells [][]*steadyCell `json:"cells"`
}

// steadyKey is what the table of steady states depends on.
func (p *prepared) steadyKey() string {
	return digest([]any{
		steadyVersion, p.referenceBuild, p.preset, p.Regime, p.Latency, p.Queues, p.Quantile, p.Interval, p.LoadScale, p.MaxFlush,
	})
}

// loadSteady returns the table at the loads that the plan's scenarios offer,
// from what file keeps of it and else by simulation, and keeps it there. An
// empty file keeps nothing; what a file has of another plan is dropped.
func (p *prepared) loadSteady(ctx context.Context, file string, jobs int, progress func(string)) (*steady, error) {
	loads, err := p.neededLoads()
	if err != nil {
		return nil, err
	}
	table := &steady{Key: p.steadyKey(), Settings: p.grid(), Loads: loads}
	table.Cells = make([][]*steadyCell, len(table.Settings))
	for i := range table.Cells {
		table.Cells[i] = make([]*steadyCell, len(loads))
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the table of steady states: %w", err)
		}
		table.take(text)
	}
	missing, err := p.simulateSteady(ctx, table, jobs, progress)
	if err != nil || file == "" || !missing {
		return table, err
	}
	text, err := json.Marshal(table)
	if err != nil {
		return nil, fmt.Errorf("encode the table of steady states: %w", err)
	}
	if err := writeFile(file, append(text, '\n')); err != nil {
		return nil, fmt.Errorf("keep the table of steady states: %w", err)
	}
	return table, nil
}

// take takes over what the text of an earlier table has. It can be anything:
// what is not understood is simulated again.
func (s *steady) take(text []byte) {
	var old steady
	if err := json.Unmarshal(text, &old); err != nil || old.Key != s.Key || !slices.Equal(old.Settings, s.Settings) || len(old.Cells) != len(s.Settings) {
		return
	}
	for i, row := range old.Cells {
		if len(row) != len(old.Loads) {
			return
		}
		for j, load := range old.Loads {
			if k, found := slices.BinarySearch(s.Loads, load); found {
				s.Cells[i][k] = row[j]
			}
		}
	}
}

// neededLoads returns the loads of the table that enclose what the scenarios
// offer with any seed.
func (p *prepared) neededLoads() ([]float64, error) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range p.scenarios {
		for n := range p.Seeds {
			s, windows, err := p.scenario(i, p.FirstSeed+uint64(n))
			if err != nil {
				return nil, err
			}
			for _, load := range offered(s.Load, p.Queues, windows, p.Interval) {
				low, high = min(low, load), max(high, load)
			}
		}
	}
	all := p.tableLoads(low, high)
	from, found := slices.BinarySearch(all, low)
	if !found {
		from = max(0, from-1)
	}
	to, _ := slices.BinarySearch(all, high)
	return all[min(from, len(all)-1):min(to+1, len(all))], nil
}

const (
	// recordedStep is the ratio of one load of the table to the next where
	// loads are recorded, and nothing is known of the machine's capacity.
	recordedStep = 1.15
	// recordedRange is the ratio of the highest load to the lowest that is
	// told apart: what is set below that matters little to the whole.
	recordedRange = 64
)

// tableLoads returns the loads that the table may have, ascending, in requests
// per second of the simulated queues. Those for recorded loads are powers of one
// number, so that tables of several comparisons have them in common.
func (p *prepared) tableLoads(low, high float64) []float64 {
	var all []float64
	if len(p.Traces) == 0 {
		share := float64(p.Queues) / float64(p.full)
		for _, l := range steadyLoads() {
			all = append(all, l*p.LoadScale*share)
		}
		return all
	}
	index := func(load float64) float64 { return math.Log(max(load, 1)) / math.Log(recordedStep) }
	low = max(low, high/recordedRange)
	for k := math.Floor(index(low)); k <= math.Ceil(index(high)); k++ {
		all = append(all, math.Round(math.Pow(recordedStep, k)*10)/10)
	}
	return all
}

// writeFile writes a file as a whole, so that another process (a shard that
// shares it) sees all of it or none.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// simulateSteady fills the cells that are missing, and reports whether any was.
func (p *prepared) simulateSteady(ctx context.Context, s *steady, jobs int, progress func(string)) (bool, error) {
	type place struct{ setting, load int }
	var missing []place
	// The long cells first, so that no core waits for another at the end.
	for j := len(s.Loads) - 1; j >= 0; j-- {
		for i := range s.Settings {
			if s.Cells[i][j] == nil {
				missing = append(missing, place{i, j})
			}
		}
	}
	if len(missing) == 0 {
		return false, nil
	}
	return true, parallel(ctx, len(missing), jobs, func(n int) error {
		at := missing[n]
		c, err := p.steadyCell(ctx, s.Settings[at.setting], s.Loads[at.load])
		s.Cells[at.setting][at.load] = &c
		return err
	}, func(done int) { progress(fmt.Sprintf("steady states: %d of %d", done, len(missing))) })
}

func (p *prepared) steadyCell(ctx context.Context, setting model.Settings, load float64) (steadyCell, error) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v at %v", setting, load)
	windows := min(steadyMost, max(steadyLeast, int(steadySpan/p.Interval)))
	s, err := sim.New(p.options(p.host(setting), sim.Constant(load), h.Sum64(), steadyWarmup))
	if err != nil {
		return steadyCell{}, err
	}
	var quantiles []float64
	var total truth
	short := 0
	for range windows {
		if _, err := s.Next(ctx); err != nil {
			return steadyCell{}, err
		}
		now := p.truth(s)
		if now.short() {
			short++
		}
		if now.delay.Count() > 0 {
			quantiles = append(quantiles, float64(now.delay.Quantile(p.Quantile)))
		}
		total.served += now.served
		total.cycles += now.cycles
	}
	c := steadyCell{Short: float64(short) / float64(windows)}
	if total.served > 0 {
		c.Cycles = total.cycles / float64(total.served)
	}
	if len(quantiles) < 2 {
		c.Quantile = saturatedPenaltyQuantile
		return c, nil
	}
	c.Quantile, c.Deviation = stat.MeanStdDev(quantiles, nil)
	return c, nil
}

// options are those of every simulation of the plan.
func (p *prepared) options(start sim.Case, load sim.Load, seed uint64, warmup time.Duration) sim.Options {
	o := sim.Options{
		Preset: p.preset, Case: start, Load: load, Seed: seed, Window: p.Interval, Warmup: warmup, Workers: 1,
		Selected: p.Regime == RegimeSteer, SampleEvery: uint32(p.Plant.SampleEvery), Noise: p.Plant.Noise,
	}
	if p.Latency == LatencyClient {
		o.Latency = sim.LatencyClient
	}
	return o
}

// at interpolates a setting's cells linearly between loads. Beyond the table
// its ends hold.
func (s *steady) at(setting int, load float64) steadyCell {
	cells := s.Cells[setting]
	j, found := slices.BinarySearch(s.Loads, load)
	switch {
	case found:
		return *cells[j]
	case j == 0:
		return *cells[0]
	case j == len(s.Loads):
		return *cells[j-1]
	}
	a, b := cells[j-1], cells[j]
	t := (load - s.Loads[j-1]) / (s.Loads[j] - s.Loads[j-1])
	mix := func(x, y float64) float64 { return x + t*(y-x) }
	return steadyCell{
		Quantile: mix(a.Quantile, b.Quantile), Deviation: mix(a.Deviation, b.Deviation),
		Cycles: mix(a.Cycles, b.Cycles), Short: mix(a.Short, b.Short),
	}
}

// choose returns the cheapest setting with at most 1% violating windows in
// steady state at each of the loads, or, where there is none, the one that
// violates the least. Among equals the first is taken.
func (s *steady) choose(slo time.Duration, loads ...float64) model.Settings {
	best, bestCost := -1, math.Inf(1)
	least, leastViolating, leastQuantile := 0, math.Inf(1), math.Inf(1)
	for i := range s.Settings {
		cost, violating, worst := 0.0, 0.0, 0.0
		for _, load := range loads {
			c := s.at(i, load)
			cost += c.Cycles
			violating = max(violating, c.violating(slo))
			worst = max(worst, c.Quantile)
		}
		if violating <= maxViolating && cost < bestCost {
			best, bestCost = i, cost
		}
		// Where every window violates, the lower delay is the lesser harm.
		if violating < leastViolating || violating == leastViolating && worst < leastQuantile {
			least, leastViolating, leastQuantile = i, violating, worst
		}
	}
	if best < 0 {
		return s.Settings[least]
	}
	return s.Settings[best]
}
