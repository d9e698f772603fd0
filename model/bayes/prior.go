package bayes

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// ErrNotPositive is returned where a precision or covariance is not positive
// definite.
var ErrNotPositive = errors.New("not positive definite")

// Prior is a normal distribution of coefficients. It does not change once it is
// made, so that regressions may share it.
type Prior struct {
	mean []float64
	// precision is the inverse of the covariance, and weighted its product
	// with the mean.
	precision *mat.SymDense
	weighted  []float64
}

// NewPrior returns independent coefficients of these means and standard
// deviations, which must be positive.
func NewPrior(mean, deviation []float64) (*Prior, error) {
	if len(mean) != len(deviation) || len(mean) == 0 {
		return nil, fmt.Errorf("prior of %d means and %d deviations", len(mean), len(deviation))
	}
	precision := mat.NewSymDense(len(mean), nil)
	for i, d := range deviation {
		if !(d > 0) || math.IsInf(d, 0) || math.IsNaN(mean[i]) || math.IsInf(mean[i], 0) {
			return nil, fmt.Errorf("prior of coefficient %d: mean %v, deviation %v: %w", i, mean[i], d, ErrNotPositive)
		}
		precision.SetSym(i, i, 1/(d*d))
	}
	return newPrior(append([]float64(nil), mean...), precision), nil
}

func newPrior(mean []float64, precision *mat.SymDense) *Prior {
	weighted := mat.NewVecDense(len(mean), nil)
	weighted.MulVec(precision, mat.NewVecDense(len(mean), mean))
	return &Prior{mean: mean, precision: precision, weighted: weighted.RawVector().Data}
}

// Len returns the number of coefficients.
func (p *Prior) Len() int { return len(p.mean) }

// Mean returns the means; the slice must not be changed.
func (p *Prior) Mean() []float64 { return p.mean }

// Widened returns the prior with independent deviations added to those of its
// coefficients: what is known of one thing, as far as it goes for another that
// differs from it by that much. Zero adds nothing.
func (p *Prior) Widened(deviation []float64) (*Prior, error) {
	if len(deviation) != p.Len() {
		return nil, fmt.Errorf("widen %d coefficients by %d deviations", p.Len(), len(deviation))
	}
	var chol mat.Cholesky
	if !chol.Factorize(p.precision) {
		return nil, fmt.Errorf("widen prior: %w", ErrNotPositive)
	}
	covariance := mat.NewSymDense(p.Len(), nil)
	if err := chol.InverseTo(covariance); err != nil {
		return nil, fmt.Errorf("widen prior: %w", err)
	}
	for i, d := range deviation {
		covariance.SetSym(i, i, covariance.At(i, i)+d*d)
	}
	if !chol.Factorize(covariance) {
		return nil, fmt.Errorf("widen prior: %w", ErrNotPositive)
	}
	precision := mat.NewSymDense(p.Len(), nil)
	if err := chol.InverseTo(precision); err != nil {
		return nil, fmt.Errorf("widen prior: %w", err)
	}
	return newPrior(append([]float64(nil), p.mean...), precision), nil
}

// Correlated returns the prior with a correlation, between -1 and 1 (excluded),
// of each pair of coefficients: what is learned of one is expected of the other.
// How well each is known by itself stays.
func (p *Prior) Correlated(correlation float64, pairs ...[2]int) (*Prior, error) {
	var chol mat.Cholesky
	if !chol.Factorize(p.precision) {
		return nil, fmt.Errorf("correlate prior: %w", ErrNotPositive)
	}
	covariance := mat.NewSymDense(p.Len(), nil)
	if err := chol.InverseTo(covariance); err != nil {
		return nil, fmt.Errorf("correlate prior: %w", err)
	}
	for _, pair := range pairs {
		a, b := pair[0], pair[1]
		covariance.SetSym(a, b, correlation*math.Sqrt(covariance.At(a, a)*covariance.At(b, b)))
	}
	if !chol.Factorize(covariance) {
		return nil, fmt.Errorf("correlation %v of %v: %w", correlation, pairs, ErrNotPositive)
	}
	precision := mat.NewSymDense(p.Len(), nil)
	if err := chol.InverseTo(precision); err != nil {
		return nil, fmt.Errorf("correlate prior: %w", err)
	}
	return newPrior(append([]float64(nil), p.mean...), precision), nil
}

// Updated returns the distribution after the data of an evidence, with its
// weight.
func (p *Prior) Updated(e *Evidence, weight float64) (*Prior, error) {
	n := p.Len()
	precision := mat.NewSymDense(n, nil)
	weighted := mat.NewVecDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			precision.SetSym(i, j, p.precision.At(i, j)+weight*e.information.At(i, j))
		}
		weighted.SetVec(i, p.weighted[i]+weight*e.weighted[i])
	}
	var chol mat.Cholesky
	if !chol.Factorize(precision) {
		return nil, fmt.Errorf("update prior: %w", ErrNotPositive)
	}
	mean := mat.NewVecDense(n, nil)
	if err := chol.SolveVecTo(mean, weighted); err != nil {
		return nil, fmt.Errorf("update prior: %w", err)
	}
	return newPrior(mean.RawVector().Data, precision), nil
}
