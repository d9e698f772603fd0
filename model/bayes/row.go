package bayes

// Row is one vector of regressors of which few are not zero. The zero value has
// none. Indices are in order, so that products with the upper triangle of a matrix
// need not look for it.
type Row struct {
	index [maxRow]int
	value [maxRow]float64
	n     int
}

// maxRow is the number of regressors of a row that are not zero.
const maxRow = 8

// Set adds a regressor that is not set yet. A row takes eight; one more
// panics, as writing beyond an array does.
func (r *Row) Set(index int, value float64) {
	at := r.n
	for r.n++; at > 0 && r.index[at-1] > index; at-- {
		r.index[at], r.value[at] = r.index[at-1], r.value[at-1]
	}
	r.index[at], r.value[at] = index, value
}

// dot returns the product with a dense vector.
func (r *Row) dot(v []float64) float64 {
	sum := 0.0
	for i := range r.n {
		sum += r.value[i] * v[r.index[i]]
	}
	return sum
}

func (r *Row) finite() bool {
	for i := range r.n {
		if !finite(r.value[i]) {
			return false
		}
	}
	return true
}
