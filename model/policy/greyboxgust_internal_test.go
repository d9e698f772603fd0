package policy

import (
	"math/rand/v2"
	"testing"

	"autotune/model"
)

// What load does all the time is no jump, however much that is; what stands out
// from it is.
func TestJumpsStandOutFromGusts(t *testing.T) {
	for _, tc := range []struct {
		name        string
		noise, jump float64
		want        bool
	}{
		{"a third more on a calm load", 0.01, 0.35, true},
		{"a tenth more on a calm load", 0.01, 0.1, false},
		{"a third more on a gusty load", 0.25, 0.35, false},
		{"three times a gusty load", 0.25, 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			var g greyboxGust
			for range 200 {
				g.observe(&model.Features{RateChange: max(-0.5, tc.noise*random.NormFloat64())})
			}
			if got := g.observe(&model.Features{RateChange: tc.jump}); got != tc.want {
				t.Errorf("jumped is %v, want %v, at gusts of %.2f", got, tc.want, g.deviation())
			}
		})
	}
}
