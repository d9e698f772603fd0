package probe

import (
	"slices"
	"testing"
)

func TestPollersAreTheCPUsThatPolled(t *testing.T) {
	const wraps = ^uint32(0)
	for name, tt := range map[string]struct {
		last, now []uint32
		want      []int
	}{
		"none":                         {[]uint32{7, 7}, []uint32{7, 7}, nil},
		"one":                          {[]uint32{7, 7}, []uint32{7, 9}, []int{1}},
		"two, and one that hardly did": {[]uint32{0, 0, 0}, []uint32{100, 50, 9}, []int{0, 1}},
		"just one in 16":               {[]uint32{0, 0}, []uint32{15, 1}, []int{0, 1}},
		"a counter that wrapped":       {[]uint32{wraps, 0}, []uint32{1, 0}, []int{0}},
		"no reading before":            {nil, []uint32{1, 0}, nil},
		"interrupts go to another CPU": {[]uint32{100, 0}, []uint32{100, 80}, []int{1}},
	} {
		if got := pollers(tt.last, tt.now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
