package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"syscall"
	"testing"
	"time"

	"autotune/model"
)

func realisticTrace(tb testing.TB, queues, samples int) (compressed []byte, uncompressed int64) {
	tb.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{}, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	source := newRealistic(1, queues)
	source.all = true
	for range samples {
		if err := w.Write(source.next()); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(out.Bytes()), ReaderOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Records() {
		if err != nil {
			tb.Fatal(err)
		}
	}
	return out.Bytes(), r.Stats().Bytes
}

// cpuTime is the CPU time of the process: on a busy machine it says what wall
// time cannot.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// reportPerCore reports the rate per second of CPU time, garbage collection
// included.
func reportPerCore(b *testing.B, bytesPerOp int64, since time.Duration) {
	b.Helper()
	spent := cpuTime(b) - since
	b.ReportMetric(float64(bytesPerOp)*float64(b.N)/1e6/spent.Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkRead reads a trace of 64 queues at 1 Hz; MB/s are of uncompressed
// text.
func BenchmarkRead(b *testing.B) {
	compressed, size := realisticTrace(b, 64, 60)
	b.SetBytes(size)
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(compressed), ReaderOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := r.Next(context.Background()); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		r.Close()
	}
	reportPerCore(b, size, start)
}

// BenchmarkDecode compares the decoder with encoding/json on one sample line.
func BenchmarkDecode(b *testing.B) {
	sample := newRealistic(1, 64).next()
	line := newEncoder().append(nil, &sample)
	b.Run("trace", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		var d decoder
		start := cpuTime(b)
		for b.Loop() {
			if _, err := d.sample(line); err != nil {
				b.Fatal(err)
			}
		}
		reportPerCore(b, int64(len(line)), start)
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		start := cpuTime(b)
		for b.Loop() {
			if _, err := oracleDecode(line); err != nil {
				b.Fatal(err)
			}
		}
		reportPerCore(b, int64(len(line)), start)
	})
}

// BenchmarkWrite writes samples of 64 queues; at 1 Hz, ns/op are the cost per
// second of recording.
func BenchmarkWrite(b *testing.B) {
	source := newRealistic(1, 64)
	source.all = true
	drawn := make([]model.Sample, 20)
	for i := range drawn {
		drawn[i] = source.next()
	}
	at := drawn[0].At
	w, err := NewWriter(io.Discard, Header{}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	size := int64(len(newEncoder().append(nil, &drawn[0])))
	b.SetBytes(size)
	b.ReportAllocs()
	start := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		s := drawn[i%len(drawn)]
		at += s.Span
		s.At = at
		if err := w.Write(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	reportPerCore(b, size, start)
}

// A day of 64 queues at 1 Hz has to stay under 1 GiB: packet rates that swing
// between a tenth and all of a peak per second and queue (and by a lognormal
// factor between queues and seconds), and nothing that the probes could not
// observe. How high the peak may be depends on how many sockets are followed.
func TestADayOf64QueuesIsUnderOneGiB(t *testing.T) {
	const queues, hours, perHour = 64, 24, 10
	for name, c := range map[string]struct {
		peak  float64
		every int
	}{
		"one socket in 16": {4000, 16}, "every socket": {360, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := NewWriter(&out, Header{}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			source := newRealistic(1, queues)
			source.all, source.every = true, c.every
			for hour := range hours {
				source.packets = c.peak * (0.55 - 0.45*math.Cos(2*math.Pi*float64(hour)/hours))
				for range perHour {
					if err := w.Write(source.next()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			perQueueSample := float64(out.Len()) / (queues * hours * perHour)
			day := perQueueSample * queues * 86400
			t.Logf("%.0f bytes per queue-sample; a day of 64 queues: %.2f GiB", perQueueSample, day/(1<<30))
			if day > 1<<30 {
				t.Errorf("a day of 64 queues takes %.2f GiB", day/(1<<30))
			}
		})
	}
}

// BenchmarkSize reports the compressed bytes per queue-sample by packet rate
// per queue and share of requests followed, those of them that histograms take,
// and the least that any encoding of these could take: the entropy of their
// counts where the mean of each is known beforehand.
func BenchmarkSize(b *testing.B) {
	for _, packets := range []float64{100, 1000, 10000} {
		for _, every := range []int{1, 16} {
			b.Run(fmt.Sprintf("packets=%.0f/every=%d", packets, every), func(b *testing.B) {
				const queues, samples = 64, 20
				source := newRealistic(1, queues)
				source.packets, source.every, source.all = packets, every, true
				drawn := make([]model.Sample, samples)
				for i := range drawn {
					drawn[i] = source.next()
				}
				all := 0
				for b.Loop() {
					all = traceSize(b, drawn)
				}
				bits := 0.0
				for i := range drawn {
					for j := range drawn[i].Queues {
						q := &drawn[i].Queues[j]
						for _, counts := range [][]uint64{q.Work[:], q.RingWait.Counts[:], q.SocketWait.Counts[:], q.Service.Counts[:], q.Delay.Counts[:], q.Suspension.Length.Counts[:]} {
							for _, n := range counts {
								bits += poissonEntropy(float64(n))
							}
						}
						q.Work, q.RingWait, q.SocketWait, q.Service, q.Delay = [model.WorkBuckets]uint64{}, nil, nil, nil, nil
						q.Suspension.Length = model.Histogram{}
					}
				}
				b.ReportMetric(float64(all)/(queues*samples), "B/queue-sample")
				b.ReportMetric(float64(all-traceSize(b, drawn))/(queues*samples), "histogram-B/queue-sample")
				b.ReportMetric(bits/8/(queues*samples), "entropy-B/queue-sample")
			})
		}
	}
}

// traceSize is the length of a trace of samples.
func traceSize(b *testing.B, samples []model.Sample) int {
	b.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range samples {
		if err := w.Write(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return out.Len()
}

// poissonEntropy is the entropy in bits of a Poisson variable.
func poissonEntropy(mean float64) float64 {
	if mean > 30 {
		return 0.5 * math.Log2(2*math.Pi*math.E*mean)
	}
	bits, p := 0.0, math.Exp(-mean)
	for k := 1.0; k < 120 && mean > 0; k++ {
		if p > 1e-15 {
			bits -= p * math.Log2(p)
		}
		p *= mean / k
	}
	return bits
}
