package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// countersLost is what is missing where the hardware counts nothing.
const countersLost = "cycles and instructions per CPU, and so per packet"

// counterEvent is one event of a performance monitoring unit.
type counterEvent struct {
	name   string
	kind   uint32
	config uint64
}

// hardwareEvents are what a CPU's counters are set to: cycles first, then
// instructions.
func hardwareEvents() [2]counterEvent {
	return [2]counterEvent{
		{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
		{"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	}
}

// counters counts two events on each CPU, together, so that their ratio holds
// while the kernel shares the hardware among more events than it can count.
type counters struct {
	// cpus are by number; one that was offline has none.
	cpus map[int]*cpuCounters
}

// cpuCounters is one group of events. The file descriptors are of the leader and
// of the other; closing them ends the counting.
type cpuCounters struct {
	fds  [2]int
	last groupReading
}

// groupReading is what reading a group returns (PERF_FORMAT_GROUP with both
// times, __perf_read_group_add in kernel/events/core.c).
type groupReading struct {
	enabled, running time.Duration
	values           [2]uint64
}

const groupReadingSize = 8 * 5

func parseGroupReading(data []byte) (groupReading, error) {
	if len(data) != groupReadingSize {
		return groupReading{}, fmt.Errorf("read a group of counters: %d bytes, want %d", len(data), groupReadingSize)
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(data[8*i:]) }
	if n := word(0); n != 2 {
		return groupReading{}, fmt.Errorf("read a group of counters: %d events, want 2", n)
	}
	return groupReading{
		enabled: time.Duration(word(1)), running: time.Duration(word(2)),
		values: [2]uint64{word(3), word(4)},
	}, nil
}

// since returns what was counted since an earlier reading, projected to all of
// the time where the kernel counted for a part of it only. It reports false
// where it never did.
func (r groupReading) since(last groupReading) (counted [2]uint64, ok bool) {
	enabled, running := r.enabled-last.enabled, r.running-last.running
	if enabled <= 0 || running <= 0 {
		return counted, false
	}
	for i := range counted {
		n := grown(last.values[i], r.values[i])
		if running < enabled {
			n = uint64(float64(n) * float64(enabled) / float64(running))
		}
		counted[i] = n
	}
	return counted, true
}

// openCounters starts to count on each of the CPUs. The error of a host whose
// CPUs cannot wraps the kernel's errno.
func openCounters(cpus []int, events [2]counterEvent) (*counters, error) {
	c := &counters{cpus: make(map[int]*cpuCounters, len(cpus))}
	for _, cpu := range cpus {
		one, err := openCPUCounters(cpu, events)
		if errors.Is(err, unix.ENODEV) {
			// The CPU is offline.
			continue
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.cpus[cpu] = one
	}
	return c, nil
}

// noCounters reports whether openCounters failed because there is nothing that
// could count, as in most virtual machines: then no probe is missing.
func noCounters(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// advised adds to an error of openCounters what can be done about it.
func advised(err error) error {
	if remedy := counterRemedy(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}

// counterRemedy returns what lets the counters of a whole CPU be opened; empty
// where that is not known.
func counterRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "run with CAP_PERFMON, or set kernel.perf_event_paranoid to 0"
	case noCounters(err):
		return "this machine has none; a virtual one has where its host passes them on"
	case errors.Is(err, unix.EBUSY):
		return "another profiler holds the counters: end it, or do without them"
	case errors.Is(err, unix.EMFILE):
		return "two files are open per CPU: raise the limit of open files (ulimit -n)"
	}
	return ""
}

func openCPUCounters(cpu int, events [2]counterEvent) (*cpuCounters, error) {
	one := &cpuCounters{fds: [2]int{-1, -1}}
	for i, event := range events {
		attr := unix.PerfEventAttr{
			Type: event.kind, Config: event.config, Size: unix.PERF_ATTR_SIZE_VER0,
			Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		}
		if i == 0 {
			// Both begin together, once the group is whole.
			attr.Bits = unix.PerfBitDisabled
		}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, one.fds[0], unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("count %s of all that CPU %d runs (perf_event_open): %w", event.name, cpu, err), one.close())
		}
		one.fds[i] = fd
	}
	err := unix.IoctlSetInt(one.fds[0], unix.PERF_EVENT_IOC_ENABLE, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start to count on CPU %d: %w", cpu, err), one.close())
	}
	if one.last, err = one.read(); err != nil {
		return nil, errors.Join(err, one.close())
	}
	return one, nil
}

func (c *cpuCounters) read() (groupReading, error) {
	var buf [groupReadingSize]byte
	n, err := unix.Read(c.fds[0], buf[:])
	if err != nil {
		return groupReading{}, fmt.Errorf("read a group of counters: %w", err)
	}
	return parseGroupReading(buf[:n])
}

func (c *cpuCounters) close() error {
	var errs []error
	for i, fd := range c.fds {
		if fd < 0 {
			continue
		}
		c.fds[i] = -1
		if err := unix.Close(fd); err != nil {
			errs = append(errs, fmt.Errorf("close a counter: %w", err))
		}
	}
	return errors.Join(errs...)
}

// add fills in what each CPU counted since the call before. One whose counters
// cannot be read any more counts no further: the kernel takes those of a CPU that
// goes offline apart, and does not put them together when it comes back.
func (c *counters) add(samples []model.CPUSample) error {
	var errs []error
	for i := range samples {
		cpu := samples[i].CPU
		one := c.cpus[cpu]
		if one == nil {
			continue
		}
		now, err := one.read()
		if err != nil {
			delete(c.cpus, cpu)
			errs = append(errs, one.close())
			continue
		}
		if counted, ok := now.since(one.last); ok {
			samples[i].Cycles, samples[i].Instructions = &counted[0], &counted[1]
		}
		one.last = now
	}
	return errors.Join(errs...)
}

func (c *counters) close() error {
	var errs []error
	for _, one := range c.cpus {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}
