package counterfactual

import (
	"cmp"
	"math"
	"slices"
	"time"

	"autotune/model"
	"autotune/model/sim"
)

// The relative errors that cost the fit one unit. They stand for the model's own
// error more than for noise, which windows average away.
const (
	delayTolerance = 0.04
	tailTolerance  = 0.08
	// A histogram's bucket is up to an eighth wide.
	serviceTolerance = 0.03
	costTolerance    = 0.03
	countTolerance   = 0.05
)

// The names of quantities that requests in bursts meet otherwise.
const (
	p50Name   = "p50"
	p90Name   = "p90"
	pollsName = "polls per request"
)

// target is a regime to be met.
type target struct {
	*regime    // as recorded
	settings   model.Settings
	wait       sim.Wait
	rate       float64 // requests per second of one queue
	windows    int
	quantities []quantity
	// load is what the regime is simulated under for span; nil where requests
	// come at random.
	load sim.Load
	span time.Duration
}

// quantity is a value of a regime that the simulated host is to meet.
type quantity struct {
	name      string
	want      float64
	tolerance float64
	of        func(*row) float32
	// perRequest is of values per packet: they are compared per request, by
	// the packets per request of each host.
	perRequest bool
}

func (q *quantity) value(g *regime, packetsPerRequest float64) float64 {
	if q.perRequest {
		return g.middle(q.of) * packetsPerRequest
	}
	return g.middle(q.of)
}

const (
	// leastShare is the part of the requests that makes a regime more than a
	// passing state, and leastRows the number of windows that does so in any
	// case: under a policy that tries much, or a load that follows the day, no
	// regime has much of the whole.
	leastShare = 0.02
	leastRows  = 20
)

// targets are the regimes with the most requests, so many of which are to be
// simulated of each.
func (r *Recording) targets(requests int) []target {
	r.settle()
	all := make([]*regime, 0, len(r.regimes))
	for _, g := range r.regimes {
		if g.requests >= leastRequests && g.key.load > 0 && g.seen >= 2 && (g.seen >= leastRows || g.requests >= leastShare*r.requests) {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *regime) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.key.load, b.key.load),
			cmp.Compare(a.key.settings.String(), b.key.settings.String()))
	})
	all = all[:min(len(all), mostRegimes)]
	per := r.PacketsPerRequest()
	wait, _ := r.Wait()
	out := make([]target, len(all))
	for i, g := range all {
		t := target{
			regime: g, settings: g.key.settings, wait: wait, windows: g.seen,
			rate: g.middle(func(w *row) float32 { return w.packetRate }) / per,
		}
		t.load, t.span = r.regimeLoad(g, t.rate, requests)
		for _, q := range []quantity{
			{name: p50Name, tolerance: delayTolerance, of: func(w *row) float32 { return w.p50 }},
			{name: p90Name, tolerance: tailTolerance, of: func(w *row) float32 { return w.p90 }},
			{name: "service", tolerance: serviceTolerance, of: func(w *row) float32 { return w.service }},
			{name: pollsName, tolerance: countTolerance, perRequest: true, of: func(w *row) float32 { return w.pollRate / w.packetRate }},
			{name: "NAPI time per request", tolerance: costTolerance, perRequest: true, of: func(w *row) float32 { return w.receiving }},
			{name: "other time per request", tolerance: costTolerance, perRequest: true, of: func(w *row) float32 { return w.other }},
			{name: "epoll returns per request", tolerance: countTolerance, perRequest: true, of: func(w *row) float32 { return w.waits }},
		} {
			// What was not observed is not asked for.
			if q.want = q.value(g, per); q.want > 0 && !math.IsInf(q.want, 0) {
				t.quantities = append(t.quantities, q)
			}
		}
		out[i] = t
	}
	return out
}

const (
	// mostPatterns is how many windows a regime is simulated from, and
	// mostRepeats how often they are gone through where they have few requests.
	mostPatterns = 64
	mostRepeats  = 4
)

// patternsOf returns patterns of a regime with so many requests per second, evenly
// from all that it has; where it has none, from those at about its rate.
func (r *Recording) patternsOf(g *regime, rate float64) []*pattern {
	var all, alike []*pattern
	for i := range r.tracks {
		for k := range r.tracks[i].patterns {
			p := &r.tracks[i].patterns[k]
			switch {
			case p.n == 0:
			case p.regime == g:
				all = append(all, p)
			case p.like(rate):
				alike = append(alike, p)
			}
		}
	}
	if len(all) == 0 {
		all = alike
	}
	if len(all) <= mostPatterns {
		return all
	}
	out := make([]*pattern, mostPatterns)
	for i := range out {
		out[i] = all[i*len(all)/mostPatterns]
	}
	return out
}

// regimeLoad returns about so many arrivals of a regime one by one, evenly from
// its windows, and how long they take; nil where it has none. Arrivals of windows
// that are alike are taken at the regime's rate, in requests per second.
func (r *Recording) regimeLoad(g *regime, rate float64, requests int) (sim.Load, time.Duration) {
	patterns, total := r.patternsOf(g, rate), 0
	for _, p := range patterns {
		total += p.n
	}
	if total == 0 {
		return nil, 0
	}
	each := r.Each()
	piece := max(time.Duration(float64(each)*min(1, float64(requests)/float64(total))), 1)
	load := sim.Windows{Each: piece, PerSecond: [][]float64{nil}}
	var at [][]time.Duration
	for n, round := 0, 0; n < requests && round < mostRepeats; round++ {
		for _, p := range patterns {
			times := p.times(each)
			if p.regime != g {
				times = sim.Repeated(times, rate/p.perSecond(), uint64(p.window))
			}
			end, _ := slices.BinarySearch(times, piece)
			n += end
			at = append(at, times[:end])
			load.PerSecond[0] = append(load.PerSecond[0], float64(end)/piece.Seconds())
		}
		if n == 0 {
			// All came later than that in their windows.
			return nil, 0
		}
	}
	load.Singles = func(_, window int) ([]time.Duration, bool) {
		if window >= len(at) {
			return nil, false
		}
		return at[window], true
	}
	return load, piece * time.Duration(len(at))
}
