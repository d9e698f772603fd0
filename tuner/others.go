package tuner

import (
	"math"

	"autotune/model"
)

// othersMost is the number of windows in a row that decide nothing since others
// took the CPU: what lasts longer is what the queue has to live with.
const othersMost = 4

// others is the share of the CPU that serves a queue which goes to anything but
// the queue: to other queues and, on a host that is shared, to other work.
type others struct {
	// usual is its mean of late, over as many windows.
	usual   float64
	windows float64
	// row counts the windows in a row in which it was far above that.
	row int
}

// see takes a window's utilisation and the queue's own share of the CPU, and
// reports how much more than usual others took; zero where the window bears a
// decision. The usual share may be below zero: not every CPU time is counted
// with the same clock.
func (o *others) see(utilisation, own, limit float64) float64 {
	const (
		memory = 16
		full   = 0.85
	)
	share := utilisation - own
	if limit < 0 || math.IsNaN(share) {
		return 0
	}
	more := share - o.usual
	if o.windows >= memory/4 && utilisation > full && more > limit && o.row < othersMost {
		o.row++
		return more
	}
	if !(utilisation > full && more > limit) {
		o.row = 0
	}
	o.windows = min(o.windows+1, memory)
	o.usual += more / o.windows
	return 0
}

// judgeOthers finds out whether others took so much of the CPU that the window
// bears no decision.
func (t *turn) judgeOthers(part model.WindowPart) {
	if part.Cost == nil || part.Span <= 0 || t.q.trial != nil && t.dearer() {
		// What a trial made dearer may be its own doing.
		return
	}
	t.taken = t.q.others.see(part.Utilisation, part.Cost.Seconds()/part.Span.Seconds(), t.loop.options.Evidence.Others)
}
