package policy

import (
	"math"
	"slices"

	"autotune/model"
)

const (
	// greyboxGustWindows is the number of windows over which changes of load are
	// averaged, and greyboxGustMost the logarithm of the largest that counts: one
	// jump is not what load does all the time.
	greyboxGustWindows = 25
	greyboxGustMost    = 0.4
	// greyboxGusts is how many gusts a rise exceeds that is a jump.
	greyboxGusts = 2
	// greyboxGustLeast is the logarithm of the least rise that is a jump.
	greyboxGustLeast = 0.18
	// greyboxUsualWindows is the number of windows over which the usual load is
	// averaged, and greyboxFallen the number of windows in a row far below it
	// after which it is the present one.
	greyboxUsualWindows = 8
	greyboxFallen       = 2
	// greyboxTrendWindows is the number of windows that tell a dip from a load
	// that falls.
	greyboxTrendWindows = 3
)

// greyboxGust is by how much load changes from window to window: the mean
// square of the logarithm of the ratio.
type greyboxGust struct {
	square float64
	// usual is the load about which it does, in packets per second: load that
	// dips for a window comes back.
	usual float64
	// fallen counts the windows in a row that were further below.
	fallen int
	// last are the loads of the last windows.
	last [greyboxTrendWindows]float64
	seen int
}

// comes returns the load that comes back after a dip: the usual one, unless that
// of all of the last windows was below it, as when load falls steadily.
func (g *greyboxGust) comes() float64 {
	return min(g.usual, slices.Max(g.last[:]))
}

// observe takes a window's load, and reports whether it jumped upwards, by more
// than what load does all the time and not only back from a dip.
func (g *greyboxGust) observe(f *model.Features) (jumped bool) {
	if g.usual == 0 {
		g.usual = f.PacketRate
	}
	change := math.Log1p(max(-0.95, f.RateChange))
	away := math.Log(f.PacketRate / g.usual)
	least := max(greyboxGustLeast, greyboxGusts*g.deviation())
	jumped = min(change, away) > least
	g.last[g.seen%len(g.last)] = f.PacketRate
	g.seen++
	g.fallen++
	if away >= -least {
		g.fallen = 0
	}
	g.usual += (f.PacketRate - g.usual) / greyboxUsualWindows
	if jumped || g.fallen >= greyboxFallen {
		g.usual, g.fallen = f.PacketRate, 0
	}
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
	rising = max(rising, q.gust.comes())
	if q.jumped {
		// A jump within the window has not shown all of itself, and the next
		// window is not decided upon if this one moves.
		return max(rising, q.peak)
	}
	return rising
}
