package gp_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"autotune/model/gp"
)

func kernel() gp.Matern52 { return gp.Matern52{1, 0.35} }

// outputs are two functions; the second is not what the first is.
func outputs() []gp.Output {
	return []gp.Output{{Mean: 0.3, Variance: 0.5}, {Mean: -1, Variance: 2}}
}

func TestMatern52(t *testing.T) {
	k := gp.Matern52{1, 0.5}
	// (1 + r + r^2/3) exp(-r) with r = sqrt(5) times the scaled distance.
	tests := []struct {
		name string
		x, y []float64
		want float64
	}{
		{"at the same place it is one", []float64{1, 2}, []float64{1, 2}, 1},
		{"a length away", []float64{0, 0}, []float64{1, 0}, 0.5239941088318203},
		{"a length away in the other dimension", []float64{0, 0.5}, []float64{0, 0}, 0.5239941088318203},
		{"far away there is none", []float64{0, 0}, []float64{100, 0}, 0},
	}
	for _, tc := range tests {
		if got := k.Correlation(tc.x, tc.y); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// points draws n observations of a smooth function.
func points(n int) (x [][]float64, y []float64) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		p := []float64{3 * r.Float64(), r.Float64()}
		x = append(x, p)
		y = append(y, math.Sin(p[0])+p[1]+0.05*r.NormFloat64())
	}
	return x, y
}

// direct predicts by the textbook, with a dense inverse. Noise is a share of the
// output's variance.
func direct(t *testing.T, x [][]float64, y []float64, o gp.Output, noise float64, at []float64) (mean, variance float64) {
	t.Helper()
	k, n := kernel(), len(x)
	cov := func(a, b []float64) float64 { return o.Variance * k.Correlation(a, b) }
	if n == 0 {
		return o.Mean, o.Variance
	}
	c := mat.NewDense(n, n, nil)
	ks, r := mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		for j := range n {
			c.Set(i, j, cov(x[i], x[j]))
		}
		c.Set(i, i, c.At(i, i)+noise*o.Variance)
		ks.SetVec(i, cov(at, x[i]))
		r.SetVec(i, y[i]-o.Mean)
	}
	var inverse mat.Dense
	if err := inverse.Inverse(c); err != nil {
		t.Fatal(err)
	}
	return o.Mean + mat.Inner(ks, &inverse, r), cov(at, at) - mat.Inner(ks, &inverse, ks)
}

func TestProcessAgreesWithTheTextbook(t *testing.T) {
	const noise = 0.02
	x, y := points(40)
	both := [][]float64{y, make([]float64, len(y))}
	for i := range y {
		both[1][i] = 2 - y[i]*y[i]
	}
	p := gp.New(kernel(), noise, outputs()...)
	var at []*gp.Position
	places := [][]float64{{0.5, 0.5}, {2.9, 0.1}, {10, 10}}
	for _, place := range places {
		at = append(at, p.At(place))
	}
	check := func(which []int) {
		t.Helper()
		if p.Len() != len(which) {
			t.Fatalf("%d points, want %d", p.Len(), len(which))
		}
		for o, output := range outputs() {
			var xs [][]float64
			var ys []float64
			for _, i := range which {
				xs, ys = append(xs, x[i]), append(ys, both[o][i])
			}
			for i, place := range places {
				want, wantVariance := direct(t, xs, ys, output, noise, place)
				moved := p.At([]float64{1, 1})
				moved.Predict(o)
				moved.Move(place)
				for _, s := range []*gp.Position{at[i], p.At(place), moved} {
					if mean, variance := s.Predict(o); math.Abs(mean-want) > 1e-8 || math.Abs(variance-wantVariance) > 1e-8 {
						t.Errorf("%d points, output %d, at %v: %v and %v, want %v and %v", len(which), o, place, mean, variance, want, wantVariance)
					}
				}
			}
		}
	}
	check(nil)
	var all []int
	for i := range x {
		if err := p.Add(x[i], both[0][i], both[1][i]); err != nil {
			t.Fatal(err)
		}
		if all = append(all, i); i%7 == 0 {
			check(all)
		}
	}
	check(all)
	both[0][3], both[1][3] = 7, -7
	p.Set(3, 7, -7)
	if p.Value(0, 3) != 7 || p.Value(1, 3) != -7 {
		t.Errorf("set to %v and %v", p.Value(0, 3), p.Value(1, 3))
	}
	check(all)
	if err := p.Keep([]int{5, 3, 8}); err != nil {
		t.Fatal(err)
	}
	check([]int{5, 3, 8})
	if err := p.Add(x[9], both[0][9], both[1][9]); err != nil {
		t.Fatal(err)
	}
	check([]int{5, 3, 8, 9})
	if err := p.Keep(nil); err != nil {
		t.Fatal(err)
	}
	check(nil)
}

func TestGivenIsWhatAddingWouldSay(t *testing.T) {
	x, y := points(12)
	p := gp.New(kernel(), 0.02, outputs()...)
	for i := range x {
		if err := p.Add(x[i], y[i], -y[i]); err != nil {
			t.Fatal(err)
		}
	}
	a, b := p.At([]float64{1.5, 0.5}), p.At([]float64{1.8, 0.5})
	mean, variance := b.Given(a, 0, -1)
	if err := p.Add([]float64{1.5, 0.5}, -1, 0); err != nil {
		t.Fatal(err)
	}
	if want, wide := b.Predict(0); math.Abs(mean-want) > 1e-9 || math.Abs(variance-wide) > 1e-9 {
		t.Errorf("%v and %v, added it is %v and %v", mean, variance, want, wide)
	}
}

func TestAddRefusesWhatLeavesNoFactor(t *testing.T) {
	p := gp.New(kernel(), 0.01, outputs()...)
	if err := p.Add([]float64{1, 1}, 1, 2); err != nil {
		t.Fatal(err)
	}
	at := p.At([]float64{1, 1})
	want, _ := at.Predict(1)
	err := p.Add([]float64{math.NaN(), 1}, 1, 1)
	if !errors.Is(err, gp.ErrSingular) || p.Len() != 1 {
		t.Errorf("a point at NaN: %v, and %d points", err, p.Len())
	}
	if got, _ := at.Predict(1); got != want {
		t.Errorf("a refused point changed %v to %v", want, got)
	}
}

// BenchmarkPredict predicts at eight positions, new ones and such that are kept.
func BenchmarkPredict(b *testing.B) {
	x, y := points(120)
	p := gp.New(kernel(), 0.02, outputs()...)
	for i := range x {
		if err := p.Add(x[i], y[i], y[i]); err != nil {
			b.Fatal(err)
		}
	}
	at, _ := points(8)
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, x := range at {
				p.At(x).Predict(0)
			}
		}
	})
	b.Run("kept", func(b *testing.B) {
		var kept []*gp.Position
		for _, x := range at {
			kept = append(kept, p.At(x))
		}
		b.ReportAllocs()
		for b.Loop() {
			p.Set(0, y[0], y[0])
			for _, s := range kept {
				s.Predict(0)
			}
		}
	})
}
