//go:build linux

package workload

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Every latency histogram has this geometry: two significant digits (a value
// is at most 1% off) from 64 ns to 60 s, which takes everything longer.
const (
	lowestLatency  = 64
	highestLatency = int64(60 * time.Second)
	latencyDigits  = 2
)

// Latency is a histogram of latencies. Histograms of several intervals merge
// into one, whose quantiles are exact to the histogram's resolution; quantiles
// themselves must not be averaged.
type Latency struct {
	histogram *hdrhistogram.Histogram
}

// NewLatency returns an empty histogram.
func NewLatency() *Latency {
	return &Latency{histogram: hdrhistogram.New(lowestLatency, highestLatency, latencyDigits)}
}

func (l *Latency) record(d time.Duration) {
	// The value is clamped to the range, outside of which recording fails.
	_ = l.histogram.RecordValue(min(max(int64(d), 0), highestLatency))
}

// Merge adds the counts of other, which may be nil.
func (l *Latency) Merge(other *Latency) {
	if other != nil {
		l.histogram.Merge(other.histogram)
	}
}

// Count returns the number of latencies.
func (l *Latency) Count() int64 { return l.histogram.TotalCount() }

// Quantile returns the q-quantile, 0 <= q <= 1; zero when empty.
func (l *Latency) Quantile(q float64) time.Duration {
	return time.Duration(l.histogram.ValueAtQuantile(q * 100))
}

// MarshalJSON writes the occupied buckets as [index, count] pairs.
func (l *Latency) MarshalJSON() ([]byte, error) { return l.appendJSON(nil), nil }

// appendJSON is [Latency.MarshalJSON] without the second pass over the bytes
// that encoding/json makes, which takes longer than the first.
func (l *Latency) appendJSON(out []byte) []byte {
	out = append(out, '[')
	first := true
	for i, n := range l.histogram.Export().Counts {
		if n == 0 {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, '[')
		out = strconv.AppendInt(out, int64(i), 10)
		out = append(out, ',')
		out = strconv.AppendInt(out, n, 10)
		out = append(out, ']')
	}
	return append(out, ']')
}

// UnmarshalJSON reads what [Latency.MarshalJSON] writes.
func (l *Latency) UnmarshalJSON(data []byte) error {
	var pairs [][2]int64
	if err := json.Unmarshal(data, &pairs); err != nil {
		return fmt.Errorf("latency histogram: %w", err)
	}
	snapshot := NewLatency().histogram.Export()
	for _, pair := range pairs {
		index, count := pair[0], pair[1]
		if index < 0 || index >= int64(len(snapshot.Counts)) {
			return fmt.Errorf("latency histogram: bucket %d does not exist (there are %d)", index, len(snapshot.Counts))
		}
		if count < 0 || count > 1<<48 {
			return fmt.Errorf("latency histogram: bucket %d: count %d is not in 0 to 2^48", index, count)
		}
		snapshot.Counts[index] = count
	}
	l.histogram = hdrhistogram.Import(snapshot)
	return nil
}
