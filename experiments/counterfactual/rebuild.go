package counterfactual

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"autotune/model"
)

// What takes how long where it was not observed: an interrupt to its poll, and a
// packet in a poll.
const (
	assumedWait   = 5 * time.Microsecond
	assumedPacket = 2 * time.Microsecond
)

// deliveryBatch is how many packets of a poll the kernel gathers before it hands
// them on (gro_normal_batch).
const deliveryBatch = 8

// arrivals returns when the requests of the window came, since its beginning and
// ascending. A poll brings what came since the poll before it. Where an interrupt
// started it, the first packet did so, and the others came after that one; but a
// thread that had to wait for the application brings what came meanwhile. Where
// every socket was followed, requests are those that were ready within the poll;
// otherwise so many of its packets, drawn at random, as there are requests among
// all.
func (o *observedQueue) arrivals(e *queueEvents, from, to time.Duration, packetsPerRequest float64, random *rand.Rand) (at []time.Duration, ok bool) {
	brought, known := o.requests(e, from, packetsPerRequest, random)
	if !known {
		return nil, false
	}
	timers := slices.ContainsFunc(e.polls, func(p model.PollEvent) bool {
		return p.Loop == model.LoopSoftirqTimer || p.Loop == model.LoopThreadTimer
	})
	wait, packet, served := o.leastWait(), e.perPacket(brought), e.served()
	before := from
	for i, p := range e.polls {
		low, high := before, max(p.At, before)
		byInterrupt := (p.Loop == model.LoopSoftirq || p.Loop == model.LoopThread) &&
			(timers || o.settings.Mode() == model.ModeInterrupts)
		if byInterrupt {
			// What it takes from the interrupt to the poll's end.
			took := wait + time.Duration(max(p.Work, 1)-1)*packet
			if since, kept := served.until(before, high, took+slack*wait); kept && p.Loop == model.LoopThread {
				low, byInterrupt = max(low, since), false
			} else {
				low = max(low, high-took)
			}
		}
		before = high
		first := len(at)
		for k := range brought[i].requests {
			t := low
			if k > 0 || !byInterrupt {
				t += time.Duration(random.Float64() * float64(high-low))
			}
			at = append(at, min(max(t-from, 0), to-from-1))
		}
		slices.Sort(at[first:])
	}
	return at, true
}

// leastWait is how long packets wait at least, but for a few: what an interrupt
// takes to its poll where nothing keeps it.
func (o *observedQueue) leastWait() time.Duration {
	if o.ringWait != nil && o.ringWait.Count() > 0 {
		return o.ringWait.Quantile(0.1)
	}
	return assumedWait
}

// brought is what a poll brought: so many requests, the first of which was ready
// at first where that is known.
type brought struct {
	requests int
	first    time.Duration
}

// requests returns what each poll brought, and whether that can be told.
func (o *observedQueue) requests(e *queueEvents, from time.Duration, packetsPerRequest float64, random *rand.Rand) (out []brought, known bool) {
	out = make([]brought, len(e.polls))
	if o.every <= 1 && e.sees {
		for i := range e.requests {
			ready := e.requests[i].Ready
			k := e.pollOf(ready)
			if ready < from || k < 0 {
				continue
			}
			if out[k].requests++; out[k].requests == 1 {
				out[k].first = ready
			}
		}
		return out, true
	}
	packets := 0
	for _, p := range e.polls {
		packets += int(p.Work)
	}
	// The window's own ratio is the better one where it is not mere chance.
	if seen := len(e.requests); seen >= 50 && e.sees {
		packetsPerRequest = float64(packets) / (float64(seen) * float64(o.every))
	}
	if !(packetsPerRequest > 0) || math.IsInf(packetsPerRequest, 0) {
		return nil, false
	}
	share := min(1/packetsPerRequest, 1)
	for i, p := range e.polls {
		for range p.Work {
			if random.Float64() < share {
				out[i].requests++
			}
		}
	}
	return out, true
}

// pollOf returns the index of the poll within which a request was ready: the one
// that ended next, or the last one before that had packets; negative where there
// is none.
func (e *queueEvents) pollOf(ready time.Duration) int {
	k, _ := slices.BinarySearchFunc(e.polls, ready, func(p model.PollEvent, at time.Duration) int { return cmp.Compare(p.At, at) })
	if k < len(e.polls) && e.polls[k].Work > 0 {
		return k
	}
	for k--; k >= 0; k-- {
		if e.polls[k].Work > 0 {
			return k
		}
	}
	return -1
}

// perPacket is what a packet adds to a poll: the median over polls of several
// batches, from when the first batch was handed on to the end.
func (e *queueEvents) perPacket(brought []brought) time.Duration {
	var each []time.Duration
	for i, p := range e.polls {
		if p.Work >= deliveryBatch*3/2 && brought[i].first > 0 && brought[i].first < p.At {
			each = append(each, (p.At-brought[i].first)/time.Duration(p.Work-deliveryBatch))
		}
	}
	if len(each) == 0 {
		return assumedPacket
	}
	slices.Sort(each)
	return each[len(each)/2]
}

// work is one request's, from its receive to its send.
type work struct{ receive, send time.Duration }

// served is what the application did, ascending by its ends.
type served []work

func (e *queueEvents) served() served {
	var out served
	for i := range e.requests {
		if q := &e.requests[i]; q.Receive != nil && q.Send != nil {
			out = append(out, work{*q.Receive, *q.Send})
		}
	}
	slices.SortFunc(out, func(a, b work) int { return cmp.Compare(a.send, b.send) })
	return out
}

// slack is how many times as long as packets wait at least a poll may come later
// than at once.
const slack = 2

// until reports whether the application worked until no longer than so long before
// a poll that ended at high, and since when, after the poll before.
func (s served) until(before, high, long time.Duration) (since time.Duration, busy bool) {
	end := func(w work, t time.Duration) int { return cmp.Compare(w.send, t) }
	last, _ := slices.BinarySearchFunc(s, high+1, end)
	if last == 0 || s[last-1].send <= max(before, high-long) {
		return 0, false
	}
	first, _ := slices.BinarySearchFunc(s, before+1, end)
	return s[first].receive, true
}
