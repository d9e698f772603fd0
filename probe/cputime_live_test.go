package probe

import (
	"fmt"
	"math"
	"testing"
	"time"

	"autotune/experiments/testbed"

	"github.com/prometheus/procfs"
)

// tickError is three standard errors of a time that the kernel samples by its
// tick (TICK_CPU_ACCOUNTING): each tick counts whole for what it finds running.
func tickError(spent time.Duration) time.Duration {
	const tick = time.Second / 250
	n := float64(spent)/float64(tick) + 1
	return time.Duration(3*math.Sqrt(n)*float64(tick)) + time.Second/userHz
}

func softirqTime(tb testing.TB) time.Duration {
	tb.Helper()
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	stat, err := fs.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	var sum float64
	for _, cpu := range stat.CPU {
		sum += cpu.SoftIRQ
	}
	return time.Duration(sum * float64(time.Second))
}

// A NAPI in softirq under load: what NET_RX takes is most of what /proc/stat
// counts as softirq time, and the polls of the NAPI are a part of that.
func TestSoftirqTimesAgreeWithTheKernelsAccount(t *testing.T) {
	testbed.Alone(t)
	attempt(t, func(t *testing.T) error {
		b := newBed(t, testbed.Options{})
		b.serve(t, nil)
		s := b.open(t, Options{Interval: liveInterval})
		b.phase(t, "load", 20000)
		next(t, s)
		var total totals
		before := softirqTime(t)
		for range 20 {
			total.add(next(t, s))
		}
		kernel := softirqTime(t) - before
		t.Logf("NET_RX %v, polls of the NAPI %v, softirq by /proc/stat %v +- %v", total.netRX, total.softirqTime, kernel, tickError(kernel))
		if total.softirqTime == 0 || total.softirqTime > total.netRX {
			return fmt.Errorf("polls of the NAPI took %v of %v in NET_RX", total.softirqTime, total.netRX)
		}
		// The other softirqs (timers, scheduler, RCU) are a small part here.
		if total.netRX > kernel+tickError(kernel) || total.netRX < kernel*8/10-tickError(kernel) {
			return fmt.Errorf("NET_RX %v, but %v of softirq time by /proc/stat (+- %v)", total.netRX, kernel, tickError(kernel))
		}
		// The parts add up to no more than the whole: nothing is counted twice.
		sum := total.netRXIdle + total.hardIRQIdle + total.ksoftirqd + total.threadTime + total.appCPU
		if sum > total.cpuBusy+tickError(total.cpuBusy) {
			return fmt.Errorf("parts of %v in %v of CPU time that was not idle", sum, total.cpuBusy)
		}
		return nil
	})
}

// A spinning server and a threaded NAPI, pinned to one CPU: the two tasks and
// what interrupts the idle task make up that CPU's time, but for what others
// run there.
func TestTheTimeOfACPUIsCountedOnce(t *testing.T) {
	testbed.Alone(t)
	b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
	b.serve(t, nil)
	s := b.open(t, Options{Interval: liveInterval})
	b.phase(t, "load", 30000)
	next(t, s)
	var sum, busy time.Duration
	var total totals
	for range 20 {
		sample := next(t, s)
		total.add(sample)
		for _, c := range sample.CPUs {
			if c.CPU == 1 {
				busy += c.Busy
				sum += *c.NetRXIdle + *c.HardIRQIdle + *c.Ksoftirqd
			}
		}
	}
	sum += total.threadTime + total.appCPU
	t.Logf("parts %v (thread %v, application %v) of %v", sum, total.threadTime, total.appCPU, busy)
	if sum > busy+tickError(busy) {
		t.Errorf("parts of %v in %v of CPU time that was not idle (+- %v)", sum, busy, tickError(busy))
	}
	if sum < busy/3 {
		t.Errorf("parts of %v, want most of the %v that was not idle", sum, busy)
	}
}
