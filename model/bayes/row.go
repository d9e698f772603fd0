package bayes

// Row is one vector of regressors of which few are not zero. The zero value has
// none.
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
	r.index[r.n], r.value[r.n] = index, value
	r.n++
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
