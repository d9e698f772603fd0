package stats

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	values := []float64{3, 1, 2}
	for _, c := range []struct {
		values []float64
		want   float64
	}{{values, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{7}, 7}, {nil, math.NaN()}} {
		if got := Median(c.values); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
	if values[0] != 3 {
		t.Error("the values were sorted")
	}
}
