package probe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSoftnet(t *testing.T) {
	for _, tt := range []struct {
		file   string
		online []int
		want   []softnetRow
	}{
		{
			file:   "softnet_stat.09col",
			online: []int{0, 1},
			want: []softnetRow{
				{cpu: 0, processed: 0x1a2b},
				{cpu: 1, processed: 0x2c3d, squeezed: 3},
			},
		},
		{
			// Without a CPU number the online CPUs, not the positions, count.
			file:   "softnet_stat.11col",
			online: []int{0, 8},
			want: []softnetRow{
				{cpu: 0, processed: 0x29620, squeezed: 2},
				{cpu: 8, processed: 0x12f00a, dropped: 7, squeezed: 0x11},
			},
		},
		{
			file:   "softnet_stat.13col_cpu1_3_offline",
			online: []int{0, 2},
			want: []softnetRow{
				{cpu: 0, processed: 0x5000, squeezed: 1},
				{cpu: 2, processed: 0x9000, squeezed: 9},
			},
		},
		{
			// The number in the row is right even where the list is stale.
			file:   "softnet_stat.15col",
			online: []int{0, 2},
			want: []softnetRow{
				{cpu: 0, processed: 0x5000, squeezed: 1},
				{cpu: 1, processed: 0x9000, squeezed: 9},
			},
		},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, err := parseSoftnet(bytes.NewReader(readTestdata(t, "proc", tt.file)), tt.online)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(softnetRow{})); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseSoftnetRefusesWhatItCannotAttribute(t *testing.T) {
	row := strings.Repeat("00000001 ", 11)
	for _, tt := range []struct {
		name, text string
		online     []int
		want       string
	}{
		{"a short row", row + "\n00000001 00000002\n", []int{0, 1}, "line 2 has 2 columns"},
		{"more rows than CPUs online", row + "\n" + row + "\n", []int{0}, "line 2 has no CPU number"},
		{"no hexadecimal number", strings.Repeat("0000000x ", 11), []int{0}, "line 1 column 1"},
		{"a number of more than 32 bits", strings.Repeat("100000000 ", 11), []int{0}, "line 1 column 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseSoftnet(strings.NewReader(tt.text), tt.online)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestWrapping(t *testing.T) {
	for _, tt := range []struct {
		name            string
		last, now, want uint32
	}{
		{"grows", 5, 7, 2},
		{"stands", 5, 5, 0},
		{"wraps at 32 bits", 0xfffffffe, 3, 5},
		{"goes back a little", 7, 5, 0},
	} {
		if got := wrapping(tt.last, tt.now); got != tt.want {
			t.Errorf("%s: from %d to %d is growth of %d, want %d", tt.name, tt.last, tt.now, got, tt.want)
		}
	}
}

func FuzzParseSoftnet(f *testing.F) {
	for _, name := range []string{"softnet_stat.09col", "softnet_stat.11col", "softnet_stat.13col_cpu1_3_offline", "softnet_stat.15col"} {
		f.Add(readTestdata(f, "proc", name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := parseSoftnet(bytes.NewReader(data), []int{0, 1, 2, 3})
		if err != nil {
			return
		}
		lines := 0
		for line := range bytes.Lines(data) {
			if len(bytes.TrimSpace(line)) > 0 {
				lines++
			}
		}
		if len(rows) != lines {
			t.Errorf("%d rows from %d lines", len(rows), lines)
		}
	})
}
