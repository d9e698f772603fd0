package policy

import (
	"math"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
)

const (
	// banditBand is the number of features of timeout: each knot and plain
	// interrupts, alone and times load, side by side. A timeout touches two
	// neighbouring knots, so that the precision of these weights is a band of
	// banditWidth off-diagonals.
	banditBand  = 2 * (banditKnots + 1)
	banditWidth = 3
	// banditSize counts the square of load too, which goes with all of them.
	banditSize = banditBand + 1
	// banditPrior is the precision of a weight before anything is known.
	banditPrior = 1 / (banditWeight * banditWeight)
	// banditStride is the length of a row of the band.
	banditStride = banditWidth + 1
)

// banditFeatures are the features of a timeout at a load: four neighbours at
// most, from a position on, and the square of load.
type banditFeatures struct {
	from, n int
	values  [banditStride]float64
	square  float64
}

// featuresAt returns the features of a flush timeout, zero for plain interrupts,
// at a load relative to the first, in logarithm.
func featuresAt(flush time.Duration, load float64) banditFeatures {
	if flush <= 0 {
		return banditFeatures{from: 2 * banditKnots, n: 2, values: [banditStride]float64{1, load}, square: load * load}
	}
	at := max(0, min(2*math.Log2(float64(flush)/float64(gridStart)), banditKnots-1))
	low := min(int(at), banditKnots-2)
	share := at - float64(low)
	return banditFeatures{
		from: 2 * low, n: banditStride, square: load * load,
		values: [banditStride]float64{1 - share, (1 - share) * load, share, share * load},
	}
}

// banditRoot is L^-1 x of some features x, where the precision is L L': the
// products of roots are the covariances of what is predicted.
type banditRoot [banditSize]float64

// banditModel is a Bayesian linear regression of the reward that forgets towards
// its prior. The precision matrix is
//
//	A = [ B   c ]
//	    [ c'  d ]
//
// with a band matrix B for the features of timeout, and c and d for the square of
// load. Its factor has the same form, so that learning and predicting take time
// in proportion to the number of features, and not to its third and second power.
type banditModel struct {
	band   [banditBand * banditStride]float64 // B, upper, by row
	border [banditBand]float64                // c
	corner float64                            // d
	// product is A times the mean weights.
	product banditRoot

	// factor is the upper factor of B; edge and tip are the last row of L, and
	// weights L^-1 product.
	factor  [banditBand * banditStride]float64
	edge    [banditBand]float64
	tip     float64
	weights banditRoot
}

func newBanditModel() *banditModel {
	m := &banditModel{corner: banditPrior}
	for i := range banditBand {
		m.band[i*banditStride] = banditPrior
	}
	m.refactor()
	return m
}

// learn takes the reward that was seen with some features.
func (m *banditModel) learn(x banditFeatures, reward float64) {
	const weight = 1 / (banditNoise * banditNoise)
	for i := range m.band {
		m.band[i] *= banditForget
	}
	for i := range banditBand {
		m.band[i*banditStride] += (1 - banditForget) * banditPrior
		m.border[i] *= banditForget
		m.product[i] *= banditForget
	}
	for i := range x.n {
		xi := weight * x.values[i]
		row := m.band[(x.from+i)*banditStride:]
		for j := i; j < x.n; j++ {
			row[j-i] += xi * x.values[j]
		}
		m.border[x.from+i] += xi * x.square
		m.product[x.from+i] += xi * reward
	}
	m.corner = banditForget*m.corner + (1-banditForget)*banditPrior + weight*x.square*x.square
	m.product[banditBand] = banditForget*m.product[banditBand] + weight*x.square*reward
	m.refactor()
}

// refactor computes the factor. What is forgotten is replaced by the prior, so
// that the matrix stays positive definite: its smallest eigenvalue is at least
// the prior's.
func (m *banditModel) refactor() {
	factor, edge, tip := m.factor, m.edge, m.tip
	m.factor, m.edge = m.band, m.border
	_, ok := lapack64.Pbtrf(blas64.SymmetricBand{Uplo: blas.Upper, N: banditBand, K: banditWidth, Data: m.factor[:], Stride: banditStride})
	if ok {
		m.solve(m.edge[:], 0)
		m.tip = math.Sqrt(m.corner - floats.Dot(m.edge[:], m.edge[:]))
	}
	// Rounding is no reason to predict nonsense: what was known stays.
	if !ok || !(m.tip > 0) {
		m.factor, m.edge, m.tip = factor, edge, tip
		return
	}
	m.weights = m.product
	m.solve(m.weights[:banditBand], 0)
	m.close(&m.weights, 0)
}

// solve replaces the elements from a position on of a vector, before which it is
// zero, by those of the factor's transposed inverse times it.
func (m *banditModel) solve(x []float64, from int) {
	blas64.Tbsv(blas.Trans, blas64.TriangularBand{
		Uplo: blas.Upper, Diag: blas.NonUnit, N: banditBand - from, K: min(banditWidth, banditBand-from-1),
		Data: m.factor[from*banditStride:], Stride: banditStride,
	}, blas64.Vector{N: banditBand - from, Data: x[from:], Inc: 1})
}

// close solves for the last element of a root of which the others are solved.
func (m *banditModel) close(root *banditRoot, from int) {
	root[banditBand] = (root[banditBand] - floats.Dot(m.edge[from:], root[from:banditBand])) / m.tip
}

// predict returns mean and standard deviation of the reward, and fills root.
func (m *banditModel) predict(x banditFeatures, root *banditRoot) (mean, deviation float64) {
	*root = banditRoot{}
	copy(root[x.from:], x.values[:x.n])
	root[banditBand] = x.square
	m.solve(root[:banditBand], x.from)
	m.close(root, x.from)
	return floats.Dot(root[x.from:], m.weights[x.from:]), math.Sqrt(floats.Dot(root[x.from:], root[x.from:]))
}
