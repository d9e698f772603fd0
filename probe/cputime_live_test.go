package probe

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"autotune/experiments/testbed"

	"github.com/prometheus/procfs"
)

// tickError is three standard errors of a time that the kernel samples by its
// tick (TICK_CPU_ACCOUNTING): each tick counts whole for what it finds running.
// It holds for work that is independent of the tick; see [tickBias] for the rest.
func tickError(spent time.Duration) time.Duration {
	const tick = time.Second / 250
	n := float64(spent)/float64(tick) + 1
	return time.Duration(3*math.Sqrt(n)*float64(tick)) + time.Second/userHz
}

// tickBias is the share by which a sampled time may be wrong whatever its length.
// The tick is a timer like those that pace a load: both expire in one interrupt,
// in the same order each time, and the tick does not see what the other is about
// to start. On virtual machines 10 to 20% of the time were missed.
const tickBias = 0.3

// cpuReading is what /proc/stat says of each CPU, and when.
type cpuReading struct {
	at  time.Time
	cpu map[int64]procfs.CPUStat
}

func readCPUs(tb testing.TB) cpuReading {
	tb.Helper()
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	stat, err := fs.Stat()
	if err != nil {
		tb.Fatal(err)
	}
	return cpuReading{time.Now(), stat.CPU}
}

// seconds sums the growth of a figure of some CPUs since a reading.
func (r cpuReading) seconds(since cpuReading, figure func(procfs.CPUStat) float64, cpus ...int64) time.Duration {
	var sum float64
	for _, cpu := range cpus {
		sum += figure(r.cpu[cpu]) - figure(since.cpu[cpu])
	}
	return time.Duration(sum * float64(time.Second))
}

// notIdle returns the time that CPUs were not idle since a reading, and by how
// much it may be wrong. Stolen time is a part of it, as it is of the times that
// the programs and the scheduler take by the clock.
//
// With NO_HZ the kernel measures idle time: get_idle_time (fs/proc/stat.c) takes
// it from get_cpu_idle_time_us (kernel/time/tick-sched.c), which reads the clock
// where the idle task begins and where an interrupt ends it. All else of
// /proc/stat is sampled by the tick, and idle time is as well without NO_HZ.
func (r cpuReading) notIdle(tb testing.TB, since cpuReading, cpus ...int64) (spent, off time.Duration) {
	tb.Helper()
	n := time.Duration(len(cpus))
	wall := n * r.at.Sub(since.at)
	spent = wall - r.seconds(since, func(s procfs.CPUStat) float64 { return s.Idle + s.Iowait }, cpus...)
	// Two figures in whole ticks of user space, and windows that do not begin
	// and end at the very moment of the readings.
	off = n*2*time.Second/userHz + wall/50
	if !idleIsMeasured(tb) {
		off += tickError(spent) + time.Duration(tickBias*float64(spent))
	}
	return spent, off
}

// idleIsMeasured tells whether NO_HZ is in use (CONFIG_NO_HZ_COMMON, no nohz=off).
func idleIsMeasured(tb testing.TB) bool {
	tb.Helper()
	data, err := os.ReadFile("/proc/timer_list")
	if err != nil {
		tb.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^\s*\.nohz\s*:\s*1$`).Match(data)
}

// otherTasks returns the CPU time of every thread on the host but those of some
// processes, by its ID.
func otherTasks(tb testing.TB, but ...int) map[int]time.Duration {
	tb.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		tb.Fatal(err)
	}
	all, of := make(map[int]time.Duration), make(map[int]time.Duration)
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || slices.Contains(but, pid) {
			continue
		}
		// One may have ended since it was listed.
		if err := taskTimes("/proc", pid, of); err != nil && !errors.Is(err, errNoTask) {
			tb.Fatal(err)
		}
		maps.Copy(all, of)
	}
	return all
}

// parts are times that a source tells of some windows, each of another use of the
// CPUs, and what the kernel says of all uses together.
type parts struct {
	totals
	// others is the time of the tasks that are in none of the others.
	others time.Duration
	// inIdle is what interrupted the idle tasks, by CPU.
	inIdle        map[int]time.Duration
	before, after cpuReading
}

func (b *bed) parts(tb testing.TB, s *Source) parts {
	tb.Helper()
	threads, err := b.NAPIThreads()
	if err != nil {
		tb.Fatal(err)
	}
	counted := slices.AppendSeq(append(threads, b.server.PID()), maps.Values(s.cpus.softirqThreads))
	p := parts{inIdle: make(map[int]time.Duration), before: readCPUs(tb)}
	before := otherTasks(tb, counted...)
	for range 20 {
		sample := next(tb, s)
		p.add(sample)
		for _, c := range sample.CPUs {
			p.inIdle[c.CPU] += *c.NetRXIdle + *c.HardIRQIdle
		}
	}
	p.after = readCPUs(tb)
	for tid, spent := range otherTasks(tb, counted...) {
		p.others += spent - before[tid]
	}
	return p
}

// check returns an error unless the parts, with the tasks of others, make up the
// time that the CPUs were not idle. What is counted twice is more; what has no
// part is the kernel's own interrupts of the idle tasks, the tasks that ended
// meanwhile and, where the scheduler's clock leaves them out
// (IRQ_TIME_ACCOUNTING), interrupts of tasks.
func (p *parts) check(tb testing.TB) error {
	tb.Helper()
	sum := p.netRXIdle + p.hardIRQIdle + p.ksoftirqd + p.threadTime + p.appCPU
	cpus := slices.Collect(maps.Keys(p.after.cpu))
	whole, off := p.after.notIdle(tb, p.before, cpus...)
	steal := p.after.seconds(p.before, func(s procfs.CPUStat) float64 { return s.Steal }, cpus...)
	tb.Logf("parts %v (idle interrupted %v, NAPI threads %v, application %v) and other tasks %v of %v +- %v, %v of it stolen; by ticks %v",
		sum, p.netRXIdle+p.hardIRQIdle, p.threadTime, p.appCPU, p.others, whole, off, steal, p.cpuBusy)
	if sum+p.others > whole+off {
		return fmt.Errorf("parts of %v and other tasks of %v in %v of CPU time that was not idle (+- %v)", sum, p.others, whole, off)
	}
	if sum+p.others < (whole-steal)/2 {
		return fmt.Errorf("parts of %v and other tasks of %v, want most of the %v that was neither idle nor stolen", sum, p.others, whole-steal)
	}
	return nil
}

// A NAPI in softirq under load: what NET_RX takes is most of what /proc/stat
// counts as softirq time, and the polls of the NAPI are a part of that.
func TestSoftirqTimesAgreeWithTheKernelsAccount(t *testing.T) {
	testbed.Alone(t)
	attempt(t, func(t testing.TB) error {
		b := newBed(t, testbed.Options{})
		b.serve(t, nil)
		s := b.open(t, Options{Interval: liveInterval})
		b.phase(t, "load", 20000)
		next(t, s)
		p := b.parts(t, s)
		kernel := p.after.seconds(p.before, func(s procfs.CPUStat) float64 { return s.SoftIRQ }, slices.Collect(maps.Keys(p.after.cpu))...)
		off := tickError(kernel) + time.Duration(tickBias*float64(kernel))
		t.Logf("NET_RX %v, polls of the NAPI %v, softirq by /proc/stat %v +- %v", p.netRX, p.softirqTime, kernel, off)
		if p.softirqTime == 0 || p.softirqTime > p.netRX {
			return fmt.Errorf("polls of the NAPI took %v of %v in NET_RX", p.softirqTime, p.netRX)
		}
		// The other softirqs (timers, scheduler, RCU) are a small part here.
		if p.netRX > kernel+off || p.netRX < kernel*8/10-off {
			return fmt.Errorf("NET_RX %v, but %v of softirq time by /proc/stat (+- %v)", p.netRX, kernel, off)
		}
		return p.check(t)
	})
}

// A server and a threaded NAPI, pinned to one CPU: the two tasks and what
// interrupts the idle task are within that CPU's time.
func TestTheTimeOfACPUIsCountedOnce(t *testing.T) {
	testbed.Alone(t)
	attempt(t, func(t testing.TB) error {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.serve(t, nil)
		s := b.open(t, Options{Interval: liveInterval})
		b.phase(t, "load", 30000)
		next(t, s)
		p := b.parts(t, s)
		if p.threadTime == 0 || p.appCPU == 0 {
			return fmt.Errorf("the thread took %v and the application %v, want both", p.threadTime, p.appCPU)
		}
		pinned := p.inIdle[1] + p.threadTime + p.appCPU
		if whole, off := p.after.notIdle(t, p.before, 1); pinned > whole+off {
			return fmt.Errorf("what is pinned to CPU 1 took %v of %v that it was not idle (+- %v)", pinned, whole, off)
		}
		return p.check(t)
	})
}
