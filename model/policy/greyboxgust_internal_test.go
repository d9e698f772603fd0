package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"autotune/model"
)

// What load does all the time is no jump, however much that is; what stands out
// from it is, unless it is back from a dip.
func TestJumpsStandOutFromGusts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		noise float64
		// last are the loads after those of noise, of which the last is looked
		// at, as multiples of the usual one.
		last []float64
		want bool
	}{
		{"a third more on a calm load", 0.01, []float64{1, 1.35}, true},
		{"a tenth more on a calm load", 0.01, []float64{1, 1.1}, false},
		{"a third more on a gusty load", 0.25, []float64{1, 1.35}, false},
		{"three times a gusty load", 0.25, []float64{1, 3}, true},
		{"back from a dip", 0.01, []float64{1, 0.6, 1}, false},
		{"three windows after a fall", 0.01, []float64{0.6, 0.6, 0.6, 1}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const usual = 1e5 // packets/s
			random := rand.New(rand.NewPCG(3, 4))
			var g greyboxGust
			before, jumped := 0.0, false
			see := func(load float64) {
				f := model.Features{PacketRate: load}
				if before > 0 {
					f.RateChange = load/before - 1
				}
				before, jumped = load, g.observe(&f)
			}
			for range 200 {
				see(usual * math.Exp(tc.noise/math.Sqrt2*random.NormFloat64()))
			}
			for _, load := range tc.last {
				see(load * usual)
			}
			if jumped != tc.want {
				t.Errorf("jumped is %v, want %v, at gusts of %.2f about %.0f packets/s", jumped, tc.want, g.deviation(), g.usual)
			}
		})
	}
}

// A load that dips is expected back, one that falls in each of the last windows is
// not.
func TestALoadThatFallsIsFollowed(t *testing.T) {
	const usual = 1e5 // packets/s
	for _, tc := range []struct {
		name     string
		last     []float64
		min, max float64
	}{
		{"a dip", []float64{0.85}, 0.97, 1},
		{"two dips", []float64{0.9, 1, 0.9}, 0.95, 1},
		{"a fall", []float64{0.96, 0.92, 0.88}, 0.9, 0.96},
		{"a long fall", []float64{0.96, 0.92, 0.88, 0.84, 0.8, 0.76}, 0.8, 0.84},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var g greyboxGust
			before := usual
			for w := range 30 + len(tc.last) {
				load := usual
				if w >= 30 {
					load *= tc.last[w-30]
				}
				g.observe(&model.Features{PacketRate: load, RateChange: load/before - 1})
				before = load
			}
			if got := g.comes() / usual; got < tc.min || got > tc.max+1e-9 {
				t.Errorf("%.3f of the usual load is expected, want %v to %v", got, tc.min, tc.max)
			}
		})
	}
}
