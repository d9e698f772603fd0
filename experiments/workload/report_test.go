//go:build linux

package workload

import (
	"testing"
	"time"
)

// BenchmarkReport is what a client's report of a busy interval costs. It must
// stay well below [GapThreshold], or every report would be a gap.
func BenchmarkReport(b *testing.B) {
	in := ClientInterval{Phase: "high", Gaps: newGaps()}
	latency, excluded := NewLatency(), NewLatency()
	for i := range 10_000 {
		latency.record(50*time.Microsecond + time.Duration(i*i))
	}
	for i := range 100 {
		excluded.record(time.Millisecond + time.Duration(i)*10*time.Microsecond)
	}
	for range 5 {
		in.Gaps.add(Gap{Start: time.Hour, Span: time.Millisecond, Cause: GapLate})
	}
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if line, err = appendInterval(line[:0], &in, latency, excluded); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(line)), "bytes")
}
