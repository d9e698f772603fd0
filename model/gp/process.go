package gp

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// ErrSingular is returned for a point that adds nothing to those there are, so
// that the covariance matrix has no factor.
var ErrSingular = errors.New("covariance matrix is singular")

// Process is a Gaussian process with a constant prior mean, conditioned on
// observations with independent normal noise.
type Process struct {
	kernel Matern52
	mean   float64
	noise  float64

	points [][]float64
	values []float64
	factor mat.Cholesky
	lower  mat.TriDense
	// alpha is the inverse of the covariance matrix times the values less the
	// mean; stale tells that it has to be computed.
	alpha *mat.VecDense
	stale bool
}

// New returns a process without observations. Noise is the variance of an
// observation and must be positive.
func New(kernel Matern52, mean, noise float64) *Process {
	return &Process{kernel: kernel, mean: mean, noise: noise}
}

// Len returns the number of points.
func (p *Process) Len() int { return len(p.points) }

// Point returns the position of point i. It must not be changed.
func (p *Process) Point(i int) []float64 { return p.points[i] }

// Value returns what was observed at point i.
func (p *Process) Value(i int) float64 { return p.values[i] }

// Add conditions the process on the value y at x. It returns an error wrapping
// [ErrSingular], and changes nothing, where rounding leaves no factor.
func (p *Process) Add(x []float64, y float64) error {
	n := len(p.points)
	var next mat.Cholesky
	var ok bool
	if n == 0 {
		ok = next.Factorize(mat.NewSymDense(1, []float64{p.kernel.Cov(x, x) + p.noise}))
	} else {
		column := mat.NewVecDense(n+1, nil)
		for i, q := range p.points {
			column.SetVec(i, p.kernel.Cov(x, q))
		}
		column.SetVec(n, p.kernel.Cov(x, x)+p.noise)
		ok = next.ExtendVecSym(&p.factor, column)
	}
	if !ok || math.IsNaN(next.LogDet()) {
		return fmt.Errorf("add point %d at %v: %w", n, x, ErrSingular)
	}
	p.factor = next
	p.points = append(p.points, append([]float64(nil), x...))
	p.values = append(p.values, y)
	p.refresh()
	return nil
}

// Set changes the value at point i. The factor stays as it is.
func (p *Process) Set(i int, y float64) {
	p.values[i] = y
	p.stale = true
}

// Keep drops all points but those named, in that order, and factorises anew, in
// time cubic in their number.
func (p *Process) Keep(which []int) error {
	points, values := make([][]float64, len(which)), make([]float64, len(which))
	for i, w := range which {
		points[i], values[i] = p.points[w], p.values[w]
	}
	var next mat.Cholesky
	if n := len(points); n > 0 {
		k := mat.NewSymDense(n, nil)
		for i := range n {
			for j := i; j < n; j++ {
				k.SetSym(i, j, p.kernel.Cov(points[i], points[j]))
			}
			k.SetSym(i, i, k.At(i, i)+p.noise)
		}
		if !next.Factorize(k) || math.IsNaN(next.LogDet()) {
			return fmt.Errorf("keep %d points: %w", n, ErrSingular)
		}
	}
	p.factor, p.points, p.values = next, points, values
	p.refresh()
	return nil
}

func (p *Process) refresh() {
	p.stale = true
	p.lower = mat.TriDense{}
	if len(p.points) > 0 {
		p.factor.LTo(&p.lower)
	}
}

func (p *Process) solve() {
	if !p.stale || len(p.points) == 0 {
		return
	}
	p.stale = false
	y := mat.NewVecDense(len(p.values), nil)
	for i, v := range p.values {
		y.SetVec(i, v-p.mean)
	}
	p.alpha = mat.NewVecDense(len(p.values), nil)
	// The factor is positive definite by construction: what a bad condition
	// number costs is precision, not the solution.
	_ = p.factor.SolveVecTo(p.alpha, y)
}

// Prediction is what a process says of a set of positions.
type Prediction struct {
	// Mean and Variance are those of the function, without the noise of an
	// observation.
	Mean, Variance []float64
	process        *Process
	positions      [][]float64
	// roots are L^-1 k: their products are what is known of the covariances.
	roots [][]float64
}

// Predict returns the joint prediction for positions, in time quadratic in the
// number of points for each.
func (p *Process) Predict(positions [][]float64) *Prediction {
	p.solve()
	n := len(p.points)
	out := &Prediction{process: p, positions: positions}
	raw := p.lower.RawTriangular()
	for _, x := range positions {
		mean := p.mean
		root := make([]float64, n)
		known := 0.0
		for i := range n {
			k := p.kernel.Cov(x, p.points[i])
			mean += k * p.alpha.AtVec(i)
			row := raw.Data[i*raw.Stride : i*raw.Stride+i+1]
			for j, r := range root[:i] {
				k -= row[j] * r
			}
			root[i] = k / row[i]
			known += root[i] * root[i]
		}
		out.Mean = append(out.Mean, mean)
		out.Variance = append(out.Variance, math.Max(0, p.kernel.Cov(x, x)-known))
		out.roots = append(out.roots, root)
	}
	return out
}

// Given returns the mean and variance at position j, were y to be observed at
// position i.
func (d *Prediction) Given(i int, y float64, j int) (mean, variance float64) {
	cov := d.process.kernel.Cov(d.positions[i], d.positions[j])
	for k, r := range d.roots[i] {
		cov -= r * d.roots[j][k]
	}
	gain := cov / (d.Variance[i] + d.process.noise)
	return d.Mean[j] + gain*(y-d.Mean[i]), math.Max(0, d.Variance[j]-gain*cov)
}
