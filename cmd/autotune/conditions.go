package main

import (
	"context"
	"reflect"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

// tracedConditions returns the conditions of a host as a trace has them. The
// devices say which are in it, and which instances they have.
func tracedConditions(devices []trace.Device, known model.Conditions) trace.Conditions {
	out := trace.Conditions{
		Devices:         withHardware(devices, known),
		CPUs:            make([]trace.CPU, 0, len(known.CPUs)),
		CPUIdleDriver:   known.CPUIdleDriver,
		CPUIdleGovernor: known.CPUIdleGovernor,
		CPUDMALatency:   known.CPUDMALatency,
		IdleLimit:       known.IdleLimit,
	}
	for _, c := range known.CPUs {
		cpu := trace.CPU{CPU: c.CPU, Governor: c.Governor, ResumeLatency: c.ResumeLatency}
		for _, s := range c.IdleStates {
			cpu.IdleStates = append(cpu.IdleStates, trace.IdleState{Name: s.Name, Latency: s.Latency, Disabled: s.Disabled})
		}
		out.CPUs = append(out.CPUs, cpu)
	}
	return out
}

// conditionsEvery is how often the conditions are read again.
const conditionsEvery = 10 * time.Second

// conditionsWatch writes the conditions to a trace when they have changed.
type conditionsWatch struct {
	// host reads them; where it is nil they are taken for unchanged.
	host interface {
		Conditions(context.Context) (model.Conditions, error)
	}
	last trace.Conditions
	at   time.Duration
}

// changed reads the conditions, at most every ten seconds, and reports whether
// they are others than before. What cannot be read stays unknown in a trace.
func (w *conditionsWatch) changed(at time.Duration) (trace.Conditions, bool) {
	if w.host == nil || at-w.at < conditionsEvery {
		return trace.Conditions{}, false
	}
	w.at = at
	known, _ := w.host.Conditions(context.Background())
	now := tracedConditions(w.last.Devices, known)
	if reflect.DeepEqual(now, w.last) {
		return trace.Conditions{}, false
	}
	w.last = now
	return now, true
}
