package report

import (
	"math"
	"strconv"
	"strings"
)

// NiceMax returns the least of 1, 1.5, 2, 3, 4, 5, 6, 8 or 10 times a power of
// ten that is v or more: a readable end of an axis. It returns 1 where v is
// not positive.
func NiceMax(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if step*power >= v*(1-1e-9) {
			return step * power
		}
	}
	return 10 * power
}

// ticks returns the values to mark between 0 and the end of an axis that
// [NiceMax] made: halves, or thirds where those are rounder.
func ticks(end float64) []float64 {
	if end <= 0 {
		return []float64{0}
	}
	lead := end / math.Pow(10, math.Floor(math.Log10(end)*(1+1e-12)))
	parts := 2.0
	if r := math.Round(lead*10) / 10; r == 3 || r == 6 || r == 1.5 {
		parts = 3
	}
	out := make([]float64, 0, int(parts)+1)
	for i := 0.0; i <= parts; i++ {
		out = append(out, end*i/parts)
	}
	return out
}

// Number writes v with at most three significant decimals and thousands in
// groups.
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	decimals := 0
	switch a := math.Abs(v); {
	case a == 0 || a >= 100:
	case a >= 10:
		decimals = 1
	default:
		decimals = 2
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, fraction, found := strings.Cut(s, ".")
	if found {
		fraction = strings.TrimRight(fraction, "0")
	}
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}
