package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestCountersAreProjected(t *testing.T) {
	last := groupReading{enabled: 100, running: 100, values: [2]uint64{1000, 500}}
	for _, tt := range []struct {
		name string
		now  groupReading
		want [2]uint64
		ok   bool
	}{
		{"all of the time", groupReading{200, 200, [2]uint64{1300, 600}}, [2]uint64{300, 100}, true},
		{"a quarter of it", groupReading{300, 150, [2]uint64{1300, 600}}, [2]uint64{1200, 400}, true},
		{"none of it", groupReading{300, 100, last.values}, [2]uint64{}, false},
		{"no time", last, [2]uint64{}, false},
	} {
		if got, ok := tt.now.since(last); got != tt.want || ok != tt.ok {
			t.Errorf("counted %s: %v %t, want %v %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestAGroupReadingIsChecked(t *testing.T) {
	good := binary.NativeEndian.AppendUint64(nil, 2)
	for _, word := range []uint64{30, 20, 7, 9} {
		good = binary.NativeEndian.AppendUint64(good, word)
	}
	got, err := parseGroupReading(good)
	if diff := cmp.Diff(groupReading{30, 20, [2]uint64{7, 9}}, got, cmp.AllowUnexported(groupReading{})); diff != "" || err != nil {
		t.Errorf("error %v; reading (-want +got):\n%s", err, diff)
	}
	other := slices.Clone(good)
	other[0] ^= 1
	other[7] ^= 1
	for name, data := range map[string][]byte{"nothing": nil, "one word less": good[8:], "one event": other} {
		if got, err := parseGroupReading(data); err == nil {
			t.Errorf("%s was read as %+v", name, got)
		}
	}
}

func FuzzParseGroupReading(f *testing.F) {
	f.Add(bytes.Repeat([]byte{2, 0, 0, 0, 0, 0, 0, 0}, 5))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseGroupReading(data)
		if err != nil {
			return
		}
		if counted, ok := r.since(groupReading{}); ok && r.enabled == r.running && counted != r.values {
			t.Errorf("counted %v, want %v", counted, r.values)
		}
	})
}

// softwareCounters opens counters on two CPUs. Events that every kernel can count
// stand in for those of the hardware: time that passes, in nanoseconds, and
// context switches.
func softwareCounters(t testing.TB) *counters {
	t.Helper()
	testbed.Require(t)
	c, err := openCounters([]int{0, 1}, [2]counterEvent{
		{"clock", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK},
		{"switches", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestCountersCountOnEachCPU(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		c := softwareCounters(t)
		began := time.Now()
		const sleeps = 50
		for range sleeps {
			time.Sleep(time.Millisecond)
		}
		samples := []model.CPUSample{{CPU: 0}, {CPU: 1}, {CPU: 7}}
		if err := c.add(samples); err != nil {
			t.Fatal(err)
		}
		span := time.Since(began)
		var switches uint64
		for _, s := range samples[:2] {
			if s.Cycles == nil || s.Instructions == nil {
				t.Fatalf("CPU %d counted nothing", s.CPU)
			}
			within(t, "clock of a CPU", time.Duration(*s.Cycles), span*9/10, span*12/10)
			switches += *s.Instructions
		}
		within(t, "context switches", switches, sleeps, 1<<40)
		if samples[2].Cycles != nil {
			t.Errorf("a CPU without counters has counted %d", *samples[2].Cycles)
		}
	})
}

// A CPU that was offline comes back with a group that has lost its second event.
func TestACPUWhoseCountersEndedHasNone(t *testing.T) {
	c := softwareCounters(t)
	one := c.cpus[0]
	if err := unix.Close(one.fds[1]); err != nil {
		t.Fatal(err)
	}
	one.fds[1] = -1
	for range 2 {
		samples := []model.CPUSample{{CPU: 0}, {CPU: 1}}
		if err := c.add(samples); err != nil {
			t.Fatal(err)
		}
		if samples[0].Cycles != nil || samples[0].Instructions != nil || samples[1].Cycles == nil || samples[1].Instructions == nil {
			t.Errorf("CPU 0 counted %v and %v, CPU 1 %v and %v; want nothing and something",
				samples[0].Cycles, samples[0].Instructions, samples[1].Cycles, samples[1].Instructions)
		}
	}
	if one.fds != [2]int{-1, -1} {
		t.Errorf("the counters that ended are still open: %v", one.fds)
	}
}

func TestACounterThatIsRefusedSaysWhatToDo(t *testing.T) {
	testbed.Require(t)
	for errno, want := range map[unix.Errno]string{
		unix.EACCES: "count cycles: permission denied: run with CAP_PERFMON, or set kernel.perf_event_paranoid to 0",
		unix.EBUSY:  "count cycles: device or resource busy: another profiler holds the counters: end it, or do without them",
		unix.EIO:    "count cycles: input/output error",
	} {
		err := advised(fmt.Errorf("count cycles: %w", errno))
		if err.Error() != want || !errors.Is(err, errno) {
			t.Errorf("%v: got %q, want %q", errno, err, want)
		}
	}
	_, err := openCounters([]int{0}, [2]counterEvent{{"nothing", 1 << 20, 0}})
	if want := "count nothing of all that CPU 0 runs (perf_event_open): no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestCountersCanBeLeftToOthers(t *testing.T) {
	b := newBed(t, testbed.Options{})
	s := b.open(t, Options{Interval: liveInterval, NoCounters: true})
	if s.counters != nil || s.lacks(signalCounters) {
		t.Errorf("counters %v, missing %v; want none, and that it was wanted", s.counters, s.missing)
	}
	for _, cpu := range next(t, s).CPUs {
		if cpu.Cycles != nil || cpu.Instructions != nil {
			t.Errorf("CPU %d: cycles %v and instructions %v", cpu.CPU, cpu.Cycles, cpu.Instructions)
		}
	}
}

// Where the hardware counts, all samples have it; where it does not, none, and
// the probe is missing by name if that is only because it is refused.
func TestSamplesHaveCyclesWhereTheHardwareCountsThem(t *testing.T) {
	b := newBed(t, testbed.Options{})
	s := b.open(t, Options{Interval: liveInterval})
	c, err := openCounters([]int{0}, hardwareEvents())
	if err == nil {
		err = c.close()
	}
	for _, cpu := range next(t, s).CPUs {
		if (cpu.Cycles == nil) != (err != nil) || (cpu.Instructions == nil) != (err != nil) {
			t.Errorf("CPU %d: cycles %v and instructions %v, while counting gives %v", cpu.CPU, cpu.Cycles, cpu.Instructions, err)
		}
	}
	if s.lacks(signalCounters) != (err != nil && !noCounters(err)) {
		t.Errorf("missing %v, while counting gives %v", s.missing, err)
	}
}
