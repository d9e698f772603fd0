package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/probe/trace"
)

// hostFiles is where the kernel tells of CPUs and interrupts; tests have their
// own.
type hostFiles struct {
	// root is the directory that sys, proc and dev are in.
	root string
}

// text returns what a file says, nil where there is none.
func (h hostFiles) text(format string, args ...any) *string {
	data, err := os.ReadFile(filepath.Join(h.root, fmt.Sprintf(format, args...)))
	if err != nil {
		return nil
	}
	text := strings.TrimSpace(string(data))
	return &text
}

// microseconds returns what a file says in microseconds.
func (h hostFiles) microseconds(format string, args ...any) *time.Duration {
	text := h.text(format, args...)
	if text == nil {
		return nil
	}
	n, err := strconv.ParseInt(*text, 10, 32)
	if err != nil {
		return nil
	}
	d := time.Duration(n) * time.Microsecond
	return &d
}

// dmaLatency reads the host-wide limit, a binary s32 in microseconds
// (kernel/power/qos.c, cpu_latency_qos_read).
func (h hostFiles) dmaLatency() *time.Duration {
	data := make([]byte, 4)
	f, err := os.Open(filepath.Join(h.root, "dev/cpu_dma_latency"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read
	if n, err := f.Read(data); err != nil || n != len(data) {
		return nil
	}
	d := time.Duration(int32(binary.NativeEndian.Uint32(data))) * time.Microsecond
	return &d
}

// idleLimit is what the kernel command line says on idle states.
func (h hostFiles) idleLimit() *string {
	line := h.text("proc/cmdline")
	if line == nil {
		return nil
	}
	var said []string
	for _, word := range strings.Fields(*line) {
		name, _, _ := strings.Cut(word, "=")
		switch name {
		case "idle", "nohlt", "cpuidle.off", "cpuidle.governor", "intel_idle.max_cstate", "intel_idle.states_off", "processor.max_cstate", "cpuidle_haltpoll.force":
			said = append(said, word)
		}
	}
	limit := strings.Join(said, " ")
	return &limit
}

// cpus tells what limits each CPU, in their order.
func (h hostFiles) cpus() []trace.CPU {
	out := []trace.CPU{}
	const base = "sys/devices/system/cpu"
	dirs, _ := filepath.Glob(filepath.Join(h.root, base, "cpu[0-9]*"))
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "cpu"))
		if err != nil {
			continue
		}
		out = append(out, trace.CPU{
			CPU:           n,
			Governor:      h.text("%s/cpu%d/cpufreq/scaling_governor", base, n),
			ResumeLatency: h.resumeLatency(fmt.Sprintf("%s/cpu%d", base, n)),
			IdleStates:    h.idleStates(fmt.Sprintf("%s/cpu%d/cpuidle", base, n)),
		})
	}
	slices.SortFunc(out, func(a, b trace.CPU) int { return cmp.Compare(a.CPU, b.CPU) })
	return out
}

// resumeLatency is the limit on a CPU's idle states, nil where there is none: 0
// is no limit, and "n/a" is a limit of 0 (pm_qos_resume_latency_us_show in
// drivers/base/power/sysfs.c).
func (h hostFiles) resumeLatency(cpu string) *time.Duration {
	switch text := h.text("%s/power/pm_qos_resume_latency_us", cpu); {
	case text == nil || *text == "0":
		return nil
	case *text == "n/a":
		return new(time.Duration)
	}
	return h.microseconds("%s/power/pm_qos_resume_latency_us", cpu)
}

func (h hostFiles) idleStates(base string) []trace.IdleState {
	var out []trace.IdleState
	for i := 0; ; i++ {
		name := h.text("%s/state%d/name", base, i)
		if name == nil {
			return out
		}
		state := trace.IdleState{Name: *name}
		if latency := h.microseconds("%s/state%d/latency", base, i); latency != nil {
			state.Latency = *latency
		}
		disabled := h.text("%s/state%d/disable", base, i)
		state.Disabled = disabled != nil && *disabled != "0"
		out = append(out, state)
	}
}

// conditions reads what competes for the latency of the devices, whose own
// part is given.
func (h hostFiles) conditions(devices []trace.Device) trace.Conditions {
	out := trace.Conditions{
		Devices:         slices.Clone(devices),
		CPUs:            h.cpus(),
		CPUIdleDriver:   h.text("sys/devices/system/cpu/cpuidle/current_driver"),
		CPUIdleGovernor: h.text("sys/devices/system/cpu/cpuidle/current_governor"),
		CPUDMALatency:   h.dmaLatency(),
		IdleLimit:       h.idleLimit(),
	}
	for i := range out.Devices {
		napis := slices.Clone(out.Devices[i].NAPIs)
		for j := range napis {
			if irq := napis[j].IRQ; irq != nil {
				napis[j].IRQAffinity = h.text("proc/irq/%d/smp_affinity_list", *irq)
			}
		}
		out.Devices[i].NAPIs = napis
	}
	return out
}

// conditionsEvery is how often the conditions are read again.
const conditionsEvery = 10 * time.Second

// conditionsWatch writes the conditions to a trace when they have changed.
type conditionsWatch struct {
	files hostFiles
	// host tells of the devices; where it is nil they are taken for unchanged.
	host *actuate.Host
	last trace.Conditions
	at   time.Duration
}

// changed reads the conditions, at most every ten seconds, and reports whether
// they are others than before.
func (w *conditionsWatch) changed(at time.Duration) (trace.Conditions, bool) {
	if at-w.at < conditionsEvery {
		return trace.Conditions{}, false
	}
	w.at = at
	devices := w.last.Devices
	if w.host != nil {
		devices = withHardware(devices, w.host)
	}
	now := w.files.conditions(devices)
	if reflect.DeepEqual(now, w.last) {
		return trace.Conditions{}, false
	}
	w.last = now
	return now, true
}
