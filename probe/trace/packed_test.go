package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPackedCountsReadAsTheDocumentationSays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		counts []uint64
		want   string
	}{
		{"none", []uint64{0, 0, 0}, `""`},
		{"no bucket", nil, `""`},
		{"rising by one", []uint64{1, 2, 3}, `"0222"`},
		{"falling", []uint64{0, 0, 5, 3, 0, 1}, `"2A352"`},
		{"the last digit, and the first escape", []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30, 61}, `"Cy!0"`},
		{"the last escape", []uint64{929}, `"0}y"`},
		{"decimal", []uint64{930, 0}, `"0~1860~"`},
		{"differences that wrap", []uint64{1<<64 - 1, 0, 1<<64 - 1}, `"0121"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			packed := appendPacked(nil, tt.counts)
			if string(packed) != tt.want {
				t.Errorf("got %s, want %s", packed, tt.want)
			}
			got := make([]uint64, len(tt.counts))
			d := decoder{scan: scanner{data: packed}}
			d.packed(got)
			if diff := cmp.Diff(tt.counts, got); d.scan.err != nil || diff != "" && len(got) > 0 {
				t.Errorf("%v (-want +got):\n%s", d.scan.err, diff)
			}
		})
	}
}

func TestPackedCountsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 3000), rapid.Uint64()), 1, 224).Draw(t, "counts")
		got := make([]uint64, len(want))
		d := decoder{scan: scanner{data: appendPacked(nil, want)}}
		d.packed(got)
		if diff := cmp.Diff(want, got); d.scan.err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", d.scan.err, diff)
		}
	})
}
