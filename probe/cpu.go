package probe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/prometheus/procfs"
)

// cpuTimes is what /proc/stat and softnet_stat say of one CPU, since boot.
type cpuTimes struct {
	stat     procfs.CPUStat
	squeezed uint32
	// ksoftirqd is the CPU time of the softirq thread; nil when not known.
	ksoftirqd *time.Duration
}

// cpuReader turns readings of /proc/stat and softnet_stat into samples.
type cpuReader struct {
	fs     procfs.FS
	procfs string
	// last holds the CPUs of the reading before; a CPU that was not in it has
	// no baseline.
	last map[int]cpuTimes
	// softirqThreads are the process IDs of ksoftirqd by CPU.
	softirqThreads map[int]int
}

func newCPUReader(root string) (*cpuReader, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	threads, err := softirqThreads(root)
	if err != nil {
		return nil, err
	}
	return &cpuReader{fs: fs, procfs: root, softirqThreads: threads}, nil
}

// read returns the counters of the CPUs that are online now.
func (r *cpuReader) read() (map[int]cpuTimes, error) {
	stat, err := r.fs.Stat()
	if err != nil {
		return nil, fmt.Errorf("read CPU times: %w", err)
	}
	now := make(map[int]cpuTimes, len(stat.CPU))
	online := make([]int, 0, len(stat.CPU))
	for cpu, times := range stat.CPU {
		now[int(cpu)] = cpuTimes{stat: times}
		online = append(online, int(cpu))
	}
	slices.Sort(online)
	for cpu, times := range now {
		pid, ok := r.softirqThreads[cpu]
		if !ok {
			continue
		}
		if spent, err := taskTime(r.procfs, pid, pid); err == nil {
			times.ksoftirqd = &spent
			now[cpu] = times
		}
	}
	rows, err := readSoftnet(r.procfs, online)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		// A CPU that went offline between the two files has no times.
		if times, ok := now[row.cpu]; ok {
			times.squeezed = row.squeezed
			now[row.cpu] = times
		}
	}
	return now, nil
}

// sample returns what each CPU did since the call before, ordered by number. A
// CPU without a baseline gives no sample.
func (r *cpuReader) sample() ([]model.CPUSample, error) {
	now, err := r.read()
	if err != nil {
		return nil, err
	}
	samples := make([]model.CPUSample, 0, len(now))
	for cpu, times := range now {
		last, ok := r.last[cpu]
		if !ok {
			continue
		}
		sample := model.CPUSample{
			CPU:  cpu,
			Busy: busy(last.stat, times.stat),
			// The kernel's column counts ticks of whole CPUs, as the others.
			Steal:    ticks(times.stat.Steal - last.stat.Steal),
			Squeezed: uint64(wrapping(last.squeezed, times.squeezed)),
		}
		if from, to := last.ksoftirqd, times.ksoftirqd; from != nil && to != nil {
			spent := max(0, *to-*from)
			sample.Ksoftirqd = &spent
		}
		samples = append(samples, sample)
	}
	slices.SortFunc(samples, func(a, b model.CPUSample) int { return cmp.Compare(a.CPU, b.CPU) })
	r.last = now
	return samples, nil
}

// busy sums the growth of the fields that are neither idle nor stolen, each at
// least 0: some go back at times. Guest times are part of user and nice. All are
// sampled by the tick, unlike the idle time of a kernel with NO_HZ, so that this
// and the idle time need not add up to what has passed.
func busy(last, now procfs.CPUStat) time.Duration {
	return ticks(now.User-last.User) +
		ticks(now.Nice-last.Nice) +
		ticks(now.System-last.System) +
		ticks(now.IRQ-last.IRQ) +
		ticks(now.SoftIRQ-last.SoftIRQ)
}

// ticks turns seconds, as the procfs package divides them, back into whole
// ticks; 0 for a negative time.
func ticks(seconds float64) time.Duration {
	return time.Duration(max(0, seconds)*userHz+0.5) * (time.Second / userHz)
}

// wrapping is the growth of a 32-bit counter. One that goes back by a little
// was not wrapped but corrected, and has not grown.
func wrapping(last, now uint32) uint32 {
	if delta := now - last; delta < 1<<31 {
		return delta
	}
	return 0
}

// addInterrupts adds what the programs counted on each CPU.
func addInterrupts(samples []model.CPUSample, k kernel, last, now []bpf.ReceiveCpuState) {
	for i := range samples {
		s := &samples[i]
		if s.CPU >= len(now) || s.CPU >= len(last) {
			continue
		}
		from, to := &last[s.CPU], &now[s.CPU]
		s.TransmitOnly = growth(from.TransmitOnly, to.TransmitOnly)
		if k.observes(signalSoftirqTimes) {
			total := time.Duration(grown(from.NetRx, to.NetRx))
			idle := time.Duration(grown(from.NetRxIdle, to.NetRxIdle))
			s.NetRX, s.NetRXIdle = &total, &idle
		}
		if k.observes(signalHardIRQs) {
			s.HardIRQs = growth(from.Irqs, to.Irqs)
			timed := grown(from.IrqsTimed, to.IrqsTimed)
			s.HardIRQ = projected(grown(from.IrqTime, to.IrqTime), timed, *s.HardIRQs)
			s.HardIRQIdle = projected(grown(from.IrqTimeIdle, to.IrqTimeIdle), timed, *s.HardIRQs)
		}
	}
}

// grown is the growth of a counter, 0 for one that went back.
func grown(last, now uint64) uint64 {
	if now < last {
		return 0
	}
	return now - last
}
