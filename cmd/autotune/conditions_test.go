package main

import (
	"context"
	"testing"
	"time"

	"autotune/model"
	"autotune/probe/trace"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func TestConditionsOfATraceAreThoseOfTheHost(t *testing.T) {
	irq := uint32(77)
	queue := func(index int) model.Queue { return model.Queue{Netns: 1, Ifindex: 7, Index: index} }
	devices := []trace.Device{
		{Ifindex: 7, Ifname: "eth7", NAPIs: []trace.NAPI{{Queue: queue(0), NAPIID: 8193, IRQ: &irq}, {Queue: queue(1), NAPIID: 8194}}},
		{Ifindex: 8, Ifname: "eth8", NAPIs: []trace.NAPI{}},
	}
	for _, tc := range []struct {
		name  string
		known model.Conditions
		want  trace.Conditions
	}{
		{"one that tells nothing", model.Conditions{}, trace.Conditions{Devices: devices, CPUs: []trace.CPU{}}},
		{"a server", model.Conditions{
			Devices: []model.DeviceConditions{{
				Ifindex: 7, Firmware: ptr("1.2"), SpeedMbps: ptr(uint32(25000)), Coalescing: &model.Coalescing{AdaptiveRX: ptr(true)}, Stamping: &model.Stamping{Clock: 1},
				NAPIs: []model.NAPIConditions{{Queue: queue(0), IRQ: &irq, IRQAffinity: ptr("0-3"), IRQEffective: ptr("2")}, {Queue: queue(1)}},
			}},
			CPUs: []model.CPUConditions{
				{CPU: 0, Governor: ptr("performance"), MinFrequency: ptr(uint64(800000)), IdleStates: []model.IdleState{
					{Name: "POLL"}, {Name: "C6", Latency: 133 * time.Microsecond, Disabled: true},
				}},
				{CPU: 10, ResumeLatency: ptr(time.Duration(0))},
			},
			CPUIdleDriver: ptr("intel_idle"), CPUIdleGovernor: ptr("menu"),
			CPUDMALatency: ptr(20 * time.Microsecond), IdleLimit: ptr("idle=poll"),
		}, trace.Conditions{
			Devices: []trace.Device{
				{
					Ifindex: 7, Ifname: "eth7", Firmware: ptr("1.2"), SpeedMbps: ptr(uint32(25000)), Coalescing: &trace.Coalescing{AdaptiveRX: ptr(true)}, Stamping: &model.Stamping{Clock: 1},
					NAPIs: []trace.NAPI{{Queue: queue(0), NAPIID: 8193, IRQ: &irq, IRQAffinity: ptr("0-3")}, {Queue: queue(1), NAPIID: 8194}},
				},
				{Ifindex: 8, Ifname: "eth8", NAPIs: []trace.NAPI{}},
			},
			CPUs: []trace.CPU{
				{CPU: 0, Governor: ptr("performance"), IdleStates: []trace.IdleState{
					{Name: "POLL"}, {Name: "C6", Latency: 133 * time.Microsecond, Disabled: true},
				}},
				{CPU: 10, ResumeLatency: ptr(time.Duration(0))},
			},
			CPUIdleDriver: ptr("intel_idle"), CPUIdleGovernor: ptr("menu"),
			CPUDMALatency: ptr(20 * time.Microsecond), IdleLimit: ptr("idle=poll"),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tracedConditions(devices, tc.known)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// governed is a host whose governor changes.
type governed struct{ governor string }

func (g *governed) Conditions(context.Context) (model.Conditions, error) {
	return model.Conditions{CPUs: []model.CPUConditions{{Governor: ptr(g.governor)}}}, nil
}

func TestConditionsAreWrittenWhenTheyChange(t *testing.T) {
	host := &governed{"powersave"}
	known, _ := host.Conditions(t.Context())
	w := conditionsWatch{host: host, last: tracedConditions(nil, known)}
	if _, changed := w.changed(11 * time.Second); changed {
		t.Error("nothing had changed")
	}
	host.governor = "performance"
	if _, changed := w.changed(12 * time.Second); changed {
		t.Error("read again after a second")
	}
	now, changed := w.changed(22 * time.Second)
	if !changed || *now.CPUs[0].Governor != "performance" {
		t.Errorf("%v, %+v", changed, now)
	}
	if _, changed := w.changed(33 * time.Second); changed {
		t.Error("written twice")
	}
	w.host = nil
	if _, changed := w.changed(60 * time.Second); changed {
		t.Error("written without a host to ask")
	}
}
