package policy

import (
	"testing"

	"autotune/model"
)

// What comes again and again is not taken for the host's doing for ever, whatever
// the pattern.
func TestDisturbancesAreAFifthOfTheWindowsAtMost(t *testing.T) {
	const windows = 300
	for _, tc := range []struct {
		name        string
		bad, good   int
		least, most int
	}{
		{"one in twenty", 1, 19, windows / 20, windows / 20},
		{"every second", 1, 1, windows / 10, windows/5 + greyboxOddSpent},
		{"two of three", 2, 1, windows / 10, windows/5 + greyboxOddSpent},
		{"all", 1, 0, 0, windows/5 + greyboxOddSpent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var q greyboxQueue
			taken := 0
			for w := range windows {
				z, factor := 0.0, 1.0
				if w%(tc.bad+tc.good) < tc.bad {
					z, factor = 2*greyboxOdd, 2*greyboxOddFactor
				}
				if q.disturbed(&model.Features{PacketRate: 50_000}, z, factor) {
					taken++
				}
				if z == 0 {
					q.bad = 0
				}
			}
			if taken < tc.least || taken > tc.most {
				t.Errorf("%d of %d windows are taken for disturbances, want %d to %d", taken, windows, tc.least, tc.most)
			}
		})
	}
}
