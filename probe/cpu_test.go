package probe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// fakeProc is a directory that stands for /proc.
type fakeProc struct{ root string }

func newFakeProc(tb testing.TB) fakeProc {
	tb.Helper()
	p := fakeProc{tb.TempDir()}
	p.write(tb, "net/softnet_stat", readTestdata(tb, "proc", "softnet_stat.11col"))
	p.write(tb, "stat", readTestdata(tb, "scenario", "cpu_backward", "stat.t0"))
	return p
}

func (p fakeProc) write(tb testing.TB, name string, data []byte) {
	tb.Helper()
	path := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		tb.Fatal(err)
	}
}

func (p fakeProc) remove(tb testing.TB, name string) {
	tb.Helper()
	if err := os.RemoveAll(filepath.Join(p.root, name)); err != nil {
		tb.Fatal(err)
	}
}

func TestCPUSamplesSurviveCountersThatGoBack(t *testing.T) {
	proc := newFakeProc(t)
	step := func(r *cpuReader, name string, softnet ...string) []model.CPUSample {
		t.Helper()
		proc.write(t, "stat", readTestdata(t, "scenario", "cpu_backward", name))
		text := ""
		for _, line := range softnet {
			text += line + "\n"
		}
		proc.write(t, "net/softnet_stat", []byte(text))
		got, err := r.sample()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const (
		cpu0      = "00000010 00000000 00000005 0 0 0 0 0 0 0 0 00000000 00000000"
		cpu0Later = "00000020 00000000 00000007 0 0 0 0 0 0 0 0 00000000 00000000"
		cpu1      = "00000010 00000000 fffffffe 0 0 0 0 0 0 0 0 00000000 00000001"
		cpu1Later = "00000010 00000000 00000001 0 0 0 0 0 0 0 0 00000000 00000001"
	)
	newReader := func() *cpuReader {
		t.Helper()
		r, err := newCPUReader(proc.root)
		if err != nil {
			t.Fatal(err)
		}
		if got := step(r, "stat.t0", cpu0, cpu1); len(got) != 0 {
			t.Fatalf("the baseline gave samples: %+v", got)
		}
		return r
	}

	t.Run("a field that goes back has not grown, the others have", func(t *testing.T) {
		want := []model.CPUSample{
			{CPU: 0, Busy: 750 * time.Millisecond, Squeezed: 2},
			{CPU: 1, Busy: 110 * time.Millisecond, Squeezed: 3},
		}
		if diff := cmp.Diff(want, step(newReader(), "stat.t1_small_regress", cpu0Later, cpu1Later)); diff != "" {
			t.Errorf("CPUs (-want +got):\n%s", diff)
		}
	})
	t.Run("a CPU that leaves gives no sample and starts anew when it returns", func(t *testing.T) {
		r := newReader()
		want := []model.CPUSample{{CPU: 0, Busy: 200 * time.Millisecond, Squeezed: 2}}
		if diff := cmp.Diff(want, step(r, "stat.t1_cpu1_gone", cpu0Later)); diff != "" {
			t.Errorf("CPUs while one is gone (-want +got):\n%s", diff)
		}
		want = []model.CPUSample{{CPU: 0, Busy: 200 * time.Millisecond}}
		if diff := cmp.Diff(want, step(r, "stat.t2_cpu1_back_reset", cpu0Later, cpu1Later)); diff != "" {
			t.Errorf("CPUs when it returns (-want +got):\n%s", diff)
		}
	})
}

func TestCPUSamplesGoByNumber(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "stat", readTestdata(t, "proc", "stat.smt_off_sparse"))
	row := func(squeezed string) string { return "00000001 00000000 " + squeezed + " 0 0 0 0 0 0 0 0\n" }
	proc.write(t, "net/softnet_stat", []byte(row("1")+row("2")+row("3")+row("4")+row("5")+row("6")))
	r, err := newCPUReader(proc.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.sample(); err != nil {
		t.Fatal(err)
	}
	proc.write(t, "net/softnet_stat", []byte(row("2")+row("4")+row("6")+row("8")+row("a")+row("c")))
	got, err := r.sample()
	if err != nil {
		t.Fatal(err)
	}
	var want []model.CPUSample
	for i, cpu := range []int{0, 1, 8, 9, 16, 17} {
		want = append(want, model.CPUSample{CPU: cpu, Squeezed: uint64(i + 1)})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CPUs (-want +got):\n%s", diff)
	}
}

func TestStealIsNotBusy(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "net/softnet_stat", []byte("1 0 0 0 0 0 0 0 0\n"))
	r, err := newCPUReader(proc.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range []string{
		"cpu  0\ncpu0 100 0 0 0 0 0 0 50 40 0\n",
		"cpu  0\ncpu0 160 0 0 0 0 0 0 57 90 0\n",
	} {
		proc.write(t, "stat", []byte(stat))
		got, err := r.sample()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			continue
		}
		// Guest time is part of user time.
		want := []model.CPUSample{{CPU: 0, Busy: 600 * time.Millisecond, Steal: 70 * time.Millisecond}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("CPUs (-want +got):\n%s", diff)
		}
		return
	}
	t.Error("no sample")
}

func TestInterruptTimesGoByNumber(t *testing.T) {
	samples := []model.CPUSample{{CPU: 0}, {CPU: 3}, {CPU: 9}}
	last := make([]bpf.ReceiveCpuState, 4)
	now := make([]bpf.ReceiveCpuState, 4)
	last[3] = bpf.ReceiveCpuState{NetRx: 100, NetRxIdle: 50, Irqs: 1, IrqsTimed: 1, IrqTime: 7}
	// A quarter of the interrupts were timed.
	now[3] = bpf.ReceiveCpuState{NetRx: 175, NetRxIdle: 60, Irqs: 9, IrqsTimed: 3, IrqTime: 107, IrqTimeIdle: 30, TransmitOnly: 4}
	// None of these was.
	now[0] = bpf.ReceiveCpuState{Irqs: 2}
	kernel := newMemoryKernel(1)
	addInterrupts(samples, kernel, last, now)
	d := func(d time.Duration) *time.Duration { return &d }
	n := func(n uint64) *uint64 { return &n }
	want := []model.CPUSample{
		{CPU: 0, NetRX: d(0), NetRXIdle: d(0), HardIRQs: n(2), TransmitOnly: n(0)},
		{CPU: 3, NetRX: d(75), NetRXIdle: d(10), HardIRQs: n(8), HardIRQ: d(400), HardIRQIdle: d(120), TransmitOnly: n(4)},
		{CPU: 9},
	}
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("CPUs (-want +got):\n%s", diff)
	}
}

func TestSoftirqThreadsAreTimed(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "stat", []byte("cpu  0\ncpu0 1 0 0 0 0 0 0 0 0 0\ncpu1 1 0 0 0 0 0 0 0 0 0\n"))
	proc.write(t, "net/softnet_stat", []byte("1 0 0 0 0 0 0 0 0\n1 0 0 0 0 0 0 0 0\n"))
	thread := func(pid, comm, cmdline, schedstat string) {
		proc.write(t, pid+"/comm", []byte(comm+"\n"))
		proc.write(t, pid+"/cmdline", []byte(cmdline))
		proc.write(t, pid+"/task/"+pid+"/schedstat", []byte(schedstat))
	}
	thread("15", "ksoftirqd/0", "", "1000 0 0\n")
	// A process that took the name.
	thread("900", "ksoftirqd/1", "/bin/sh\x00", "1000 0 0\n")
	r, err := newCPUReader(proc.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.sample(); err != nil {
		t.Fatal(err)
	}
	thread("15", "ksoftirqd/0", "", "4000 0 0\n")
	got, err := r.sample()
	if err != nil {
		t.Fatal(err)
	}
	spent := 3 * time.Microsecond
	want := []model.CPUSample{{CPU: 0, Ksoftirqd: &spent}, {CPU: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CPUs (-want +got):\n%s", diff)
	}
}
