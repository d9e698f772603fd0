package stats

import (
	"math"
	"slices"
)

// Median returns the median, the mean of the two in the middle of an even
// number, and NaN of none. The values keep their order.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
