package tuner

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestTailIsThatOfStudentsT(t *testing.T) {
	// From tables of the one-sided quantiles.
	for _, tc := range []struct{ freedom, at, want float64 }{
		{1, 6.314, 0.05}, {4, 2.776, 0.025}, {10, 2.764, 0.01}, {13, 3.852, 0.001},
	} {
		l := lower{difference: -tc.at, scale: 1, squares: tc.freedom, freedom: tc.freedom}
		if got := l.tail(); math.Abs(got-tc.want) > 0.001*tc.want+1e-5 {
			t.Errorf("with %v degrees of freedom %v has the tail %v, want %v", tc.freedom, -tc.at, got, tc.want)
		}
	}
}

// The two-sided ratio has the mean 1 without a difference, whatever the noise,
// since nothing is assumed of it here.
func TestLogRatioIsOfMeanOneWithoutADifference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, noise := range []float64{0.01, 0.1, 3} {
		const runs, n = 200_000, 4
		var sum float64
		for range runs {
			var means, squares [2]float64
			for side := range means {
				var x [n]float64
				for i := range x {
					x[i] = noise * random.NormFloat64()
					means[side] += x[i] / n
				}
				for i := range x {
					squares[side] += (x[i] - means[side]) * (x[i] - means[side])
				}
			}
			l := lower{difference: means[1] - means[0], scale: 2. / n, squares: squares[0] + squares[1], freedom: 2*n - 2, effect: 2}
			sum += math.Exp(l.logRatio() - math.Ln2)
		}
		if mean := sum / runs; math.Abs(mean-1) > 0.03 {
			t.Errorf("noise %v: the mean of the ratio is %.3f, want 1", noise, mean)
		}
	}
}
