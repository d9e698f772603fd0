package policy

import (
	"math/rand/v2"
	"testing"

	"autotune/model"
)

// specs are the policies that learn or control, each in its default form.
func specs() []string {
	return []string{"aimd", "greybox", "ladder", "pi", "linucb", "thompson", "safebo"}
}

// BenchmarkDecide reports the time of one decision for one queue, after enough
// windows at changing load that all memory is in use.
func BenchmarkDecide(b *testing.B) {
	for _, spec := range specs() {
		b.Run(spec, func(b *testing.B) {
			p, err := Parse(spec)
			if err != nil {
				b.Fatal(err)
			}
			h := newHost()
			for range 1000 {
				h.active = p.Decide(h.show()).Settings
			}
			f := h.show()
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(f)
			}
		})
	}
}

// BenchmarkThousandQueues reports the time in which a window of 1,000 queues of
// one device is decided upon, each at a load of its own that wanders, after 200
// windows.
func BenchmarkThousandQueues(b *testing.B) {
	const queues = 1000
	for _, spec := range specs() {
		b.Run(spec, func(b *testing.B) {
			p, err := Parse(spec)
			if err != nil {
				b.Fatal(err)
			}
			hosts, features := make([]*host, queues), make([]model.Features, queues)
			for q := range hosts {
				hosts[q] = newHost()
				hosts[q].random = rand.New(rand.NewPCG(uint64(q), 7))
			}
			window := func() {
				for q, h := range hosts {
					features[q] = h.show()
					features[q].Queue.Index = q
				}
			}
			decide := func() {
				for q, h := range hosts {
					h.active = p.Decide(features[q]).Settings
				}
			}
			for range 200 {
				window()
				decide()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				window()
				b.StartTimer()
				decide()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1e3/float64(b.N), "ms/window")
		})
	}
}
