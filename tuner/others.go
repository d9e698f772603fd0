package tuner

import (
	"math"

	"autotune/model"
)

const (
	// othersMost is the number of windows in a row that decide nothing since
	// others took the CPU: what lasts longer is what the queue has to live with.
	othersMost = 4
	// othersRest is the number of other windows that it takes for one more: so is
	// what comes again and again.
	othersRest = 4
)

// others is the share of the CPU that serves a queue which goes to anything but
// the queue: to other queues and, on a host that is shared, to other work.
type others struct {
	// usual is its mean of late, over as many windows.
	usual   float64
	windows float64
	// spent is how many windows of late decided nothing, of othersMost.
	spent float64
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
	far := utilisation > full && more > limit
	if far && o.windows >= memory/4 && o.spent+1 <= othersMost {
		o.spent++
		return more
	}
	if !far {
		o.spent = max(0, o.spent-1.0/othersRest)
	}
	o.windows = min(o.windows+1, memory)
	o.usual += more / o.windows
	return 0
}

// judgeOthers finds out whether others took so much of the CPU that the window
// bears no decision.
func (t *turn) judgeOthers(part model.WindowPart) {
	q := t.q
	if part.Cost == nil || part.Span <= 0 ||
		q.trial != nil && t.dearer(q.trial.before) || q.audit != nil && t.dearer(q.audit.before) {
		// What a move made dearer may be its own doing.
		return
	}
	t.taken = q.others.see(part.Utilisation, part.Cost.Seconds()/part.Span.Seconds(), t.loop.options.Evidence.Others)
}
