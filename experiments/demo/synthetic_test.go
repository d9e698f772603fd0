package demo

import (
	"math"
	"math/rand/v2"
	"time"
)

// plant is a made-up queue in the shape of the measured one (a threaded veth
// NAPI, server and NAPI thread on one CPU): a small timer costs most under low
// load and saves most under high load.
type plant struct {
	// roundNoise is shared by all contenders of a round, phaseNoise is each
	// phase's own; both are standard deviations of the logarithm.
	roundNoise, phaseNoise float64
	// outlier is the probability that a window costs 20% more.
	outlier float64
}

// The noise of one phase's CPU time on shared virtual machines.
var (
	noisy = plant{roundNoise: 0.03, phaseNoise: 0.05, outlier: 0.03}
	usual = plant{roundNoise: 0.03, phaseNoise: 0.03, outlier: 0.03}
	quiet = plant{roundNoise: 0.03, phaseNoise: 0.02, outlier: 0.03}
)

// settings that the plant knows: the flush timeout in microseconds, 0 being
// plain interrupts.
var flushes = []int{0, 20, 50, 100, 200}

// cost is the CPU per request in microseconds and delay the p90.
func (plant) cost(load Load, flush int) float64 {
	low := map[int]float64{0: 35, 20: 105, 50: 89, 100: 66, 200: 49}
	high := map[int]float64{0: 21.5, 20: 23, 50: 20.7, 100: 17.5, 200: 14.7}
	if load == LoadLow {
		return low[flush]
	}
	return high[flush]
}

func (plant) delay(load Load, flush int) float64 {
	base := 150.0
	if load == LoadHigh {
		base = 190
	}
	return base + 0.6*float64(flush)
}

// synthetic policies choose a setting for each window.
type policy func(r *rand.Rand, load Load, window int, flush int) int

func holdStill(*rand.Rand, Load, int, int) int { return 0 }

func fixed200(*rand.Rand, Load, int, int) int { return 200 }

// anywhere changes to a random setting in every window.
func anywhere(r *rand.Rand, _ Load, _ int, _ int) int { return flushes[r.IntN(len(flushes))] }

// rarely changes to a random setting every eighth window or so.
func rarely(r *rand.Rand, _ Load, _ int, flush int) int {
	if r.IntN(8) == 0 {
		return flushes[r.IntN(len(flushes))]
	}
	return flush
}

// perPhase draws a setting when the load changes, and keeps it.
func perPhase(r *rand.Rand, load Load, window int, flush int) int {
	if window == 0 {
		return anywhere(r, load, window, flush)
	}
	return flush
}

// coin does so between the settings that are best for either load.
func coin(r *rand.Rand, _ Load, window int, flush int) int {
	if window == 0 {
		return 200 * r.IntN(2)
	}
	return flush
}

// wander takes one random step up or down in every window.
func wander(r *rand.Rand, _ Load, _ int, flush int) int {
	index := 0
	for i, f := range flushes {
		if f == flush {
			index = i
		}
	}
	return flushes[min(max(index+2*r.IntN(2)-1, 0), len(flushes)-1)]
}

// twitch sits at the base's setting but leaves it for one window in twenty: it
// changes nothing of note, while its knob moves either way.
func twitch(r *rand.Rand, _ Load, _ int, _ int) int {
	if r.IntN(20) == 0 {
		return 20
	}
	return 0
}

// switching takes the best setting one window after the load changed.
func switching(_ *rand.Rand, load Load, window int, flush int) int {
	switch {
	case window < 1:
		return flush
	case load == LoadHigh:
		return 200
	default:
		return 0
	}
}

// slowSwitching needs two windows, and so comes close to the limit under low
// load: 4% above base in the phase after the high one.
func slowSwitching(r *rand.Rand, load Load, window int, flush int) int {
	if window < 2 {
		return flush
	}
	return switching(r, load, window, flush)
}

// lateSwitching takes eight of a phase's 22 windows to come down.
func lateSwitching(r *rand.Rand, load Load, window int, flush int) int {
	if load == LoadLow && window < 8 {
		return flush
	}
	return switching(r, load, window, flush)
}

// rows runs the contender against the base for the rounds.
func (p plant) rows(seed uint64, rounds int, contender policy) []Row {
	random := rand.New(rand.NewPCG(seed, 1))
	var out []Row
	for round := 1; round <= rounds; round++ {
		drift := math.Exp(p.roundNoise * random.NormFloat64())
		turns := []struct {
			name   string
			choose policy
		}{{"base", holdStill}, {"autotune", contender}}
		random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for i, turn := range turns {
			flush := 0
			for index, phase := range DefaultPhases() {
				row := p.row(random, drift, phase, &flush, turn.choose)
				row.Round, row.Turn, row.Contender, row.PhaseIndex = round, i+1, turn.name, index
				out = append(out, row)
			}
		}
	}
	return out
}

func (p plant) row(random *rand.Rand, drift float64, phase Phase, flush *int, choose policy) Row {
	const windows = 22
	requests := phase.Rate * phase.Duration.Seconds()
	own := drift * math.Exp(p.phaseNoise*random.NormFloat64())
	ownDelay := math.Exp(p.phaseNoise * random.NormFloat64())
	row := Row{Phase: phase.Name, Load: phase.Load, Span: phase.Duration, Observed: phase.Duration}
	var cost, delay, mean float64
	for window := range windows {
		next := choose(random, phase.Load, window, *flush)
		if next > *flush {
			row.Raised++
		}
		if next < *flush {
			row.Lowered++
		}
		*flush = next
		c, d := p.cost(phase.Load, next), p.delay(phase.Load, next)
		if random.Float64() < p.outlier {
			c, d = 1.2*c, 1.2*d
		}
		cost, delay, mean = cost+c*own, delay+d*ownDelay, mean+float64(next)
	}
	us := func(v float64) *time.Duration {
		d := time.Duration(v * float64(time.Microsecond))
		return &d
	}
	perRequest := 1000 * cost / windows
	server := time.Duration(0.7 * perRequest * requests)
	napi := time.Duration(0.3 * perRequest * requests)
	tunerCPU := phase.Duration / 100
	p90 := delay / windows
	count := func(v float64) *uint64 { n := uint64(v); return &n }
	row.Offered, row.Achieved = phase.Rate, phase.Rate*0.999
	row.Requests, row.Excluded = uint64(requests), uint64(requests*0.08*drift)
	row.P50, row.P90, row.P99 = us(p90*0.62), us(p90), us(p90*(2+random.Float64()))
	row.RawP50, row.RawP90, row.RawP99 = us(p90*0.64), us(p90*1.1), us(p90*(4+8*random.Float64()))
	row.DelayP50, row.DelayP90 = us(p90*0.4), us(p90*0.8)
	row.ServerCPU, row.NAPICPU, row.TunerCPU = &server, &napi, &tunerCPU
	row.CPUPerRequest = &perRequest
	other := 0.03 * drift
	row.OtherCPU = &other
	row.SoftirqPolls = count(0)
	row.ThreadPolls = count(requests * 0.9 * own)
	row.ApplicationPolls = count(0)
	row.TimerFires = count(mean / windows * 20 * own)
	row.LostEvents = count(0)
	row.MeanFlush = us(mean / windows)
	return row
}

// slo is what the demo would have fixed on the plant: twice the base's p90
// under high load.
func (p plant) slo() time.Duration {
	return time.Duration(2 * p.delay(LoadHigh, 0) * float64(time.Microsecond))
}
