package compare

import (
	"math"
	"time"

	"autotune/model"
)

// Metrics are what a cell comes to over its judged windows. What cannot be
// said is NaN, and null in JSON.
type Metrics struct {
	Scenario  string
	Seed      uint64
	Contender string
	Setting   *model.Settings
	// Windows is the number judged, Requests that of responses in them.
	Windows  int
	Requests uint64
	// ViolatingWindows and ViolatingRequests are shares.
	ViolatingWindows, ViolatingRequests float64
	// ExcessArea is the delay above the SLO, summed over windows, in
	// microseconds x seconds.
	ExcessArea float64
	// P50, P99 and Max are of all requests in microseconds, Max to the width of
	// a histogram's bucket (12.5%). WorstWindow is the largest SLO quantile of
	// a window.
	P50, P99, Max, WorstWindow float64
	// CyclesPerRequest and CyclesPerPacket count all cycles of the simulated
	// cores, idle exits included.
	CyclesPerRequest, CyclesPerPacket float64
	// VsBestStatic and the two after it are ratios of CyclesPerRequest.
	VsBestStatic, VsOracle, VsBase float64
	// SavingOverBase is the share of the oracle's saving over base that was
	// reached, SavingOverFixed that of its saving over the fixed reference.
	// Both are NaN where the oracle saves less than 1%.
	SavingOverBase, SavingOverFixed float64
	// Regret is by how many cycles per request windows were dearer than the
	// oracle's same windows; a cheaper window earns nothing back.
	Regret float64
	// LoadChanges is the number of changes of load that were followed, Settling
	// the median number of windows until settled, Unsettled how many never
	// settled before the next change; those count with all their windows.
	LoadChanges, Unsettled int
	Settling               float64
	settling               []float64
	// Changes is the number of changes of settings per queue, ChangeSteps
	// their mean size in steps of 25%.
	Changes, ChangeSteps float64
	// RestWindows is the number of windows at rest: the load was even in them
	// and in the 60 before. RestChanges is the number of changes per queue and
	// 60 such windows.
	RestWindows int
	RestChanges float64
	// Refused is the number of decisions that a guard refused, Exploring the
	// largest number of queues that moved to learn in one window.
	Refused, Exploring int
	Dropped            uint64
}

// group is one scenario with one seed: the cells to be compared.
type group map[string]*Cell

const (
	// leastSaving is the saving of the oracle below which shares of it say
	// nothing.
	leastSaving = 0.01
)

func (p *Plan) metrics(c *Cell, g group) Metrics {
	judged := c.Windows[min(p.Skip, len(c.Windows)):]
	m := Metrics{
		Scenario: c.Scenario, Seed: c.Seed, Contender: c.Contender, Setting: c.Setting,
		Windows: len(judged), ViolatingWindows: violatingShare(judged), Dropped: c.Dropped,
	}
	var cycles, lateSum, steps float64
	var packets, due uint64
	changes := 0
	for i := range judged {
		w := &judged[i]
		cycles += w.Cycles
		packets += w.Packets
		m.Requests += w.Served
		due += w.Due
		lateSum += w.Late
		changes += w.Changes
		steps += w.Steps
		m.Refused += w.Refused
		m.Exploring = max(m.Exploring, w.Exploring)
		if w.Quantile != nil {
			q := time.Duration(*w.Quantile)
			m.ExcessArea += max(0, micros(q-p.SLO)) * p.Interval.Seconds()
			m.WorstWindow = max(m.WorstWindow, micros(q))
		}
	}
	// What was due and never served is late too.
	m.ViolatingRequests = ratio(min(lateSum+max(0, float64(due)-float64(m.Requests)), float64(due)), float64(due))
	m.P50, m.P99 = micros(c.Delay.Quantile(0.5)), micros(c.Delay.Quantile(0.99))
	m.Max = micros(c.Delay.Quantile(1))
	m.CyclesPerRequest, m.CyclesPerPacket = ratio(cycles, float64(m.Requests)), ratio(cycles, float64(packets))
	m.Changes = float64(changes) / float64(p.Queues)
	m.ChangeSteps = ratio(steps, float64(changes))
	oracle := p.cost(g[refOracle])
	m.VsOracle = ratio(m.CyclesPerRequest, oracle)
	m.VsBestStatic = ratio(m.CyclesPerRequest, p.cost(g[refBestStatic]))
	m.VsBase = ratio(m.CyclesPerRequest, p.cost(g[refBase]))
	saving := func(over float64) float64 {
		if !(over-oracle >= leastSaving*over) {
			return math.NaN()
		}
		return (over - m.CyclesPerRequest) / (over - oracle)
	}
	m.SavingOverBase, m.SavingOverFixed = saving(p.cost(g[refBase])), saving(p.cost(g[p.Fixed()]))
	m.Regret = p.regret(c, g[refOracle])
	m.settle(p, c, g[refOracle])
	m.rest(judged, p.Queues)
	return m
}

// cost returns a cell's cycles per request.
func (p *Plan) cost(c *Cell) float64 {
	if c == nil {
		return math.NaN()
	}
	var cycles, served float64
	for _, w := range c.Windows[min(p.Skip, len(c.Windows)):] {
		cycles += w.Cycles
		served += float64(w.Served)
	}
	return ratio(cycles, served)
}

func (p *Plan) regret(c, oracle *Cell) float64 {
	if oracle == nil || len(oracle.Windows) != len(c.Windows) {
		return math.NaN()
	}
	var sum, served float64
	for i := min(p.Skip, len(c.Windows)); i < len(c.Windows); i++ {
		w, o := &c.Windows[i], &oracle.Windows[i]
		if w.Served == 0 || o.Served == 0 {
			continue
		}
		sum += max(0, w.Cycles/float64(w.Served)-o.Cycles/float64(o.Served)) * float64(w.Served)
		served += float64(w.Served)
	}
	return ratio(sum, served)
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// ratio returns a/b, NaN where b is not positive.
func ratio(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return a / b
}
