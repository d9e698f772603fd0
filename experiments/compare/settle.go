package compare

import (
	"math"

	"autotune/experiments/stats"
)

const (
	// changedLoad is the relative change of the offered load, from one window
	// to the next, that counts as a change to be followed; it must stay within
	// calmLoad for changeStays windows after.
	changedLoad = 0.20
	calmLoad    = 0.10
	changeStays = 6
	// A contender has settled once settledFor windows in a row met the SLO and
	// cost at most settledCost of the oracle's.
	settledFor  = 3
	settledCost = 1.05
)

// settle measures how long after each change of load the contender was as good
// as the oracle. Where the oracle violates too, a violation does not count.
func (m *Metrics) settle(p *Plan, c, oracle *Cell) {
	m.Settling = math.NaN()
	if oracle == nil || len(oracle.Windows) != len(c.Windows) {
		return
	}
	starts := loadChanges(c.Windows[:], p.Skip)
	for n, start := range starts {
		end := len(c.Windows)
		if n+1 < len(starts) {
			end = starts[n+1]
		}
		took, settled := settlesIn(c.Windows[start:end], oracle.Windows[start:end])
		if !settled {
			m.Unsettled++
		}
		m.settling = append(m.settling, float64(took))
	}
	m.LoadChanges = len(starts)
	m.Settling = stats.Median(m.settling)
}

func settlesIn(windows, oracle []Window) (took int, settled bool) {
	run := 0
	for i := range windows {
		w, o := &windows[i], &oracle[i]
		good := !w.Violating || o.Violating
		if w.Served > 0 && o.Served > 0 {
			good = good && w.Cycles/float64(w.Served) <= settledCost*o.Cycles/float64(o.Served)
		}
		if !good {
			run = 0
			continue
		}
		if run++; run == settledFor {
			return i + 1 - settledFor, true
		}
	}
	return len(windows), false
}

// loadChanges returns the windows at which the load changes and then stays.
func loadChanges(windows []Window, skip int) []int {
	due := func(i int) float64 { return float64(windows[i].Due) }
	near := func(a, b, within float64) bool { return math.Abs(a-b) <= within*max(a, b) }
	var out []int
	for i := max(1, skip+1); i+changeStays <= len(windows); i++ {
		if near(due(i), due(i-1), changedLoad) {
			continue
		}
		stays := true
		for j := i + 1; j < i+changeStays; j++ {
			stays = stays && near(due(j), due(i), calmLoad)
		}
		if stays {
			out = append(out, i)
		}
	}
	return out
}
