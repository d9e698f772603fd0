package sim

import (
	"context"
	"testing"
	"time"
)

// BenchmarkPackets reports simulated packets per second of one core.
func BenchmarkPackets(b *testing.B) {
	for _, cell := range []struct{ name, load string }{
		{"suspend20", "600K"}, {"base", "600K"}, {"fullbusy", "200K"}, {"defer10", "200K"}, {"suspend20", "MAX"},
	} {
		b.Run(cell.name+"/"+cell.load, func(b *testing.B) {
			load, err := ParseLoad(cell.load)
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(Options{Case: mustCase(b, cell.name), Load: load, Seed: 1, Window: 100 * time.Millisecond, Workers: 1})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := s.Next(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Result().Packets)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
		})
	}
}
