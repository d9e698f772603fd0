package probe

import (
	"runtime"
	"testing"
	"time"

	"autotune/bpf"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The interrupt programs are run by hand: a NET_RX softirq, in which a device
// interrupts for a while. They are not attached, so that nothing else runs them.
func TestInterruptTimesAreCountedOnce(t *testing.T) {
	const (
		softirq = 20 * time.Millisecond
		handler = 50 * time.Millisecond
	)
	for _, tt := range []struct {
		name  string
		apart bool
		// thread makes this process the CPU's softirq thread.
		thread bool
		// Whether the times are in no task's time.
		softirqIdle, handlerIdle bool
	}{
		{"a task is interrupted and charged", false, false, false, false},
		{"a task is interrupted and not charged", true, false, true, true},
		{"ksoftirqd runs the softirq and is charged for it alone", true, true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, p := newRawLoader(t)
			run := func(name string, args ...uint64) {
				t.Helper()
				program, err := l.load(l.raw, name)
				if err != nil {
					t.Fatal(err)
				}
				defer program.Close()
				if _, err := program.Run(&ebpf.RunOptions{Context: append(args, 0, 0, 0), CPU: 0, Flags: runOnCPU}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.apart {
				if err := p.set(bpf.ReceiveVarIrqTimeApart, 1); err != nil {
					t.Fatal(err)
				}
			}
			// The program runs on CPU 0 by an interrupt of whatever runs
			// there, unless this thread is on it.
			pinTo(t, 0)
			state := bpf.ReceiveCpuState{}
			if tt.thread {
				state.Ksoftirqd = uint32(unix.Gettid())
			}
			if err := p.collection.Maps[bpf.ReceiveMapCpus].Put(uint32(0), state); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			run(bpf.ReceiveProgSoftirqEntry, 3)
			time.Sleep(softirq / 2)
			run(bpf.ReceiveProgIrqHandlerEntry)
			time.Sleep(handler)
			run(bpf.ReceiveProgIrqHandlerExit)
			time.Sleep(softirq / 2)
			run(bpf.ReceiveProgSoftirqExit, 3)
			all := time.Since(began)
			var r reading
			if err := p.read(&r); err != nil {
				t.Fatal(err)
			}
			got := r.cpus[0]
			netRX, irq := time.Duration(got.NetRx), time.Duration(got.IrqTime)
			if got.Irqs != 1 || got.IrqsTimed != 1 || irq < handler || netRX < softirq {
				t.Errorf("NET_RX %v, %d interrupts of %v", netRX, got.Irqs, irq)
			}
			if netRX+irq > all {
				t.Errorf("NET_RX %v and interrupts of %v in %v: counted twice", netRX, irq, all)
			}
			idle := func(what string, got uint64, all time.Duration, want bool) {
				if want && time.Duration(got) != all || !want && got != 0 {
					t.Errorf("%s: %v of %v in no task's time, want all %t", what, time.Duration(got), all, want)
				}
			}
			idle("NET_RX", got.NetRxIdle, netRX, tt.softirqIdle)
			idle("interrupts", got.IrqTimeIdle, irq, tt.handlerIdle)
		})
	}
}

// pinTo keeps the test's goroutine on one CPU.
func pinTo(t *testing.T, cpu int) {
	t.Helper()
	lockThread(t)
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
	})
}

func lockThread(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}
