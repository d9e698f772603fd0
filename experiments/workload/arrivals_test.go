//go:build linux

package workload

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The dispersion of the numbers of requests in equal times is 1 at random, and
// with bursts that are short against these times about 2*Burst - 1, as their
// numbers are geometric.
func TestArrivalsHaveTheirRateAndTheirBursts(t *testing.T) {
	for name, c := range map[string]struct {
		phase      Phase
		dispersion float64
	}{
		"at random":      {Phase{Rate: 20000}, 1},
		"bursts of one":  {Phase{Rate: 20000, Burst: 1, BurstRate: 5}, 1},
		"bursts of five": {Phase{Rate: 5000, Burst: 5, BurstRate: 200e3}, 9},
		"bursts of 20":   {Phase{Rate: 5000, Burst: 20, BurstRate: 200e3}, 39},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.phase.check(); err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, 2))
			const span, spans = 100 * time.Millisecond, 4000
			counts := make([]float64, spans)
			for at := c.phase.gap(random); at < span*spans; at += c.phase.gap(random) {
				counts[at/span]++
			}
			var sum, squares float64
			for _, n := range counts {
				sum += n
				squares += n * n
			}
			mean := sum / spans
			dispersion := (squares/spans - mean*mean) / mean
			if want := c.phase.Rate * span.Seconds(); math.Abs(mean/want-1) > 0.02 {
				t.Errorf("%.1f requests per %v, want %.1f within 2%%", mean, span, want)
			}
			if math.Abs(dispersion/c.dispersion-1) > 0.2 {
				t.Errorf("dispersion %.2f, want %.2f within 20%%", dispersion, c.dispersion)
			}
		})
	}
}

func TestRatesThatCannotBeOfferedAreRefused(t *testing.T) {
	for name, p := range map[string]Phase{
		"a negative rate":       {Rate: -1},
		"no number":             {Rate: math.NaN()},
		"beyond all clients":    {Rate: 2e7},
		"a negative settling":   {Rate: 1, Settle: -1},
		"bursts of no rate":     {Rate: 1000, Burst: 5},
		"bursts below the rate": {Rate: 1000, Burst: 5, BurstRate: 700},
	} {
		if err := p.check(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := (Phase{Burst: 5}).check(); err != nil {
		t.Errorf("a phase without requests: %v", err)
	}
}
