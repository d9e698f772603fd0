package policy

import "testing"

// BenchmarkDecide reports the time of one decision for one queue, after enough
// windows at changing load that all memory is in use.
func BenchmarkDecide(b *testing.B) {
	for _, spec := range []string{"aimd", "ladder", "pi", "linucb", "thompson", "safebo"} {
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
