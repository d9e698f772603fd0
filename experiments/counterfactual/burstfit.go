package counterfactual

import (
	"context"
	"math"
	"slices"

	"autotune/experiments/stats"
)

// The relative errors that cost a fit with bursts one unit. In bursts, delays and
// polls are those of queues that build up and are worked off, where the application
// and the NAPI contend for a CPU: the simulated host follows them less closely than
// it does requests that come one at a time, and packets per poll least.
const (
	burstDelayTolerance  = 0.1
	packetsTolerance     = 0.1
	packetsPollTolerance = 0.3
)

const (
	// leastBunched is how many times the packets that requests at random would
	// bring to a packet's poll must have been there for bursts to be looked for.
	leastBunched = 1.2
	// leastGain is by how much less a fit with bursts must cost than one without.
	leastGain = 10
)

// burstPrior is what is believed of bursts before a recording is looked at.
func burstPrior() Bursts { return Bursts{Requests: 10, PerSecond: 150e3, Alone: 0.1} }

// withBursts returns a fit in which requests come in bursts, where polls brought
// what requests at random would not have brought and bursts explain what was
// measured, and the other fit elsewhere.
func (f *fitter) withBursts(ctx context.Context, atRandom *Fitted, r *Recording) (*Fitted, error) {
	if slices.ContainsFunc(f.targets, func(t target) bool { return t.load != nil }) {
		return atRandom, nil
	}
	g := *f
	g.targets = burstTargets(f.targets, r.PacketsPerRequest())
	// There are fewer bursts than requests.
	g.options.Requests *= 2
	results, err := g.simulate(ctx, atRandom.mean)
	if err != nil {
		return nil, err
	}
	if !(g.bunched(results) >= leastBunched) {
		return atRandom, nil
	}
	at, err := g.residuals(ctx, atRandom.mean)
	if err != nil {
		return nil, err
	}
	without := g.loss(at, atRandom.mean, g.prior())
	g.parameters = append(slices.Clone(f.parameters), burstParameters()...)
	g.start.Bursts = burstPrior()
	g.counts = r.dispersed.requests(r.PacketsPerRequest())
	x, err := g.search(ctx)
	if err != nil {
		return nil, err
	}
	fitted, err := g.descend(ctx, g.prior(), x)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		// Bursts that no descent leads to are none that were found.
		return atRandom, nil
	case fitted.loss+leastGain > without || fitted.best.Bursts.AtRandom():
		return atRandom, nil
	}
	return fitted, nil
}

// burstTargets returns the targets with what bursts are to meet in each.
func burstTargets(targets []target, packetsPerRequest float64) []target {
	out := slices.Clone(targets)
	for i := range out {
		t := &out[i]
		t.quantities = nil
		for _, q := range targets[i].quantities {
			switch q.name {
			case p50Name, p90Name:
				q.tolerance = burstDelayTolerance
			case pollsName:
				// Packets per poll tell that.
				continue
			}
			t.quantities = append(t.quantities, q)
		}
		for _, q := range []quantity{
			{name: "packets per poll", tolerance: packetsPollTolerance, of: func(w *row) float32 { return w.perPoll }},
			{name: "packets in a packet's poll", tolerance: packetsTolerance, of: func(w *row) float32 { return w.aPackets }},
		} {
			if q.want = q.value(t.regime, packetsPerRequest); q.want > 0 {
				t.quantities = append(t.quantities, q)
			}
		}
	}
	return out
}

// bunched is how many times the packets were in a packet's poll that are so in a
// simulation, in the median regime; NaN where polls were not counted by packets.
func (f *fitter) bunched(results []simulated) float64 {
	of := func(w *row) float32 { return w.aPackets }
	var ratios []float64
	for i, t := range f.targets {
		if ratio := t.middle(of) / results[i].middle(of); !math.IsNaN(ratio) {
			ratios = append(ratios, ratio)
		}
	}
	return stats.Median(ratios)
}

// search returns the parameters with the bursts that come closest, of some that
// are spread evenly in logarithms, from where the fit goes on. The costs are those
// of the start: a fit without bursts made up with them for their lack.
func (f *fitter) search(ctx context.Context) ([]float64, error) {
	prior := f.prior()
	var best []float64
	least := math.Inf(1)
	for _, requests := range []float64{3, 7, 16, 36, 80} {
		for _, perSecond := range []float64{20e3, 60e3, 180e3, 540e3} {
			c := f.candidate(prior)
			c.Bursts.Requests, c.Bursts.PerSecond = requests, perSecond
			x := make([]float64, len(prior))
			for i, p := range f.parameters {
				x[i] = p.value(&c)
			}
			at, err := f.residuals(ctx, x)
			if err != nil {
				return nil, err
			}
			if loss := f.loss(at, x, prior); loss < least {
				best, least = x, loss
			}
		}
	}
	return best, nil
}
