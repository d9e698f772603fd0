package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"autotune/model"
)

func realisticTrace(tb testing.TB, queues, samples, every int) (compressed []byte, uncompressed int64) {
	tb.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{}, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	source := newRealistic(1, queues)
	source.all, source.every = true, every
	if every == 1 {
		source.packets = 50000
	}
	for range samples {
		if err := w.Write(Round(source.next())); err != nil {
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
	for name, every := range map[string]int{"one socket in 16": 16, "every socket": 1} {
		b.Run(name, func(b *testing.B) { benchmarkRead(b, every) })
	}
}

func benchmarkRead(b *testing.B, every int) {
	b.Helper()
	compressed, size := realisticTrace(b, 64, 60, every)
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

// BenchmarkWrite writes samples of 64 queues of 50,000 packets per second, with
// every socket followed; at 1 Hz, ns/op are the cost per second of recording.
func BenchmarkWrite(b *testing.B) {
	for name, round := range map[string]func(model.Sample) model.Sample{
		"exact": func(s model.Sample) model.Sample { return s }, "rounded": Round,
	} {
		b.Run(name, func(b *testing.B) { benchmarkWrite(b, round) })
	}
}

func benchmarkWrite(b *testing.B, round func(model.Sample) model.Sample) {
	b.Helper()
	source := newRealistic(1, 64)
	source.all, source.packets, source.every = true, 50000, 1
	drawn := make([]model.Sample, 20)
	for i := range drawn {
		drawn[i] = source.next()
	}
	at := drawn[0].At
	w, err := NewWriter(io.Discard, Header{}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	first := round(drawn[0])
	size := int64(len(newEncoder().append(nil, &first)))
	b.SetBytes(size)
	b.ReportAllocs()
	start := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		s := round(drawn[i%len(drawn)])
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

// A day of 64 queues at 1 Hz stays under 1 GiB with every socket followed and
// nothing that the probes could not observe, at rates that swing between a tenth
// and all of a peak over the day (and by a lognormal factor between queues and
// seconds).
func TestADayOf64QueuesIsUnderOneGiB(t *testing.T) {
	const queues, hours, perHour = 64, 24, 2
	for _, peak := range []float64{400, 4000, 40000, 400000} {
		t.Run(fmt.Sprintf("%.0f packets per second", peak), func(t *testing.T) {
			source := newRealistic(1, queues)
			source.all, source.every = true, 1
			var samples []model.Sample
			for hour := range hours {
				source.packets = peak * (0.55 - 0.45*math.Cos(2*math.Pi*float64(hour)/hours))
				for range perHour {
					samples = append(samples, Round(source.next()))
				}
			}
			perQueueSample := float64(traceSize(t, samples)) / (queues * hours * perHour)
			day := perQueueSample * queues * 86400
			t.Logf("%.0f bytes per queue-sample; a day of 64 queues: %.2f GiB", perQueueSample, day/(1<<30))
			if day > 1<<30 {
				t.Errorf("a day of 64 queues takes %.2f GiB", day/(1<<30))
			}
		})
	}
}

// BenchmarkSize reports the compressed bytes per queue-sample by number of queues,
// packet rate per queue and share of requests followed, with exact and with
// rounded histograms; and the least that any encoding of exact ones could take:
// the entropy of their counts where the mean of each is known beforehand.
func BenchmarkSize(b *testing.B) {
	for _, queues := range []int{64, 8} {
		for _, packets := range []float64{100, 1000, 10000, 50000, 200000} {
			for _, every := range []int{1, 16} {
				b.Run(fmt.Sprintf("queues=%d/packets=%.0f/every=%d", queues, packets, every), func(b *testing.B) {
					const samples = 20
					source := newRealistic(1, queues)
					source.packets, source.every, source.all = packets, every, true
					exact, rounded, bare := make([]model.Sample, samples), make([]model.Sample, samples), make([]model.Sample, samples)
					bits := 0.0
					for i := range exact {
						exact[i] = source.next()
						rounded[i] = Round(exact[i])
						bare[i] = exact[i]
						bare[i].Queues = slices.Clone(exact[i].Queues)
						for j := range bare[i].Queues {
							q := &bare[i].Queues[j]
							for _, counts := range [][]uint64{q.Work[:], q.RingWait.Counts[:], q.SocketWait.Counts[:], q.Service.Counts[:], q.Delay.Counts[:], q.Suspension.Length.Counts[:]} {
								for _, n := range counts {
									bits += poissonEntropy(float64(n))
								}
							}
							suspension := *q.Suspension
							suspension.Length = model.Histogram{}
							q.Work, q.RingWait, q.SocketWait, q.Service, q.Delay, q.Suspension = [model.WorkBuckets]uint64{}, nil, nil, nil, nil, &suspension
						}
					}
					for b.Loop() {
						b.ReportMetric(float64(traceSize(b, rounded))/float64(queues*samples), "B/queue-sample")
					}
					b.ReportMetric(float64(traceSize(b, exact))/float64(queues*samples), "exact-B/queue-sample")
					b.ReportMetric(float64(traceSize(b, bare))/float64(queues*samples), "counters-B/queue-sample")
					b.ReportMetric(bits/8/float64(queues*samples), "entropy-B/queue-sample")
				})
			}
		}
	}
}

// traceSize is the length of a trace of samples.
func traceSize(b testing.TB, samples []model.Sample) int {
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
