package probe

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

func TestParseCPUTable(t *testing.T) {
	for _, tt := range []struct {
		file string
		// labels are those of all lines; some of them are compared.
		labels []string
		want   cpuTable
	}{
		{
			"interrupts.arm64_ipi_no_space",
			[]string{"10", "14", "52", "60", "Err", "IPI0", "IPI1"},
			cpuTable{
				"10":   {0: 3187008661, 1: 3210445097, 2: 3101386301, 3: 3173132899},
				"60":   {0: 991, 1: 17, 2: 0, 3: 0},
				"IPI0": {0: 1145401553, 1: 2207008663, 2: 998, 3: 1000000007},
				// A total belongs to no CPU.
				"Err": {},
			},
		},
		{
			"interrupts.arm32_fiq", []string{"16", "Err", "FIQ"},
			cpuTable{"16": {0: 100}, "FIQ": {}},
		},
		{
			"softirqs.possible8_online4",
			[]string{"BLOCK", "HI", "HRTIMER", "IRQ_POLL", "NET_RX", "NET_TX", "RCU", "SCHED", "TASKLET", "TIMER"},
			cpuTable{"NET_RX": {0: 3907149205, 1: 2179419894, 2: 0, 3: 0, 4: 922121677, 5: 161042649, 6: 0, 7: 0}},
		},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got, err := parseCPUTable(bytes.NewReader(readTestdata(t, "proc", tt.file)))
			if err != nil {
				t.Fatal(err)
			}
			if labels := slices.Sorted(maps.Keys(got)); !slices.Equal(labels, tt.labels) {
				t.Errorf("lines %v, want %v", labels, tt.labels)
			}
			for label, want := range tt.want {
				if diff := cmp.Diff(want, got[label]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", label, diff)
				}
			}
		})
	}
	t.Run("CPUs with gaps", func(t *testing.T) {
		got, err := parseCPUTable(strings.NewReader("   CPU0  CPU4\n NET_RX: 1 4294967295\n"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cpuTable{"NET_RX": {0: 1, 4: 4294967295}}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	for _, text := range []string{"", "CPU0 X\n", "CPU\n", "CPU-1\n", "CPU0\n 16 100\n"} {
		if got, err := parseCPUTable(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as %v, want an error", text, got)
		}
	}
}

// Why these files have a parser here. It can go when this fails.
func TestProcfsMisreadsTables(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "1/interrupts", readTestdata(t, "proc", "interrupts.arm64_ipi_no_space"))
	fs, err := procfs.NewFS(proc.root)
	if err != nil {
		t.Fatal(err)
	}
	process, err := fs.Proc(1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := process.Interrupts()
	if err == nil && len(got["IPI0"].Values) == 4 && got["IPI0"].Values[0] == "1145401553" {
		t.Error("prometheus/procfs reads a counter without a space before it")
	}
	proc.write(t, "softirqs", []byte("   CPU0  CPU4\n NET_RX: 1 2\n"))
	softirqs, err := fs.Softirqs()
	if err != nil {
		t.Fatal(err)
	}
	if len(softirqs.NetRx) != 2 {
		t.Errorf("prometheus/procfs tells the CPUs of columns apart: %v", softirqs.NetRx)
	}
}

func TestInterruptsComeFromProcWhereSysfsHasNone(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "interrupts", readTestdata(t, "proc", "interrupts.arm64_ipi_no_space"))
	got, err := readInterrupts(t.TempDir(), proc.root, 60)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]uint32{0: 991, 1: 17, 2: 0, 3: 0}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := readInterrupts(t.TempDir(), proc.root, 61); !gone(err) {
		t.Errorf("a line that is not there gives %v, %v", got, err)
	}
}

// A CPU that leaves and another that comes are a new baseline, not a counter
// that goes back.
func TestInterruptsBetweenReadingsOfOtherCPUs(t *testing.T) {
	n := func(n uint64) *uint64 { return &n }
	for name, tt := range map[string]struct {
		last, now map[int]uint32
		want      *uint64
	}{
		"grown":           {map[int]uint32{0: 1, 4: 4294967295}, map[int]uint32{0: 3, 4: 1}, n(4)},
		"no baseline":     {nil, map[int]uint32{0: 3}, nil},
		"one left":        {map[int]uint32{0: 1, 4: 9}, map[int]uint32{0: 3}, nil},
		"one for another": {map[int]uint32{0: 1, 4: 9}, map[int]uint32{0: 3, 5: 1}, nil},
	} {
		if diff := cmp.Diff(tt.want, interruptsBetween(tt.last, tt.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNetRXFinding(t *testing.T) {
	root := hostRoot(t, "sys/devices/system/cpu/online", []byte("0-1,4-5\n"))
	checked := func() model.Finding {
		t.Helper()
		got := checker{root}.netRX()
		if len(got) != 1 {
			t.Fatalf("findings %+v, want one", got)
		}
		return got[0]
	}
	if f := checked(); f.State != model.FindingDegraded || f.Consequence == "" || f.Remedy == "" {
		t.Errorf("without the file: %+v", f)
	}
	proc := fakeProc{filepath.Join(root, "proc")}
	proc.write(t, "softirqs", readTestdata(t, "proc", "softirqs.possible8_online4"))
	if f := checked(); f.State != model.FindingOK || f.Detail != "on 4 of 4 online CPUs, most on CPU 0 (54%)" {
		t.Errorf("finding %+v", f)
	}
	proc.write(t, "softirqs", []byte("CPU0\nNET_RX: 0\n"))
	if f := checked(); f.State != model.FindingOK || f.Detail != "none yet on 4 online CPUs" {
		t.Errorf("finding %+v", f)
	}
}
