package compare

import (
	"cmp"
	"context"
	"slices"

	"autotune/model/sim"
)

// bestStaticTries bounds how many settings are simulated in search of the best.
const bestStaticTries = 16

// doubtful is how far above the limit the table may have a setting that is tried
// in its turn, since the table is off by some windows; what it has further above
// only if nothing else holds.
const doubtful = 0.1

// bestStatic returns the cell of the cheapest setting of the grid with at most
// 1% violating windows over the scenario, in hindsight; where there is none,
// that with the least. Settings are simulated in the order in which the table
// of steady states has them, those that it takes for hopeless last.
func (p *prepared) bestStatic(ctx context.Context, table *steady, s sim.Scenario, windows int, seed uint64) (Cell, error) {
	type candidate struct {
		index           int
		cost, violating float64
	}
	loads := offered(s.Load, p.Queues, windows, p.Interval)[p.Skip:]
	var all []candidate
	for i := range table.Settings {
		c := candidate{index: i}
		total := 0.0
		for _, load := range loads {
			cell := table.at(i, load)
			c.cost += cell.Cycles * load
			c.violating += cell.violating(p.SLO) / float64(len(loads))
			total += load
		}
		c.cost /= max(total, 1)
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		hopelessA, hopelessB := a.violating > maxViolating+doubtful, b.violating > maxViolating+doubtful
		switch {
		case hopelessA != hopelessB:
			if hopelessA {
				return 1
			}
			return -1
		case hopelessA:
			return cmp.Compare(a.violating, b.violating)
		}
		return cmp.Compare(a.cost, b.cost)
	})
	allowed := int(maxViolating*float64(windows-p.Skip) + 1e-9)
	var tried []*passage
	for _, c := range all[:min(bestStaticTries, len(all))] {
		a, err := p.fixedPassage(s, windows, seed, refBestStatic, table.Settings[c.index])
		if err != nil {
			return Cell{}, err
		}
		if err := a.advance(ctx, allowed); err != nil {
			return Cell{}, err
		}
		if a.done() && a.violating <= allowed {
			// In order of cost, so none that follows is cheaper.
			return *a.cell, nil
		}
		tried = append(tried, a)
	}
	return leastViolating(ctx, tried)
}

// leastViolating returns the first cell of those with the fewest violating
// windows. Only the passage with the fewest so far goes on, so that none is
// simulated beyond the window in which it has lost.
func leastViolating(ctx context.Context, tried []*passage) (Cell, error) {
	for {
		least := slices.MinFunc(tried, func(a, b *passage) int { return cmp.Compare(a.violating, b.violating) })
		if least.done() {
			return *least.cell, nil
		}
		if err := least.advance(ctx, least.violating); err != nil {
			return Cell{}, err
		}
	}
}

func violatingShare(windows []Window) float64 {
	n := 0
	for i := range windows {
		if windows[i].Violating {
			n++
		}
	}
	return float64(n) / float64(max(1, len(windows)))
}
