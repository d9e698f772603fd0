package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"autotune/bpf"
	"autotune/model"
)

// addFiles adds files of testdata to the seeds.
func addFiles(f *testing.F, pattern string) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		f.Fatalf("no seeds match %s: %v", pattern, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzParseCPUTable(f *testing.F) {
	addFiles(f, "proc/interrupts.*")
	addFiles(f, "proc/softirqs.*")
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := parseCPUTable(bytes.NewReader(data))
		if err != nil {
			return
		}
		header, _, _ := strings.Cut(string(data), "\n")
		columns := len(strings.Fields(header))
		for label, counts := range table {
			if len(counts) > columns {
				t.Errorf("line %q has %d counters in %d columns", label, len(counts), columns)
			}
		}
	})
}

func FuzzParseInterrupts(f *testing.F) {
	f.Add("10,4294967290,0\n")
	f.Add("1,")
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := parseInterrupts(text)
		if err == nil && len(counts) != strings.Count(text, ",")+1 {
			t.Errorf("%d counters of %q", len(counts), text)
		}
	})
}

func FuzzMountPoints(f *testing.F) {
	addFiles(f, "sys/mountinfo.*")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fstype := range []string{"tracefs", "debugfs"} {
			points, err := mountPoints(bytes.NewReader(data), fstype)
			if err == nil && len(points) > bytes.Count(data, []byte(fstype)) {
				t.Errorf("%d mount points of %s in %q", len(points), fstype, data)
			}
		}
	})
}

func FuzzParseLockdown(f *testing.F) {
	addFiles(f, "sys/lockdown.*")
	f.Fuzz(func(t *testing.T, data []byte) {
		level, err := parseLockdown(string(data))
		if err == nil && !bytes.Contains(data, []byte("["+level)) {
			t.Errorf("level %q of %q", level, data)
		}
	})
}

func FuzzParseSchedstat(f *testing.F) {
	f.Add([]byte("123456789 55 7\n"))
	f.Add([]byte("-1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := parseSchedstat(data); err == nil && len(bytes.TrimSpace(data)) == 0 {
			t.Errorf("nothing was read as %v", got)
		}
	})
}

// What prometheus/procfs makes of /proc/stat must neither panic nor give times
// below zero, whatever two readings hold.
func FuzzCPUSamples(f *testing.F) {
	sparse := readTestdata(f, "proc", "stat.smt_off_sparse")
	f.Add(sparse, sparse)
	f.Add(readTestdata(f, "scenario", "cpu_backward", "stat.t0"), readTestdata(f, "scenario", "cpu_backward", "stat.t1_small_regress"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		proc := newFakeProc(t)
		r, err := newCPUReader(proc.root)
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{before, after} {
			proc.write(t, "stat", data)
			samples, err := r.sample()
			if err != nil {
				return
			}
			for _, s := range samples {
				if s.Busy < 0 || s.Steal < 0 {
					t.Errorf("CPU %d was busy for %v, stolen for %v", s.CPU, s.Busy, s.Steal)
				}
			}
		}
	})
}

// Whatever the programs counted, what user space makes of it adds up.
func FuzzLoopGrowth(f *testing.F) {
	f.Add(uint16(3), uint32(5), uint32(9), uint32(2))
	f.Add(uint16(329), ^uint32(0), uint32(1), uint32(70))
	f.Fuzz(func(t *testing.T, at uint16, before, after, excess uint32) {
		var last, now bpf.ReceiveNapiCounts
		i := int(at) % len(last.Work)
		loop, packets := i/model.WorkBuckets, i%model.WorkBuckets
		last.Work[i], now.Work[i], now.Excess[loop] = before, after, excess
		n := uint64(after - before)
		want := model.PollCounts{Polls: n, Packets: n*uint64(packets) + uint64(excess)}
		if packets == 0 {
			want.Empty = n
		}
		var work [model.WorkBuckets]uint64
		for l := range loops {
			got := loopGrowth(&last, &now, l, &work)
			if l == loop && got != want || l != loop && got != (model.PollCounts{}) {
				t.Errorf("loop %d: %+v, want %+v in loop %d", l, got, want, loop)
			}
		}
		if work[packets] != n || slices.Max(work[:]) != n {
			t.Errorf("work %v, want %d polls of %d packets", work, n, packets)
		}
	})
}
