package policy

import (
	"math"

	"autotune/model"
)

const (
	// greyboxGustWindows is the number of windows over which changes of load are
	// averaged, and greyboxGustMost the logarithm of the largest that counts: one
	// jump is not what load does all the time.
	greyboxGustWindows = 25
	greyboxGustMost    = 0.4
	// greyboxGusts is how many gusts a rise exceeds that is a jump.
	greyboxGusts = 2.5
	// greyboxGustLeast is the logarithm of the least rise that is a jump.
	greyboxGustLeast = 0.18
)

// greyboxGust is by how much load changes from window to window: the mean
// square of the logarithm of the ratio.
type greyboxGust struct{ square float64 }

// observe takes a window's change, and reports whether it was a jump upwards,
// more than what load does all the time.
func (g *greyboxGust) observe(f *model.Features) (jumped bool) {
	change := math.Log1p(max(-0.95, f.RateChange))
	jumped = change > max(greyboxGustLeast, greyboxGusts*g.deviation())
	change = max(-greyboxGustMost, min(greyboxGustMost, change))
	g.square += (change*change - g.square) / greyboxGustWindows
	return jumped
}

// deviation returns the standard deviation of the logarithm of the next load
// about the present one.
func (g *greyboxGust) deviation() float64 { return math.Sqrt(g.square) }

// ahead returns the load that a decision is for.
func (c *greyboxChoice) ahead() float64 {
	q, rate := c.q, c.f.PacketRate
	rising := rate * (1 + risen(min(c.f.RateChange, q.changed)))
	if !c.f.Suspension.Ready {
		return rising
	}
	if q.jumped {
		// A jump within the window has not shown all of itself, and the next
		// window is not decided upon if this one moves.
		return max(rising, q.peak)
	}
	return rising
}
