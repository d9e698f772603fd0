package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model"
)

// host answers as a queue would whose cost falls and delay rises with the flush
// timeout, at a load that wanders.
type host struct {
	random *rand.Rand
	active model.Settings
	rate   float64
}

func newHost() *host { return &host{random: rand.New(rand.NewPCG(3, 5)), rate: 150_000} }

func (h *host) show() model.Features {
	before := h.rate
	h.rate = max(20_000, min(h.rate*math.Exp(0.2*h.random.NormFloat64()), 300_000))
	g := max(5*time.Microsecond, current(h.active))
	noise := func(s float64) float64 { return math.Exp(s * h.random.NormFloat64()) }
	return model.Features{
		Queue: model.Queue{Netns: 1, Ifindex: 2}, Active: h.active, PacketRate: h.rate, RateChange: h.rate/before - 1, Utilisation: 0.5,
		CostPerPacket: time.Duration(noise(0.03) * (3000 + 3e12/(h.rate*float64(g+20*time.Microsecond)/1e3))),
		Quantile:      time.Duration(noise(0.05) * float64(40*time.Microsecond+g)),
		Objective:     model.Objective{SLO: 150 * time.Microsecond, Quantile: 0.99},
	}
}

// precision returns the model's precision matrix.
func (m *banditModel) precision() *mat.SymDense {
	out := mat.NewSymDense(banditSize, nil)
	for i := range banditBand {
		for k := range min(banditStride, banditBand-i) {
			out.SetSym(i, i+k, m.band[i*banditStride+k])
		}
		out.SetSym(i, banditBand, m.border[i])
	}
	out.SetSym(banditBand, banditBand, m.corner)
	return out
}

// TestTheBanditModelAgreesWithTheTextbook learns from many windows and compares
// predictions with those of a dense matrix.
func TestTheBanditModelAgreesWithTheTextbook(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := newBanditModel()
	product := mat.NewVecDense(banditSize, nil)
	full := func(x banditFeatures) *mat.VecDense {
		out := mat.NewVecDense(banditSize, nil)
		for i := range x.n {
			out.SetVec(x.from+i, x.values[i])
		}
		out.SetVec(banditBand, x.square)
		return out
	}
	choose := func() banditFeatures {
		flush := time.Duration(random.IntN(300)) * time.Microsecond
		if random.IntN(5) == 0 {
			flush = 0
		}
		return featuresAt(flush, 2*random.Float64()-1)
	}
	for n := range 400 {
		if n%40 == 0 {
			var dense mat.Cholesky
			if !dense.Factorize(m.precision()) {
				t.Fatal("no factor")
			}
			var mean, solved mat.VecDense
			if err := dense.SolveVecTo(&mean, product); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				x := choose()
				if err := dense.SolveVecTo(&solved, full(x)); err != nil {
					t.Fatal(err)
				}
				var root banditRoot
				got, deviation := m.predict(x, &root)
				want, wantDeviation := mat.Dot(full(x), &mean), math.Sqrt(mat.Dot(full(x), &solved))
				if math.Abs(got-want) > 1e-9 || math.Abs(deviation-wantDeviation) > 1e-9 {
					t.Fatalf("after %d windows: %v +- %v, want %v +- %v", n, got, deviation, want, wantDeviation)
				}
			}
		}
		x, reward := choose(), random.NormFloat64()
		m.learn(x, reward)
		product.ScaleVec(banditForget, product)
		product.AddScaledVec(product, reward/(banditNoise*banditNoise), full(x))
	}
}

func TestBanditsKeepTheirSizeAndStayDefinite(t *testing.T) {
	for _, make := range []func() model.Policy{
		func() model.Policy { return NewLinUCB(DefaultLinUCBOptions()) },
		func() model.Policy { o := DefaultThompsonOptions(); o.Draws = 4; return NewThompson(o) },
	} {
		p := make()
		t.Run(p.Name(), func(t *testing.T) {
			h := newHost()
			over, windows := 0, 6_000
			for i := range windows {
				f := h.show()
				if i > windows/2 && broken(f) {
					over++
				}
				d := p.Decide(f)
				if !(d.Propensity > 0) || d.Propensity > 1 {
					t.Fatalf("window %d: propensity %v: %s", i, d.Propensity, d.Why)
				}
				h.active = d.Settings
			}
			var b *bandit
			switch p := p.(type) {
			case *LinUCB:
				b = &p.bandit
			case *Thompson:
				b = &p.bandit
			}
			if len(b.queues) != 1 {
				t.Fatalf("%d models for one queue in one mode", len(b.queues))
			}
			for _, q := range b.queues {
				var eigen mat.EigenSym
				if !eigen.Factorize(q.model.precision(), false) {
					t.Fatal("no eigenvalues")
				}
				values := eigen.Values(nil)
				// What has been forgotten is the prior again; no more than the
				// windows that are remembered is known.
				most := float64(banditSize)*10/(banditNoise*banditNoise*(1-banditForget)) + banditPrior
				if low, high := values[0], values[len(values)-1]; low < 0.9*banditPrior || high > most {
					t.Errorf("eigenvalues from %v to %v, want %v to %v", low, high, banditPrior, most)
				}
			}
			if share := float64(over) / float64(windows/2); share > 0.08 {
				t.Errorf("%.1f%% of the later windows are above the SLO", 100*share)
			}
		})
	}
}

func TestLinUCBLogsTheProbabilityOfItsDraws(t *testing.T) {
	o := DefaultLinUCBOptions()
	o.Epsilon = 0.5
	p := NewLinUCB(o)
	h := newHost()
	h.active = deferral(50 * time.Microsecond)
	// With the active setting fixed, the same choices can be reached always.
	expected, got := map[time.Duration]float64{}, map[time.Duration]int{}
	windows := 4000
	for range windows {
		f := h.show()
		d := p.Decide(f)
		got[current(d.Settings)]++
		can := reachable(p.choices, f)
		low := o.Epsilon / float64(len(can))
		if math.Abs(d.Propensity-low) > 1e-12 && math.Abs(d.Propensity-low-(1-o.Epsilon)) > 1e-12 {
			t.Fatalf("propensity %v of %d choices: %s", d.Propensity, len(can), d.Why)
		}
		// The inverse of the propensity is an unbiased count of windows.
		expected[current(d.Settings)] += 1 / d.Propensity
	}
	for flush, n := range expected {
		// A choice drawn about 300 times or more: five standard deviations.
		if got[flush] > 100 && math.Abs(n/float64(windows)-1) > 5*math.Sqrt(12/float64(windows))*2 {
			t.Errorf("flush %v: weighted by its propensity it was drawn %.0f times in %d windows", flush, n, windows)
		}
	}
}

func TestThompsonEstimatesItsPropensity(t *testing.T) {
	// Two policies with the same history differ in the draw alone.
	o := DefaultThompsonOptions()
	o.Draws = 2000
	h := newHost()
	h.active = deferral(50 * time.Microsecond)
	var windows []model.Features
	for range 6 {
		windows = append(windows, h.show())
	}
	drawn, estimated := map[time.Duration]float64{}, map[time.Duration]float64{}
	const seeds = 300
	for seed := range uint64(seeds) {
		o.Seed = seed
		if seed > 0 {
			o.Draws = 20
		}
		p := NewThompson(o)
		var d model.Decision
		for _, f := range windows {
			d = p.Decide(f)
		}
		drawn[current(d.Settings)] += 1. / seeds
		if seed == 0 {
			estimated[current(d.Settings)] = d.Propensity
		}
	}
	for flush, p := range estimated {
		if tolerance := 5*math.Sqrt(p*(1-p)/seeds) + 0.01; math.Abs(drawn[flush]-p) > tolerance {
			t.Errorf("flush %v was drawn in %.3f of %d policies, its propensity is %.3f", flush, drawn[flush], seeds, p)
		}
	}
}

func TestReachable(t *testing.T) {
	c := choices(gridMost)
	at := func(i int) model.Settings { return deferral(c[i]) }
	suspended := func(i int) model.Settings {
		s := at(i)
		s.IRQSuspendTimeout = suspendMost
		return s
	}
	entry := 0
	for c[entry+1] <= 50*time.Microsecond {
		entry++
	}
	tests := []struct {
		name        string
		active      model.Settings
		utilisation float64
		broken      bool
		low, high   int
		interrupts  bool
	}{
		{"two steps either way, and interrupts", at(11), 0.5, false, 9, 13, true},
		{"from interrupts, up to 50 us", model.Settings{}, 0.5, false, 1, entry, true},
		{"any lower where the SLO is broken", at(11), 0.5, true, 1, 13, true},
		{"none lower where timers are the load", at(11), 0.9, true, 11, 13, false},
		{"in suspension they are not", suspended(11), 0.9, true, 1, 13, true},
		{"no further than the end", at(len(c) - 1), 0.5, false, len(c) - 3, len(c) - 1, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := model.Features{Active: tc.active, Utilisation: tc.utilisation, Objective: model.Objective{SLO: time.Millisecond}}
			if tc.broken {
				f.Quantile = 2 * time.Millisecond
			}
			got := reachable(c, f)
			if interrupts := got[0] == 0; interrupts != tc.interrupts {
				t.Errorf("interrupts can be reached: %v", interrupts)
			}
			if got[0] == 0 {
				got = got[1:]
			}
			if got[0] != tc.low || got[len(got)-1] != tc.high {
				t.Errorf("positions %v, want %d to %d", got, tc.low, tc.high)
			}
		})
	}
}
