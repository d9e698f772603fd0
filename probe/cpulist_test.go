package probe

import (
	"os"
	"path/filepath"
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// readTestdata returns a file of testdata.
func readTestdata(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elem...)...))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestParseCPUList(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []int
		slots      int
	}{
		{"one CPU", string(readTestdata(t, "sys", "cpu_online.single")), []int{0}, 1},
		{"gaps", string(readTestdata(t, "sys", "cpu_possible.sparse")), []int{0, 1, 4, 5, 8, 9, 12, 13}, 14},
		{"one range", "0-3\n", []int{0, 1, 2, 3}, 4},
		{"not from zero", "2,5-6", []int{2, 5, 6}, 7},
		{"none", "\n", nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := model.ParseCPUList(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("CPUs (-want +got):\n%s", diff)
			}
			if got := cpuSlots(got); got != tt.slots {
				t.Errorf("an array by CPU number needs %d elements, want %d", got, tt.slots)
			}
		})
	}
	for _, text := range []string{"a", "1-", "-1", "3-1", "0,,1", "0-99999999", "4294967296", "0-65535,0-65535"} {
		if got, err := model.ParseCPUList(text); err == nil {
			t.Errorf("CPU list %q was read as %d CPUs, want an error", text, len(got))
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	for _, text := range []string{"0-1,4-5,8-9,12-13", "0", "0-4294967295", "5-2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := model.ParseCPUList(text)
		if err != nil {
			return
		}
		for _, cpu := range cpus {
			if cpu < 0 || cpu >= model.MaxCPU {
				t.Errorf("%q holds CPU %d", text, cpu)
			}
		}
	})
}
