package gp

import "math"

// Matern52 is the Matern kernel with smoothness 5/2 and a length scale for each
// dimension (Rasmussen and Williams, Gaussian Processes for Machine Learning,
// 2006, equation 4.17).
type Matern52 struct {
	// Variance is that of the function, before anything is known.
	Variance float64
	// Lengths are the distances over which the function changes, by dimension.
	Lengths []float64
}

// Cov returns the covariance of the function's values at x and y, which have as
// many dimensions as there are lengths.
func (k Matern52) Cov(x, y []float64) float64 {
	sum := 0.0
	for i, l := range k.Lengths {
		d := (x[i] - y[i]) / l
		sum += d * d
	}
	r := math.Sqrt(5 * sum)
	return k.Variance * (1 + r + r*r/3) * math.Exp(-r)
}
