package gp

import "math"

// Kernel is what is assumed of how a function changes.
type Kernel interface {
	// Correlation returns that of the function's values at x and y; at the same
	// place it is 1.
	Correlation(x, y []float64) float64
}

// Matern52 is the Matern kernel with smoothness 5/2 and a length scale for each
// dimension (Rasmussen and Williams, Gaussian Processes for Machine Learning,
// 2006, equation 4.17): the distances over which the function changes.
type Matern52 []float64

// Correlation implements [Kernel]. The places have as many dimensions as the
// kernel.
func (k Matern52) Correlation(x, y []float64) float64 {
	sum := 0.0
	for i, l := range k {
		d := (x[i] - y[i]) / l
		sum += d * d
	}
	r := math.Sqrt(5 * sum)
	return (1 + r + r*r/3) * math.Exp(-r)
}
