package counterfactual

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model"
	"autotune/model/sim"
)

// Fitted is a simulated host and what is left uncertain of it: a normal
// distribution of the logarithms of its costs (Laplace's approximation).
type Fitted struct {
	best       Candidate
	parameters []parameter
	mean       []float64
	factor     *mat.TriDense // lower Cholesky factor of the covariance
	deviation  []float64
	// loss is what the fit cost.
	loss float64
	// Regimes compares what was fitted with what was measured.
	Regimes []Regime
}

// Candidate is a simulated host and how requests come to it.
type Candidate struct {
	Preset *sim.Preset
	// Bursts is how they come in windows without single events.
	Bursts Bursts
}

// copied returns a copy that shares nothing with c.
func (c Candidate) copied() Candidate {
	p := *c.Preset
	return Candidate{Preset: &p, Bursts: c.Bursts}
}

// Regime is one setting at one load of the recording, and how the fitted host
// compares. Values that were not observed are NaN.
type Regime struct {
	Settings          model.Settings
	RequestsPerSecond float64
	Windows           int
	Measured          []Quantity
}

// Quantity is one measured value of a regime, and the fitted host's.
type Quantity struct {
	Name             string
	Measured, Fitted float64
}

// Told is a parameter and how much the recording told of it.
type Told struct {
	Name  string
	Value time.Duration
	// Factor is the factor within which the parameter is with probability 2/3,
	// and Before the same before the recording was looked at.
	Factor, Before float64
}

// Assumed reports that the recording told next to nothing: the parameter is the
// preset's.
func (t Told) Assumed() bool { return math.Log(t.Factor) > 0.8*math.Log(t.Before) }

// Told lists the costs.
func (f *Fitted) Told() []Told {
	out := make([]Told, 0, len(f.parameters))
	for i, p := range f.parameters {
		if p.of == nil {
			continue
		}
		out = append(out, Told{
			Name: p.name, Value: *p.of(f.best.Preset),
			Factor: math.Exp(f.deviation[i]), Before: math.Exp(p.spread),
		})
	}
	return out
}

// ToldBursts is how requests come where single events do not tell; at random where
// nothing speaks for bursts.
type ToldBursts struct {
	Bursts
	// Factors are those within which each value is with probability 2/3.
	Factors Bursts
}

// Bursts returns how requests come, most likely.
func (f *Fitted) Bursts() ToldBursts {
	out := ToldBursts{Bursts: f.best.Bursts}
	for i, p := range f.parameters {
		if p.bursts != nil {
			*p.bursts(&out.Factors) = math.Exp(f.deviation[i])
		}
	}
	return out
}

// Best returns the most likely host.
func (f *Fitted) Best() *sim.Preset { return f.best.Preset }

// Draws returns n hosts from the distribution, the first of which is the most
// likely one.
func (f *Fitted) Draws(n int, seed uint64) []Candidate {
	r := rand.New(rand.NewPCG(seed, 0x0bac))
	out := make([]Candidate, n)
	for k := range out {
		out[k] = f.best.copied()
		if k == 0 {
			continue
		}
		z := make([]float64, len(f.mean))
		for i := range z {
			z[i] = r.NormFloat64()
		}
		for i, parameter := range f.parameters {
			v := f.mean[i]
			for j := range i + 1 {
				v += f.factor.At(i, j) * z[j]
			}
			parameter.set(&out[k], v)
		}
	}
	return out
}
