package main

import (
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/model"
)

func TestConditionsForPeople(t *testing.T) {
	usecs, on, speed, governor, limit, all := uint32(8), true, uint32(100000), "powersave", 20*time.Microsecond, "all"
	states := []model.IdleState{{Name: "POLL"}, {Name: "C1", Latency: 2 * time.Microsecond}, {Name: "C6", Latency: 133 * time.Microsecond}}
	disabled := []model.IdleState{{Name: "POLL"}, {Name: "C1", Latency: 2 * time.Microsecond, Disabled: true}}
	c := model.Conditions{
		Devices: []model.DeviceConditions{{Ifindex: 2, SpeedMbps: &speed, Coalescing: &model.Coalescing{RXUsecs: &usecs, AdaptiveRX: &on}, Stamping: &model.Stamping{Clock: 1, Filter: &all}}},
		CPUs: []model.CPUConditions{
			{CPU: 0, Governor: &governor, IdleStates: states, ResumeLatency: &limit}, {CPU: 1, Governor: &governor, IdleStates: states},
			{CPU: 2, Governor: &governor, IdleStates: disabled},
		},
	}
	noLimit := model.NoLatencyLimit
	c.CPUDMALatency = &noLimit
	var out strings.Builder
	err := printConditions(&out, []actuate.Device{{Link: actuate.Link{Name: "eth0", Index: 2}}, {Link: actuate.Link{Name: "veth0", Index: 3}}}, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"eth0    -    100000 Mbit/s  on           8         -          -            all (ptp1)", "veth0   -    -              -            -         -          -            -",
		"frequency governor: powersave (3 CPUs)",
		"deepest idle state: C1, 2µs to leave (1 CPU); C6, 133µs to leave (1 CPU); POLL, 0s to leave (1 CPU) (driver -, governor -)",
		"limit on the exit latency of idle states: none; on the kernel command line: -",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestDeviceWideLinesHaveNoSuspendTimeout(t *testing.T) {
	affinity := "0-3"
	lines := describe([]model.NAPI{{Queue: model.Queue{Ifindex: 2}, Mapping: model.MappingNone}}, nil, nil)
	annotate(lines, model.Conditions{Devices: []model.DeviceConditions{{
		Ifindex: 2, NAPIs: []model.NAPIConditions{{Queue: model.Queue{Ifindex: 2}, IRQAffinity: &affinity}},
	}}}, actuate.ScopeDevice)
	l := lines[0]
	if l.NAPIID != nil || l.IRQSuspendTimeout != nil || l.DeferHardIRQs == nil || l.Scope != actuate.ScopeDevice || l.IRQAffinity == nil || *l.IRQAffinity != affinity {
		t.Errorf("%+v", l)
	}
}

func TestListSaysWhatFollowsWhereGROIsOff(t *testing.T) {
	device := func(index int, name, kind string) actuate.Device {
		return actuate.Device{Link: actuate.Link{Index: index, Name: name, Kind: kind, Up: true}}
	}
	devices := []actuate.Device{device(1, "off0", ""), device(2, "on0", ""), device(3, "veth0", "veth"), device(4, "dummy0", "dummy"), device(5, "unknown0", "")}
	lines := []napiLine{{Ifindex: 1}, {Ifindex: 2}, {Ifindex: 5}}
	var out strings.Builder
	printGRO(&out, devices, lines, map[int]bool{1: false, 2: true, 3: false, 4: false})
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(said) != 2 || !strings.HasPrefix(said[0], "off0: GRO is off") || !strings.HasPrefix(said[1], "veth0: not listed") ||
		!strings.Contains(said[0], "ethtool -K off0 gro on") || !strings.Contains(said[1], "ethtool -K veth0 gro on") {
		t.Errorf("it says %q", said)
	}
}
