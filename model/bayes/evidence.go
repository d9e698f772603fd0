package bayes

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Evidence is what data say of coefficients, without any prior: the sums of
// x x'/v and x y/v over observations y of variance v.
type Evidence struct {
	information *mat.SymDense
	weighted    []float64
}

// NewEvidence returns the evidence of no data on n coefficients.
func NewEvidence(n int) *Evidence {
	return &Evidence{information: mat.NewSymDense(n, nil), weighted: make([]float64, n)}
}

// Len returns the number of coefficients.
func (e *Evidence) Len() int { return len(e.weighted) }

// Add adds one observation; variance must be positive.
func (e *Evidence) Add(x *Row, y, variance float64) {
	raw := e.information.RawSymmetric()
	for i := range x.n {
		a := x.index[i]
		w := x.value[i] / variance
		e.weighted[a] += w * y
		line := raw.Data[a*raw.Stride : (a+1)*raw.Stride]
		for j := i; j < x.n; j++ {
			line[x.index[j]] += w * x.value[j]
		}
	}
}

// Scale multiplies the weight of all data so far.
func (e *Evidence) Scale(factor float64) {
	e.information.ScaleSym(factor, e.information)
	for i := range e.weighted {
		e.weighted[i] *= factor
	}
}

// Plus adds the data of other, with a weight.
func (e *Evidence) Plus(other *Evidence, weight float64) {
	mine, theirs := e.information.RawSymmetric(), other.information.RawSymmetric()
	for i := range e.weighted {
		for j := i; j < len(e.weighted); j++ {
			mine.Data[i*mine.Stride+j] += weight * theirs.Data[i*theirs.Stride+j]
		}
		e.weighted[i] += weight * other.weighted[i]
	}
}

// Values returns the upper triangle of the information, row by row, and the
// weighted sums, for storage.
func (e *Evidence) Values() (information, weighted []float64) {
	for i := range e.weighted {
		for j := i; j < len(e.weighted); j++ {
			information = append(information, e.information.At(i, j))
		}
	}
	return information, append([]float64(nil), e.weighted...)
}

// EvidenceOf is the inverse of [Evidence.Values]; ok is false when the lengths
// do not belong together.
func EvidenceOf(information, weighted []float64) (e *Evidence, ok bool) {
	n := len(weighted)
	if n == 0 || len(information) != n*(n+1)/2 {
		return nil, false
	}
	e = NewEvidence(n)
	k := 0
	for i := range n {
		for j := i; j < n; j++ {
			e.information.SetSym(i, j, information[k])
			k++
		}
	}
	copy(e.weighted, weighted)
	return e, true
}

// Valid reports whether the evidence can be that of data: all of it finite, and
// the information positive semidefinite but for rounding.
func (e *Evidence) Valid() bool {
	n := e.Len()
	shifted := mat.NewSymDense(n, nil)
	for i := range n {
		if !finite(e.weighted[i]) || e.information.At(i, i) < 0 {
			return false
		}
		for j := i; j < n; j++ {
			a := e.information.At(i, j)
			if !finite(a) {
				return false
			}
			// In units of its own diagonal a matrix of data has no eigenvalue
			// below zero.
			scale := math.Sqrt(e.information.At(i, i) * e.information.At(j, j))
			switch {
			case i == j:
				a = 1 + 1e-6
			case scale > 0:
				a /= scale
			case a != 0:
				return false
			}
			shifted.SetSym(i, j, a)
		}
	}
	var chol mat.Cholesky
	return chol.Factorize(shifted)
}
