package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// Bootstrap says how an interval is made. The zero value is ready to use.
type Bootstrap struct {
	// Level is the share of repetitions in which the interval should cover
	// the truth, 0 < Level < 1; 0 means 0.90. Each of its two ends is wrong
	// with half the rest, so that a claim about one side ("at most 5% above")
	// has an error of 5% at the default.
	Level float64
	// Seed drives the resampling of more than [MaxExact] values; fewer are
	// enumerated and need none.
	Seed uint64
	// Resamples is the number of resamples where they are drawn; 0 means
	// 20000.
	Resamples int
}

// MaxExact is the greatest number of values for which every resample is
// enumerated (6435 distinct ones for 8 values) instead of drawn.
const MaxExact = 8

// Mean returns the arithmetic mean of the values with an expanded percentile
// bootstrap interval: the percentiles of the resampled means, taken further
// out than Level says by the factor that Student's t and the n-1 divisor call
// for. Plain percentiles of five values cover too rarely, because resampling n
// values understates the variance by (n-1)/n and has the normal's tails
// (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2014,
// arXiv:1411.5279, section 3.3).
//
// No end goes beyond the least or greatest value, so fewer than five values
// cannot give the default level: the range of n values covers their median
// with 1-2^(1-n), 93.75% for five. Callers that need the level must ask for
// five or more.
//
// Every resampled mean grows with each value, and so do its percentiles:
// raising one value never lowers either end. BCa and t intervals lack this.
func (b Bootstrap) Mean(values []float64) Interval {
	n := len(values)
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	var sum float64
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Interval{math.NaN(), math.NaN(), math.NaN()}
		}
		sum += v
	}
	estimate := sum / float64(n)
	if n == 1 {
		return Interval{estimate, math.Inf(-1), math.Inf(1)}
	}
	tail := b.tail(n)
	var means []weighted
	if n <= MaxExact {
		means = enumerate(values)
	} else {
		means = b.draw(values)
	}
	sort.Slice(means, func(i, j int) bool { return means[i].value < means[j].value })
	return Interval{
		Estimate: estimate,
		// Rounding in a resampled mean can put an end past an estimate that
		// it equals.
		Low:  min(estimate, quantile(means, tail)),
		High: max(estimate, quantile(means, 1-tail)),
	}
}

// Ratio returns the geometric mean of treated[i]/control[i] with its interval.
// The pairs must belong together (the same round): what disturbs both cancels.
// Values that are not positive give NaN.
func (b Bootstrap) Ratio(treated, control []float64) Interval {
	if len(treated) != len(control) {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	logs := make([]float64, len(treated))
	for i := range treated {
		// Not a single division first: the logarithm of a negative over a
		// negative would pass for a ratio.
		logs[i] = math.Log(treated[i]) - math.Log(control[i])
	}
	return b.Mean(logs).Map(math.Exp)
}

// tail returns the probability below the lower percentile to read for n
// values.
func (b Bootstrap) tail(n int) float64 {
	level := b.Level
	if level == 0 {
		level = 0.90
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n - 1)}.Quantile((1 - level) / 2)
	return distuv.UnitNormal.CDF(t * math.Sqrt(float64(n)/float64(n-1)))
}

// weighted is a resampled mean and its probability.
type weighted struct{ value, weight float64 }

// enumerate returns the mean of every distinct resample of the values: each
// way of choosing how often every value is taken, weighted by the multinomial
// probability of it.
func enumerate(values []float64) []weighted {
	n := len(values)
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	var means []weighted
	var walk func(index, left int, sum, weight float64)
	walk = func(index, left int, sum, weight float64) {
		if index == n-1 {
			means = append(means, weighted{(sum + float64(left)*sorted[index]) / float64(n), weight})
			return
		}
		// The weight is multiplied by C(left, times) step by step.
		choose := 1.0
		for times := 0; times <= left; times++ {
			walk(index+1, left-times, sum+float64(times)*sorted[index], weight*choose)
			choose = choose * float64(left-times) / float64(times+1)
		}
	}
	walk(0, n, 0, math.Pow(float64(n), -float64(n)))
	return means
}

func (b Bootstrap) draw(values []float64) []weighted {
	resamples := b.Resamples
	if resamples == 0 {
		resamples = 20000
	}
	random := rand.New(rand.NewPCG(b.Seed, 0x7261746e61742d62))
	means := make([]weighted, resamples)
	for i := range means {
		var sum float64
		for range values {
			sum += values[random.IntN(len(values))]
		}
		means[i] = weighted{sum / float64(len(values)), 1 / float64(resamples)}
	}
	return means
}

// quantile returns the least value with at least probability p at or below it.
func quantile(sorted []weighted, p float64) float64 {
	var below float64
	for _, w := range sorted {
		below += w.weight
		if below >= p {
			return w.value
		}
	}
	return sorted[len(sorted)-1].value
}
