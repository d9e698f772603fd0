package policy

import (
	"math"

	"autotune/model"
)

const (
	// greyboxHostAim is the part of the late requests which the objective allows
	// that the host is held to beside a late queue, so that the noise of windows
	// does not break the SLO.
	greyboxHostAim = 0.9
	// greyboxHostLeast is the least part of its own late requests that a queue is
	// left, and greyboxHostFloor the least share of the SLO: where late queues
	// leave less, the others cannot hold the SLO for the host.
	greyboxHostLeast = 0.25
	greyboxHostFloor = 0.75
	// greyboxHostWindows is the number of windows over which lateness is
	// averaged.
	greyboxHostWindows = 4
	// greyboxHostRound is the number of decisions per queue after which those that
	// are not decided upon any more are left out.
	greyboxHostRound = 8
)

// greyboxHost sums up how late the requests of a device's queues are: a host
// meets its objective by all of them together.
type greyboxHost struct {
	// rate is in packets per second.
	rate float64
	// over is the number of queues that are late with more than their part,
	// overRate their packets per second, and overLate those of them that are late.
	over               int
	overRate, overLate float64
	// round numbers the counts of all queues, and decisions is how many there
	// were since the last.
	round, decisions int
}

// greyboxLateness is what a queue adds to the sums of its host.
type greyboxLateness struct {
	rate float64
	// share is that of the late packets, an average over windows at one setting.
	share   float64
	windows float64
	active  model.Settings
	// over tells that the share is more than the objective allows.
	over  bool
	round int
}

func (h *greyboxHost) add(l *greyboxLateness, sign int) {
	h.rate += float64(sign) * l.rate
	if l.over {
		h.over += sign
		h.overRate += float64(sign) * l.rate
		h.overLate += float64(sign) * l.rate * l.share
	}
}

// see takes the window of a queue.
func (h *greyboxHost) see(d *greyboxDevice, q *greyboxQueue, f *model.Features) {
	if share := late(f); share >= 0 && q.odd == 0 {
		l := &q.lateness
		h.add(l, -1)
		if jumps(f) || l.active != f.Active || l.round < h.round-1 {
			l.windows = 0
		}
		l.windows = min(l.windows+1, greyboxHostWindows)
		l.share += (share - l.share) / l.windows
		l.rate, l.active, l.round = f.PacketRate, f.Active, h.round
		l.over = l.share > 1-f.Objective.Quantile
		h.add(l, 1)
	}
	if h.decisions++; h.decisions >= greyboxHostRound*len(d.queues) {
		h.count(d)
	}
}

// moved takes a queue's move. What it moved to is expected to hold, unless it was
// for want of better.
func (h *greyboxHost) moved(q *greyboxQueue) {
	if l := &q.lateness; l.over && !q.forced {
		h.add(l, -1)
		l.over = false
		h.add(l, 1)
	}
}

// count sums up anew, without the queues that were not seen in this round.
func (h *greyboxHost) count(d *greyboxDevice) {
	*h = greyboxHost{round: h.round + 1}
	for _, q := range d.queues {
		if q.lateness.round < h.round-1 {
			q.lateness = greyboxLateness{round: q.lateness.round}
		}
		h.add(&q.lateness, 1)
	}
}

// left returns the share of the SLO that a queue may use, so that the host holds
// it beside the queues that are late with more than their part. What they leave of
// the late requests is the others' to share: a queue's quantile for that part,
// instead of the objective's, has to be within the SLO.
func (h *greyboxHost) left(q *greyboxQueue, f *model.Features) float64 {
	if h.over == 0 || q.lateness.over || jumps(f) || f.Delay == nil || h.rate <= h.overRate {
		return 1
	}
	allowed := 1 - f.Objective.Quantile
	part := (greyboxHostAim*allowed*h.rate - h.overLate) / (h.rate - h.overRate)
	if !f.Suspension.Ready && part < greyboxHostLeast*allowed {
		// There is no setting with so little delay.
		return 1
	}
	part = max(greyboxHostLeast*allowed, min(allowed, part))
	return max(greyboxHostFloor, min(1, float64(f.Quantile)/float64(f.Delay.Quantile(1-part))))
}

// jumps reports whether the window is of a load that jumped: what queues did
// before says nothing.
func jumps(f *model.Features) bool { return math.Abs(f.RateChange) > greyboxJump }

// late returns the share of the window's requests that are above the SLO, or -1
// where none were seen.
func late(f *model.Features) float64 {
	n := f.Delay.Count()
	if n == 0 {
		return -1
	}
	slo := f.Objective.SLO
	at := model.HistogramBucket(slo)
	low, high := model.HistogramBounds(at)
	part := min(1, float64(high-slo)/float64(high-low))
	return (float64(f.Delay.Above(slo)) + part*float64(f.Delay.Counts[at])) / float64(n)
}
