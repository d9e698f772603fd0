package compare

import "math"

const (
	// restWindows is how long the load must have been even for a window to
	// count as at rest, and restLoad how even: within that share of its mean,
	// beyond the noise of counting.
	restWindows = 60
	restLoad    = 0.05
)

// atRest returns for each window whether the load was even in it and in the
// restWindows before it.
func atRest(windows []Window) []bool {
	out := make([]bool, len(windows))
	for i := restWindows; i < len(windows); i++ {
		sum := 0.0
		for _, w := range windows[i-restWindows : i+1] {
			sum += float64(w.Due)
		}
		mean := sum / (restWindows + 1)
		noise := 3 * math.Sqrt(mean)
		out[i] = mean > 0
		for _, w := range windows[i-restWindows : i+1] {
			out[i] = out[i] && math.Abs(float64(w.Due)-mean) <= restLoad*mean+noise
		}
	}
	return out
}

// rest counts what was changed while the load gave no reason to.
func (m *Metrics) rest(windows []Window, queues int) {
	changes := 0
	for i, at := range atRest(windows) {
		if at {
			m.RestWindows++
			changes += windows[i].Changes
		}
	}
	m.RestChanges = ratio(restWindows*float64(changes)/float64(queues), float64(m.RestWindows))
}
