package policy

import (
	"testing"
	"time"

	"autotune/model"
)

func TestSafeBOKeepsItsPointsBounded(t *testing.T) {
	o := DefaultSafeBOOptions()
	o.Points = 10
	p := NewSafeBO(o)
	h := newHost()
	most, over := 0, 0
	const windows = 2000
	for range windows {
		f := h.show()
		if broken(f) {
			over++
		}
		h.active = p.Decide(f).Settings
		for _, q := range p.queues {
			n := q.process.Len()
			most = max(most, n)
			if n != len(q.of) || n != len(q.seen) || n != len(q.last) || n != len(q.cells) {
				t.Fatalf("%d points, %d cells", n, len(q.cells))
			}
			for i, c := range q.of {
				if q.cells[c] != i {
					t.Fatalf("cell %v is at %d, not %d", c, q.cells[c], i)
				}
			}
		}
	}
	if most != 2*o.Points {
		t.Errorf("it grew to %d points, want %d", most, 2*o.Points)
	}
	if share := float64(over) / windows; share > 0.05 {
		t.Errorf("%.1f%% of the windows are above the SLO", 100*share)
	}
}

func TestSafeBOGrowsFromTheMostConservative(t *testing.T) {
	p := NewSafeBO(DefaultSafeBOOptions())
	h := newHost()
	h.random, h.rate = newHost().random, 150_000
	highest := 0
	seed := p.seed(h.show())
	for i := range 60 {
		f := h.show()
		f.PacketRate, f.RateChange = 150_000, 0
		at := nearest(p.choices, current(h.active))
		d := p.Decide(f)
		to := nearest(p.choices, current(d.Settings))
		if i == 0 && to > seed {
			t.Fatalf("it begins with %v: %s", d.Settings, d.Why)
		}
		if to > max(at+banditReach, seed) {
			t.Fatalf("from %v straight to %v: %s", h.active, d.Settings, d.Why)
		}
		highest = max(highest, to)
		h.active = d.Settings
	}
	if g := p.choices[highest]; g < 50*time.Microsecond || g > 115*time.Microsecond {
		t.Errorf("it goes up to %v, where delays reach the SLO at 110 us", g)
	}
}

func TestSafeBOForgetsWhatASurpriseDisproves(t *testing.T) {
	p := NewSafeBO(DefaultSafeBOOptions())
	h := newHost()
	for range 80 {
		f := h.show()
		h.active = p.Decide(f).Settings
	}
	before := 0
	for _, q := range p.queues {
		before = q.process.Len()
	}
	stuck := h.active
	var d model.Decision
	for range 2 {
		f := h.show()
		f.Active, f.Quantile = stuck, 900*time.Microsecond
		d = p.Decide(f)
	}
	for _, q := range p.queues {
		if n := q.process.Len(); n > safeRecent+1 || n >= before {
			t.Errorf("%d points of %d are left", n, before)
		}
	}
	if d.Purpose != model.PurposeSafety || current(d.Settings) >= current(stuck) {
		t.Errorf("it answers with %v for %s: %s", d.Settings, d.Purpose, d.Why)
	}
}
