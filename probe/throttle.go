package probe

import "time"

const (
	// defaultBudget is the share of a CPU that the programs may take.
	defaultBudget = 0.01
	// maxLevel bounds how little is sampled: one socket in 16 and one poll in 4
	// of what was asked for. Most of what then is left is the price of counting
	// (measured at 40,000 requests/s: 4.1% of a CPU with everything sampled,
	// 3.4% at this level, 2.9% with one socket in 256), and with fewer sockets
	// a window would often follow none.
	maxLevel = 4
	// calmMeasurements is how often in a row the cost must be found low before
	// more is sampled again.
	calmMeasurements = 3
	// measureEvery and measureSeldom are how often the cost is measured while
	// more or less may have to be sampled, and while it is far below the budget
	// or nothing is left to leave out: switching the kernel's accounts on and
	// off rewrites its code on all CPUs, and takes half a millisecond.
	measureEvery  = 900 * time.Millisecond
	measureSeldom = 10 * time.Second
	// maxMeasured is how long they are on at most.
	maxMeasured = 50 * time.Millisecond
)

// throttle decides how much is sampled, so that the programs stay within their
// budget. Each level above 0 halves the share of sockets that are followed, and
// every second one the share of polls that are timed.
type throttle struct {
	// budget is the CPU time per second; 0 means no limit.
	budget time.Duration
	// sockets is the mask of sockets that was asked for.
	sockets uint32

	level, calm int
	// cost is what was measured last; nil when nothing was.
	cost *time.Duration
	// next is when to measure again, since boot.
	next time.Duration
}

// due reports whether the cost is to be measured in the window that begins at.
func (t *throttle) due(at time.Duration) bool { return t.budget > 0 && at >= t.next }

// note takes a measurement of the window that began at, in CPU time per second
// of the busiest CPU.
func (t *throttle) note(at, cost time.Duration) {
	t.cost = &cost
	t.next = at + measureEvery
	switch {
	case cost > t.budget:
		if t.level == maxLevel {
			// Nothing is left to do about it.
			t.next = at + measureSeldom
		}
		t.level, t.calm = min(t.level+1, maxLevel), 0
	case t.level == 0:
		if cost < t.budget/2 {
			t.next = at + measureSeldom
		}
	case cost < t.budget/2:
		// Twice as much would still fit.
		if t.calm++; t.calm == calmMeasurements {
			t.level, t.calm = t.level-1, 0
		}
	default:
		t.calm = 0
	}
}

// socketMask returns the mask that selects the sockets to follow.
func (t *throttle) socketMask() uint32 {
	mask := t.sockets
	for range t.level {
		if mask >= maxSampleEvery-1 {
			break
		}
		mask = mask<<1 | 1
	}
	return mask
}

// pollMask returns the mask that selects the polls to time.
func (t *throttle) pollMask() uint32 { return 1<<(t.level/2) - 1 }

// busiest returns the largest share that a CPU has in the growth of events; 1
// when there was none.
func busiest(last, now []uint64) float64 {
	var sum, most uint64
	for i := range min(len(last), len(now)) {
		n := grown(last[i], now[i])
		sum += n
		most = max(most, n)
	}
	if sum == 0 {
		return 1
	}
	return float64(most) / float64(sum)
}
