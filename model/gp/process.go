package gp

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// ErrSingular is returned for a point that adds nothing to those there are, so
// that the correlation matrix has no factor.
var ErrSingular = errors.New("correlation matrix is singular")

// Output is what is assumed of one function before anything is known of it.
type Output struct {
	// Mean and Variance are those of its values.
	Mean, Variance float64
}

// Process is a Gaussian process of one function, or of several that are
// independent, but change over the same distances and are observed at the same
// points, with normal noise that is the same share of the variance. One factor
// serves them all.
type Process struct {
	kernel  Kernel
	noise   float64
	outputs []Output

	points [][]float64
	// values are by output, then by point.
	values [][]float64
	// lower is L, where L L' is the matrix of correlations and noise, packed row
	// by row. Solved is, by output, L^-1 times the values less the mean, right
	// up to the point stale.
	lower  []float64
	solved [][]float64
	stale  int
	// generation changes where points do that there were.
	generation int
}

// New returns a process without observations. Noise is the variance of an
// observation as a share of the function's, and must be positive.
func New(kernel Kernel, noise float64, outputs ...Output) *Process {
	n := len(outputs)
	return &Process{kernel: kernel, noise: noise, outputs: outputs, values: make([][]float64, n), solved: make([][]float64, n)}
}

// Len returns the number of points.
func (p *Process) Len() int { return len(p.points) }

// Value returns what was observed of an output at point i.
func (p *Process) Value(output, i int) float64 { return p.values[output][i] }

// row returns L's row i up to the diagonal.
func (p *Process) row(i int) []float64 { return p.lower[i*(i+1)/2 : (i+1)*(i+2)/2] }

// Add conditions the process on one value for each output at x. It returns an
// error wrapping [ErrSingular], and changes nothing, where rounding leaves no
// factor.
func (p *Process) Add(x []float64, values ...float64) error {
	n := len(p.points)
	from := len(p.lower)
	for _, q := range p.points {
		p.lower = append(p.lower, p.kernel.Correlation(x, q))
	}
	row := p.lower[from:]
	if n > 0 {
		blas64.Tpsv(blas.NoTrans, blas64.TriangularPacked{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Data: p.lower[:from]},
			blas64.Vector{N: n, Data: row, Inc: 1})
	}
	pivot := 1 + p.noise - floats.Dot(row, row)
	// The comparison is false for what is no number too.
	if !(pivot > 0) {
		p.lower = p.lower[:from]
		return fmt.Errorf("add point %d at %v: %w", n, x, ErrSingular)
	}
	p.lower = append(p.lower, math.Sqrt(pivot))
	p.points = append(p.points, append([]float64(nil), x...))
	for o := range p.outputs {
		p.values[o] = append(p.values[o], values[o])
		p.solved[o] = append(p.solved[o], 0)
	}
	return nil
}

// Set changes the values at point i. The factor stays as it is.
func (p *Process) Set(i int, values ...float64) {
	for o, v := range values {
		p.values[o][i] = v
	}
	p.stale = min(p.stale, i)
}

// Keep drops all points but those named, in that order, and factorises anew, in
// time cubic in their number. Upon an error all are dropped.
func (p *Process) Keep(which []int) error {
	points, values := p.points, p.values
	p.clear()
	point := make([]float64, len(p.outputs))
	for _, i := range which {
		for o := range values {
			point[o] = values[o][i]
		}
		if err := p.Add(points[i], point...); err != nil {
			p.clear()
			return fmt.Errorf("keep %d points: %w", len(which), err)
		}
	}
	return nil
}

func (p *Process) clear() {
	p.generation++
	p.points, p.lower, p.stale = nil, p.lower[:0], 0
	p.values = make([][]float64, len(p.outputs))
	for o := range p.solved {
		p.solved[o] = p.solved[o][:0]
	}
}

// solve brings solved up to date.
func (p *Process) solve() {
	for i := p.stale; i < len(p.points); i++ {
		row := p.row(i)
		for o, s := range p.solved {
			s[i] = (p.values[o][i] - p.outputs[o].Mean - floats.Dot(row[:i], s[:i])) / row[i]
		}
	}
	p.stale = len(p.points)
}

// Position is a place at which the process is asked for predictions. It keeps
// what does not depend on the observed values.
type Position struct {
	process    *Process
	x          []float64
	generation int
	// root is L^-1 k, where k are the correlations with the points: products of
	// roots are what is known of the correlations. Known is root times itself.
	root  []float64
	known float64
}

// At returns a position, which stays valid whatever is added, set or dropped.
func (p *Process) At(x []float64) *Position {
	return &Position{process: p, x: append([]float64(nil), x...), generation: p.generation}
}

// Move makes it a position at another place.
func (s *Position) Move(x []float64) {
	copy(s.x, x)
	s.root, s.known = s.root[:0], 0
}

func (s *Position) follow() {
	p := s.process
	p.solve()
	if s.generation != p.generation {
		s.generation, s.root, s.known = p.generation, s.root[:0], 0
	}
	for i := len(s.root); i < len(p.points); i++ {
		row := p.row(i)
		r := (p.kernel.Correlation(s.x, p.points[i]) - floats.Dot(row[:i], s.root)) / row[i]
		s.root = append(s.root, r)
		s.known += r * r
	}
}

// Predict returns mean and variance of an output, without the noise of an
// observation.
func (s *Position) Predict(output int) (mean, variance float64) {
	s.follow()
	p := s.process
	o := p.outputs[output]
	return o.Mean + floats.Dot(s.root, p.solved[output]), math.Max(0, o.Variance*(1-s.known))
}

// Given returns mean and variance of an output, were y to be observed of it at
// another position of the same process.
func (s *Position) Given(other *Position, output int, y float64) (mean, variance float64) {
	there, wide := other.Predict(output)
	mean, variance = s.Predict(output)
	p := s.process
	scale := p.outputs[output].Variance
	covariance := scale * (p.kernel.Correlation(s.x, other.x) - floats.Dot(s.root, other.root))
	gain := covariance / (wide + scale*p.noise)
	return mean + gain*(y-there), math.Max(0, variance-gain*covariance)
}
