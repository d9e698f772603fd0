package gp_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"autotune/model/gp"
)

func kernel() gp.Matern52 { return gp.Matern52{Variance: 0.5, Lengths: []float64{1, 0.35}} }

func TestMatern52(t *testing.T) {
	k := gp.Matern52{Variance: 2, Lengths: []float64{1, 0.5}}
	// (1 + r + r^2/3) exp(-r) with r = sqrt(5) times the scaled distance.
	tests := []struct {
		name string
		x, y []float64
		want float64
	}{
		{"at the same place it is the variance", []float64{1, 2}, []float64{1, 2}, 2},
		{"a length away", []float64{0, 0}, []float64{1, 0}, 2 * 0.5239941088318203},
		{"a length away in the other dimension", []float64{0, 0.5}, []float64{0, 0}, 2 * 0.5239941088318203},
		{"far away there is none", []float64{0, 0}, []float64{100, 0}, 0},
	}
	for _, tc := range tests {
		if got := k.Cov(tc.x, tc.y); math.Abs(got-tc.want) > 1e-12 {
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

// direct predicts by the textbook, with a dense inverse.
func direct(t *testing.T, x [][]float64, y []float64, prior, noise float64, at []float64) (mean, variance float64) {
	t.Helper()
	k, n := kernel(), len(x)
	c := mat.NewDense(n, n, nil)
	ks, r := mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		for j := range n {
			c.Set(i, j, k.Cov(x[i], x[j]))
		}
		c.Set(i, i, c.At(i, i)+noise)
		ks.SetVec(i, k.Cov(at, x[i]))
		r.SetVec(i, y[i]-prior)
	}
	var inverse mat.Dense
	if err := inverse.Inverse(c); err != nil {
		t.Fatal(err)
	}
	return prior + mat.Inner(ks, &inverse, r), k.Cov(at, at) - mat.Inner(ks, &inverse, ks)
}

func TestProcessAgreesWithTheTextbook(t *testing.T) {
	const prior, noise = 0.3, 0.01
	x, y := points(40)
	p := gp.New(kernel(), prior, noise)
	at := [][]float64{{0.5, 0.5}, {2.9, 0.1}, {10, 10}}
	check := func(x [][]float64, y []float64) {
		t.Helper()
		got := p.Predict(at)
		for i, a := range at {
			mean, variance := prior, kernel().Variance
			if len(x) > 0 {
				mean, variance = direct(t, x, y, prior, noise, a)
			}
			if math.Abs(got.Mean[i]-mean) > 1e-8 || math.Abs(got.Variance[i]-variance) > 1e-8 {
				t.Errorf("%d points, at %v: %v and %v, want %v and %v", len(x), a, got.Mean[i], got.Variance[i], mean, variance)
			}
		}
	}
	check(nil, nil)
	for i := range x {
		if err := p.Add(x[i], y[i]); err != nil {
			t.Fatal(err)
		}
	}
	check(x, y)
	y[3] = 7
	p.Set(3, 7)
	check(x, y)
	if err := p.Keep([]int{5, 3, 8}); err != nil {
		t.Fatal(err)
	}
	check([][]float64{x[5], x[3], x[8]}, []float64{y[5], y[3], y[8]})
	if err := p.Keep(nil); err != nil {
		t.Fatal(err)
	}
	check(nil, nil)
}

func TestGivenIsWhatAddingWouldSay(t *testing.T) {
	x, y := points(12)
	p := gp.New(kernel(), 0, 0.02)
	for i := range x {
		if err := p.Add(x[i], y[i]); err != nil {
			t.Fatal(err)
		}
	}
	at := [][]float64{{1.5, 0.5}, {1.8, 0.5}}
	mean, variance := p.Predict(at).Given(0, -1, 1)
	if err := p.Add(at[0], -1); err != nil {
		t.Fatal(err)
	}
	want := p.Predict(at)
	if math.Abs(mean-want.Mean[1]) > 1e-9 || math.Abs(variance-want.Variance[1]) > 1e-9 {
		t.Errorf("%v and %v, added it is %v and %v", mean, variance, want.Mean[1], want.Variance[1])
	}
}

func TestAddRefusesWhatLeavesNoFactor(t *testing.T) {
	p := gp.New(kernel(), 0, 0.01)
	if err := p.Add([]float64{1, 1}, 1); err != nil {
		t.Fatal(err)
	}
	err := p.Add([]float64{math.NaN(), 1}, 1)
	if !errors.Is(err, gp.ErrSingular) || p.Len() != 1 {
		t.Errorf("a point at NaN: %v, and %d points", err, p.Len())
	}
}

func BenchmarkPredict(b *testing.B) {
	x, y := points(120)
	p := gp.New(kernel(), 0, 0.01)
	for i := range x {
		if err := p.Add(x[i], y[i]); err != nil {
			b.Fatal(err)
		}
	}
	at, _ := points(8)
	b.ReportAllocs()
	for b.Loop() {
		p.Predict(at)
	}
}
