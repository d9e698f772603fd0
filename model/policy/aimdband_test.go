package policy

import (
	"testing"
	"time"

	"autotune/model"
)

func TestBandKeepsTheCostsOfTheLatestSettings(t *testing.T) {
	best := deferral(time.Microsecond)
	b := &aimdBand{best: best, costs: make(map[model.Settings]*aimdCost)}
	note := func(s model.Settings) { b.note(model.Features{Active: s, CostPerPacket: time.Microsecond}, true) }
	note(model.Settings{})
	note(best)
	const tried = 10 * aimdCosts
	for i := range tried {
		note(deferral(time.Duration(2+i) * time.Microsecond))
	}
	if len(b.costs) != aimdCosts {
		t.Errorf("keeps the costs of %d settings, want %d", len(b.costs), aimdCosts)
	}
	for _, s := range []model.Settings{{}, best, deferral((2 + tried - aimdCosts + 2) * time.Microsecond), deferral((2 + tried - 1) * time.Microsecond)} {
		if b.costs[s] == nil {
			t.Errorf("forgot the cost of %v", s)
		}
	}
	if s := deferral((2 + tried - aimdCosts + 1) * time.Microsecond); b.costs[s] != nil {
		t.Errorf("kept the cost of %v before later ones", s)
	}
}
