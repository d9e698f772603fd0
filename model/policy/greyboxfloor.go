package policy

import (
	"time"

	"autotune/model"
)

const (
	// greyboxFloor is the quantile of the delay where nothing waits for the
	// device's moderation or for timers, as a multiple of the median under
	// interrupts, and greyboxFloorError its relative error.
	greyboxFloor      = 2
	greyboxFloorError = 0.3
)

// learnFloor takes from the first window under interrupts what it says of the
// delay without the device's moderation, which is most of the quantile there and
// little of the median.
func (q *greyboxQueue) learnFloor(f *model.Features, mode greyboxMode) {
	if q.windows > 1 || mode != interrupting || !f.Suspension.Ready || f.Median <= 0 || f.Quantile <= f.Median {
		return
	}
	floor := greyboxFloor * micros(f.Median)
	x := delayRow(suspending, 0, f.PacketRate, q.utilisation(f))
	q.delay.Observe(int(interrupting), &x, floor, greyboxFloorError*greyboxFloorError*floor*floor)
}

// room returns how much longer the flush timeout may be for all that is known
// without a model: a packet waits for the timer by as much longer at most.
func (c *greyboxChoice) room() time.Duration {
	return max(0, time.Duration(greyboxEntry*float64(c.f.Objective.SLO-c.f.Quantile)))
}
