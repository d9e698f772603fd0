package bayes

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// refreshEvery is the number of observations between two factorisations. In
// between, the covariance is updated by rank one, which costs a twentieth.
const refreshEvery = 16

// Regression is the distribution of coefficients given a prior and the data
// observed, the older ones with less weight. It is not safe for concurrent use.
type Regression struct {
	prior  *Prior
	forget float64
	// data are kept by group, and since counts the observations of each that
	// its weights have not been brought up to date for.
	data  []*Evidence
	since []int
	total int

	covariance *mat.SymDense
	mean       *mat.VecDense

	gain      *mat.VecDense
	precision *mat.SymDense
	weighted  []float64
}

// NewRegression returns a regression without data. Observations belong to one
// of a number of groups; each multiplies the weight of those before it in its
// group by forget, between 0 (excluded) and 1: what is not looked at is not
// forgotten. The weights are brought up to date every 16 observations.
func NewRegression(prior *Prior, forget float64, groups int) *Regression {
	data := make([]*Evidence, groups)
	for i := range data {
		data[i] = NewEvidence(prior.Len())
	}
	return Resume(prior, forget, data)
}

// Resume returns a regression that goes on with the data of its groups, which
// it takes over.
func Resume(prior *Prior, forget float64, data []*Evidence) *Regression {
	n := prior.Len()
	r := &Regression{
		prior: prior, forget: forget, data: data, since: make([]int, len(data)),
		covariance: mat.NewSymDense(n, nil), mean: mat.NewVecDense(n, nil),
		gain: mat.NewVecDense(n, nil), precision: mat.NewSymDense(n, nil), weighted: make([]float64, n),
	}
	r.refresh()
	return r
}

// Data returns the data of each group with their weights; they must not be
// changed.
func (r *Regression) Data() []*Evidence { return r.data }

// Mean returns the mean of one coefficient.
func (r *Regression) Mean(i int) float64 { return r.mean.AtVec(i) }

// SetPrior exchanges the prior for one of as many coefficients, and keeps the
// data.
func (r *Regression) SetPrior(p *Prior) {
	r.prior = p
	r.refresh()
}

// Predict returns the mean of x times the coefficients, and the variance that
// not knowing them gives it.
func (r *Regression) Predict(x *Row) (mean, variance float64) {
	raw := r.covariance.RawSymmetric()
	index, value := x.index[:x.n], x.value[:x.n]
	for i, a := range index {
		line := raw.Data[a*raw.Stride : (a+1)*raw.Stride]
		sum := value[i] * line[a]
		for j := i + 1; j < len(index); j++ {
			sum += 2 * value[j] * line[index[j]]
		}
		variance += value[i] * sum
	}
	return x.dot(r.mean.RawVector().Data), math.Max(0, variance)
}

// Observe adds y, observed at x with that variance of its own, to a group. What
// is not finite, or has no positive variance, is passed over.
func (r *Regression) Observe(group int, x *Row, y, variance float64) {
	if !finite(y) || !finite(variance) || !(variance > 0) || !x.finite() {
		return
	}
	r.data[group].Add(x, y, variance)
	r.since[group]++
	r.total++
	if r.total >= refreshEvery {
		r.refresh()
		return
	}
	// Sherman-Morrison, which here is the update of a Kalman filter.
	gain := r.gain.RawVector().Data
	clear(gain)
	raw := r.covariance.RawSymmetric()
	for j := range x.n {
		// The upper triangle holds the column of the index down to the
		// diagonal, and the rest of it as a row.
		at, value := x.index[j], x.value[j]
		for i := range at {
			gain[i] += value * raw.Data[i*raw.Stride+at]
		}
		for i := at; i < len(gain); i++ {
			gain[i] += value * raw.Data[at*raw.Stride+i]
		}
	}
	total := variance + x.dot(gain)
	miss := y - x.dot(r.mean.RawVector().Data)
	r.mean.AddScaledVec(r.mean, miss/total, r.gain)
	r.covariance.SymRankOne(r.covariance, -1/total, r.gain)
}

// Keep multiplies the weight of a group's data by a share: what was learned
// counts for less, and the prior for more.
func (r *Regression) Keep(group int, share float64) {
	r.data[group].Scale(share)
	r.refresh()
}

// refresh brings the weights up to date and computes the distribution anew. The
// prior keeps the precision positive definite; where rounding still made it
// none, the data go.
func (r *Regression) refresh() {
	r.total = 0
	for g, n := range r.since {
		if n > 0 {
			r.data[g].Scale(math.Pow(r.forget, float64(n)))
			r.since[g] = 0
		}
	}
	if r.solve() {
		return
	}
	for g := range r.data {
		r.data[g] = NewEvidence(r.prior.Len())
	}
	r.solve()
}

// leastPivot is the least ratio of two pivots of the factorisation: with a
// smaller one the precision is no better than singular in double precision.
const leastPivot = 1e-8

// solve computes mean and covariance from the precision, and reports whether it
// could. It calls LAPACK itself: [mat.Cholesky] estimates a condition number
// besides, which takes as long as the rest.
func (r *Regression) solve() bool {
	r.precision.CopySym(r.prior.precision)
	weighted := r.weighted
	copy(weighted, r.prior.weighted)
	sum := Evidence{information: r.precision, weighted: weighted}
	for _, e := range r.data {
		sum.Plus(e, 1)
	}
	factor, ok := lapack64.Potrf(r.precision.RawSymmetric())
	if !ok || !regular(factor) {
		return false
	}
	mean := r.mean.RawVector().Data
	copy(mean, weighted)
	lapack64.Potrs(factor, blas64.General{Rows: len(mean), Cols: 1, Stride: 1, Data: mean})
	inverse := r.covariance.RawSymmetric()
	copy(inverse.Data, factor.Data)
	_, ok = lapack64.Potri(blas64.Triangular{
		Uplo: blas.Upper, Diag: blas.NonUnit, N: inverse.N, Data: inverse.Data, Stride: inverse.Stride,
	})
	return ok
}

// regular reports whether a factor can be solved with: all its pivots are finite
// and none is lost beside the greatest.
func regular(factor blas64.Triangular) bool {
	least, greatest := math.Inf(1), 0.0
	for i := range factor.N {
		pivot := factor.Data[i*factor.Stride+i]
		if !finite(pivot) {
			return false
		}
		least, greatest = min(least, pivot), max(greatest, pivot)
	}
	return least > leastPivot*greatest
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
