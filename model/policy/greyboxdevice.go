package policy

import (
	"autotune/model"
	"autotune/model/bayes"
)

// greyboxDeviceKey names a device.
type greyboxDeviceKey struct {
	netns   uint64
	ifindex int
}

// greyboxDevice is the queues of one device, which share what does not differ
// from queue to queue: each has what the others saw as its prior.
type greyboxDevice struct {
	queues []*greyboxQueue
	// common is what all queues saw, where there are many, and decisions how many
	// there were since it was summed up.
	common    *greyboxPriors
	decisions int
	host      greyboxHost
}

const (
	// greyboxShareEvery is the number of windows between two exchanges. At first,
	// when most is learned, they are greyboxShareFirst apart, and then
	// 1/greyboxShareSlower of the windows so far; at most greyboxShareBeside while a
	// queue is late, when the others need to know what moves away from it do.
	greyboxShareEvery  = 60
	greyboxShareFirst  = 3
	greyboxShareSlower = 3
	greyboxShareBeside = 6
	// greyboxFew is the number of queues up to which a queue's own data are
	// left out of what it takes from the others. Of more, they are a small
	// part.
	greyboxFew = 8
	// Queues of a device differ by these standard deviations: in the logarithm
	// of cost, in microseconds of delay, and in that per 100 us of flush
	// timeout.
	greyboxCostDiffers  = 0.04
	greyboxDelayDiffers = 5.0
)

// queue returns what is known of a queue; a new one starts from what the others
// of its device know.
func (p *Greybox) queue(id model.Queue) *greyboxQueue {
	q, ok := p.queues[id]
	if ok {
		return q
	}
	key := greyboxDeviceKey{id.Netns, id.Ifindex}
	d, ok := p.devices[key]
	if !ok {
		d = &greyboxDevice{}
		p.devices[key] = d
	}
	q, known := p.loaded[id]
	if !known {
		q = newGreyboxQueue(id, p.priors)
	}
	delete(p.loaded, id)
	d.queues = append(d.queues, q)
	p.queues[id] = q
	if len(d.queues) > 1 && !known {
		d.inform(q, p.priors)
	}
	return q
}

// share brings the prior of a queue up to date, when it is time; beside tells that
// a queue of the device is late.
func (p *Greybox) share(d *greyboxDevice, q *greyboxQueue, beside bool) {
	d.decisions++
	if len(d.queues) < 2 {
		return
	}
	// Queues take turns, so that no window has to do all.
	apart := max(greyboxShareFirst, min(greyboxShareEvery, q.windows/greyboxShareSlower))
	if beside {
		apart = min(apart, greyboxShareBeside)
	}
	if q.windows < q.shared+apart || q.shared == 0 && q.windows < greyboxShareFirst+q.queue.Index%greyboxShareFirst {
		return
	}
	q.shared = q.windows
	d.inform(q, p.priors)
}

// inform gives a queue what the others saw.
func (d *greyboxDevice) inform(q *greyboxQueue, base greyboxPriors) {
	priors := d.common
	if few := len(d.queues) <= greyboxFew; few || priors == nil || d.decisions >= len(d.queues)*greyboxShareEvery/4 {
		costs, delays := bayes.NewEvidence(costLen), bayes.NewEvidence(delayLen)
		for _, other := range d.queues {
			if other != q || !few {
				other.add(costs, delays)
			}
		}
		seen, err := base.updated(costs, delays, 1, differing(costLen, greyboxCostDiffers), differing(delayLen, greyboxDelayDiffers))
		if err != nil {
			// Rounding left no distribution: the queue goes on with the prior that
			// it has.
			return
		}
		priors = &seen
		if !few {
			d.common, d.decisions = priors, 0
		}
	}
	q.cost.SetPrior(priors.cost)
	q.delay.SetPrior(priors.delay)
}

// differing returns by how much each of n coefficients differs from queue to
// queue.
func differing(n int, by float64) map[int]float64 {
	out := make(map[int]float64, n)
	for i := range n {
		out[i] = by
	}
	return out
}

// add adds the queue's data to sums.
func (q *greyboxQueue) add(costs, delays *bayes.Evidence) {
	for _, e := range q.cost.Data() {
		costs.Plus(e, 1)
	}
	for _, e := range q.delay.Data() {
		delays.Plus(e, 1)
	}
}
