package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"autotune/model/bayes"
)

// greyboxPriors are the distributions of the two models' coefficients before
// anything was observed.
type greyboxPriors struct {
	cost, delay *bayes.Prior
}

// The generic prior is the physics alone: polls that batch cost less, timers
// that fire without packets cost more, delay grows by somewhat less than the
// flush timeout. The scales are as good as unknown.
var (
	genericCostMean      = [costLen]float64{8.5, 0, 0, 0.9, 0.3, -0.25, -1, 1.5, 0.6, 0, 0, 1.5, 0}
	genericCostDeviation = [costLen]float64{1.5, 0.15, 0.7, 0.5, 0.2, 0.15, 0.7, 0.5, 0.25, 0.3, 0.7, 0.7, 0.08}

	genericDelayMean      = [delayLen]float64{60, 0, 85, 4, 25, 8, 0, 80, 8, 45, 8, 100, 10, 8}
	genericDelayDeviation = [delayLen]float64{60, 15, 20, 4, 20, 8, 15, 20, 6, 30, 8, 120, 15, 8}
)

// genericPrior is the name of the prior that knows no machine.
const genericPrior = "generic"

// greyboxRow is a published measurement: eight queues at so many requests per
// second in total.
type greyboxRow struct {
	mode     greyboxMode
	requests float64
	flush    time.Duration
	// p99 is the client's, in microseconds; busy the CPU's share in percent
	// and cycles per request.
	p99, busy, cycles float64
}

// greyboxPreset is a machine that was measured.
type greyboxPreset struct {
	name   string
	queues float64
	clock  float64 // GHz
	rows   []greyboxRow
}

// greyboxPresets are the machines whose name can be given for a prior. The rows
// of epyc7662-cx5 are those of testdata/irqsuspend_v6_calibration.csv below
// saturation.
func greyboxPresets() []greyboxPreset {
	const us = time.Microsecond
	return []greyboxPreset{{
		name: "epyc7662-cx5", queues: 8, clock: 3.3,
		rows: []greyboxRow{
			{interrupting, 200e3, 0, 415, 26, 13040},
			{deferring, 200e3, 10 * us, 142, 28, 19033},
			{deferring, 200e3, 20 * us, 153, 26, 15737},
			{deferring, 200e3, 50 * us, 181, 23, 12113},
			{deferring, 200e3, 200 * us, 304, 18, 8449},
			{suspending, 200e3, 10 * us, 141, 32, 19432},
			{suspending, 200e3, 20 * us, 151, 30, 16356},
			{suspending, 200e3, 50 * us, 176, 26, 13245},
			{suspending, 200e3, 200 * us, 302, 20, 9508},
			{interrupting, 600e3, 0, 576, 61, 9276},
			{deferring, 600e3, 10 * us, 204, 76, 12048},
			{deferring, 600e3, 20 * us, 199, 66, 10572},
			{deferring, 600e3, 50 * us, 217, 55, 8584},
			{deferring, 600e3, 200 * us, 355, 45, 6874},
			{suspending, 600e3, 10 * us, 194, 70, 10991},
			{suspending, 600e3, 20 * us, 194, 65, 10108},
			{suspending, 600e3, 50 * us, 203, 57, 8747},
			{suspending, 600e3, 200 * us, 344, 48, 7221},
		},
	}}
}

// modesCorrelate is the correlation of what suspension and deferral do at the
// same flush timeout: the timer and the batches that it makes are the same, and
// in the published rows the two cost the same to within 10%.
const modesCorrelate = 0.8

// modePairs returns the coefficients of suspension and deferral that belong
// together, given the first of each.
func modePairs(suspension, deferral int) (pairs [][2]int) {
	for i := range deferral - suspension {
		pairs = append(pairs, [2]int{suspension + i, deferral + i})
	}
	return pairs
}

const (
	// packetsPerRequest of the published runs: the request, and the
	// acknowledgement of its response.
	packetsPerRequest = 2
	// presetWeight is what a published row counts for, beside an observation.
	presetWeight = 0.25
	// presetCostError and presetDelayError are the relative errors of the laws
	// over the range of loads and timeouts of a preset.
	presetCostError  = 0.05
	presetDelayError = 0.04
	// presetScale and presetDelay are by how much another host's scale of the
	// logarithm of costs and of delays in microseconds differs from a
	// preset's: what was measured elsewhere says how things change, and little
	// about where they start.
	presetScale = 0.4
	presetDelay = 30
)

// newGreyboxPriors returns the priors of a name: generic, or a preset's.
func newGreyboxPriors(name string) (greyboxPriors, error) {
	cost, err := bayes.NewPrior(genericCostMean[:], genericCostDeviation[:])
	if err != nil {
		return greyboxPriors{}, fmt.Errorf("generic prior of cost: %w", err)
	}
	delay, err := bayes.NewPrior(genericDelayMean[:], genericDelayDeviation[:])
	if err != nil {
		return greyboxPriors{}, fmt.Errorf("generic prior of delay: %w", err)
	}
	if cost, err = cost.Correlated(modesCorrelate, modePairs(costSuspending, costDeferring)...); err != nil {
		return greyboxPriors{}, fmt.Errorf("generic prior of cost: %w", err)
	}
	if delay, err = delay.Correlated(modesCorrelate, modePairs(delaySuspending, delayDeferring)...); err != nil {
		return greyboxPriors{}, fmt.Errorf("generic prior of delay: %w", err)
	}
	p := greyboxPriors{cost, delay}
	if name == genericPrior {
		return p, nil
	}
	presets := greyboxPresets()
	i := slices.IndexFunc(presets, func(p greyboxPreset) bool { return p.name == name })
	if i < 0 {
		known := []string{genericPrior}
		for _, p := range presets {
			known = append(known, p.name)
		}
		return greyboxPriors{}, fmt.Errorf("unknown prior %q; possible are %s", name, strings.Join(known, ", "))
	}
	return p.measured(presets[i])
}

func (p greyboxPriors) measured(preset greyboxPreset) (greyboxPriors, error) {
	costs, delays := bayes.NewEvidence(costLen), bayes.NewEvidence(delayLen)
	for _, row := range preset.rows {
		packets := row.requests * packetsPerRequest / preset.queues
		x := costRow(row.mode, row.flush, packets)
		costs.Add(&x, math.Log(row.cycles/preset.clock/packetsPerRequest), presetCostError*presetCostError)
		x = delayRow(row.mode, row.flush, packets, row.busy/100)
		noise := presetDelayError * row.p99
		delays.Add(&x, row.p99, noise*noise)
	}
	return p.updated(costs, delays, presetWeight, map[int]float64{costScale: presetScale}, map[int]float64{delayScale: presetDelay})
}

// updated returns the priors with evidence, and then widened in some
// coefficients.
func (p greyboxPriors) updated(costs, delays *bayes.Evidence, weight float64, widerCost, widerDelay map[int]float64) (greyboxPriors, error) {
	one := func(prior *bayes.Prior, e *bayes.Evidence, wider map[int]float64) (*bayes.Prior, error) {
		out, err := prior.Updated(e, weight)
		if err != nil {
			return nil, err
		}
		deviation := make([]float64, prior.Len())
		for i, d := range wider {
			deviation[i] = d
		}
		return out.Widened(deviation)
	}
	cost, err := one(p.cost, costs, widerCost)
	if err != nil {
		return p, fmt.Errorf("prior of cost: %w", err)
	}
	delay, err := one(p.delay, delays, widerDelay)
	if err != nil {
		return p, fmt.Errorf("prior of delay: %w", err)
	}
	return greyboxPriors{cost, delay}, nil
}
