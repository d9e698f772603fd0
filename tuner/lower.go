package tuner

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// lowerPrior is the number of windows that the assumed noise counts for, beside
// the noise measured. Few: where the noise is larger than assumed, too many
// would keep what only looks cheaper.
const lowerPrior = 1

// lower is the test whether a difference of two means is below zero. The noise
// is not known but estimated, so that both of its parts are of Student's t.
type lower struct {
	// difference of the means, of which the variance is scale times that of a
	// window.
	difference, scale float64
	// squares is the sum of squared differences from the means, with that many
	// degrees of freedom.
	squares, freedom float64
	// effect is the variance of the differences looked for, in units of the
	// variance of a window.
	effect float64
}

// proven reports whether the difference is below zero. The probability is that
// of being wrong about a direction. Half of it is spent by a test that may be
// looked at after every window, for the setting after so many steps a part of
// 1/((steps+1)(steps+2)), which add up to one. The other half is for one look,
// at the last window of the one setting at which the direction ends.
func (l lower) proven(probability float64, steps int, last bool) bool {
	if !(l.difference < 0) || !(l.squares > 0) || !(l.freedom > 0) {
		return false
	}
	part := probability / 2 / (float64(steps+1) * float64(steps+2))
	return l.logRatio() >= -math.Log(part) || last && l.tail() <= probability/2
}

// logRatio is the logarithm of the mixture likelihood ratio of a difference
// below zero to none: a normal mixture of differences in units of the noise,
// with the noise integrated out, which makes it a martingale whatever the noise
// is. The half of it below zero is all but all of it where it is large.
func (l lower) logRatio() float64 {
	square := l.difference * l.difference / l.squares
	wide := l.scale + l.effect
	return math.Ln2 + 0.5*math.Log(l.scale/wide) +
		0.5*(l.freedom+1)*(math.Log1p(square/l.scale)-math.Log1p(square/wide))
}

// tail is the probability of such a difference or a lower one when there is
// none: that of Student's t.
func (l lower) tail() float64 {
	square := l.difference * l.difference / (l.squares * l.scale)
	return 0.5 * mathext.RegIncBeta(l.freedom/2, 0.5, 1/(1+square))
}
