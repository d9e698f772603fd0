package probe

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInterruptsGrowModulo32Bits(t *testing.T) {
	sysfs := t.TempDir()
	dir := filepath.Join(sysfs, "kernel/irq/77")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	napi := testNAPI(0, 7)
	q := &queue{napi: napi}
	n := func(n uint64) *uint64 { return &n }
	irq := uint32(77)
	for _, step := range []struct {
		name, counts string
		irq          *uint32
		want         *uint64
	}{
		{"no line is known", "", nil, nil},
		{"a baseline", "10,4294967290,0\n", &irq, nil},
		{"one wraps, one stands still", "15,4,0\n", &irq, n(15)},
		{"the line moves to another CPU", "15,4,1000\n", &irq, n(1000)},
		{"another number of CPUs", "15,4\n", &irq, nil},
		{"which is a new baseline", "16,4\n", &irq, n(1)},
		{"the line goes", "", &irq, nil},
	} {
		q.napi.IRQ = step.irq
		path := filepath.Join(dir, "per_cpu_count")
		if step.counts == "" {
			os.Remove(path)
		} else if err := os.WriteFile(path, []byte(step.counts), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := q.interruptGrowth(sysfs, sysfs)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	for _, text := range []string{"", "1,", "1,x", "1,4294967296"} {
		if got, err := parseInterrupts(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// The kernel's two listings agree on a line that does not interrupt meanwhile.
func TestInterruptsAreThoseOfProc(t *testing.T) {
	table, err := readCPUTable("/proc", "interrupts")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for label, want := range table {
		irq, err := strconv.ParseUint(label, 10, 32)
		if err != nil {
			continue
		}
		got, err := readInterrupts(sysfsRoot, "/proc", uint32(irq))
		if err != nil {
			t.Fatal(err)
		}
		// One file shows the possible CPUs, the other those that are online.
		maps.DeleteFunc(got, func(cpu int, _ uint32) bool { _, ok := want[cpu]; return !ok })
		if maps.Equal(got, want) {
			compared++
		}
	}
	if compared == 0 {
		t.Error("no line has the same counts in both")
	}
}
