package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
	"autotune/probe/trace"

	"golang.org/x/sys/unix"
)

// traceFacts are what the header of a trace is made of.
type traceFacts struct {
	host     *actuate.Host
	source   *probe.Source
	napis    []model.NAPI
	serving  map[model.Queue][]int
	interval time.Duration
}

// header describes this host and the recording that begins now.
func (f traceFacts) header() (trace.Header, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return trace.Header{}, fmt.Errorf("read the kernel's version: %w", err)
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return trace.Header{}, fmt.Errorf("read the boot ID: %w", err)
	}
	boot, err := bootTime()
	if err != nil {
		return trace.Header{}, err
	}
	wall := time.Now().UTC()
	return trace.Header{
		AutotuneVersion: version(),
		Host:            unix.ByteSliceToString(name.Nodename[:]),
		Kernel:          unix.ByteSliceToString(name.Release[:]),
		Machine:         unix.ByteSliceToString(name.Machine[:]),
		BootID:          strings.TrimSpace(string(bootID)),
		Clock:           "CLOCK_BOOTTIME",
		StartedAt:       wall.Sub(boot),
		StartedWall:     &wall,
		Interval:        f.interval,
		Probes:          f.probes(),
		Conditions:      f.conditions(),
	}, nil
}

// probes lists every signal of the source and whether it is observed.
func (f traceFacts) probes() []trace.Probe {
	missing := make(map[string]probe.Missing)
	for _, m := range f.source.Missing() {
		missing[m.Name] = m
	}
	probes := []trace.Probe{}
	for _, s := range f.source.Signals() {
		p := trace.Probe{Name: s.Name, State: model.FindingOK}
		switch m, ok := missing[s.Name]; {
		case ok && s.Observed:
			p.State, p.Detail = model.FindingDegraded, fmt.Sprintf("%v; without it: %s", m.Err, m.Lost)
		case ok:
			p.State, p.Detail = model.FindingMissing, fmt.Sprintf("%v; without it: %s", m.Err, m.Lost)
		case !s.Observed:
			p.State, p.Detail = model.FindingMissing, "not asked for"
		}
		probes = append(probes, p)
	}
	return probes
}

// conditions are the facts of the host outside the tuned knobs.
func (f traceFacts) conditions() trace.Conditions {
	devices := []trace.Device{}
	for _, d := range f.host.Devices() {
		device := trace.Device{Ifindex: d.Link.Index, Ifname: d.Link.Name, NAPIs: []trace.NAPI{}}
		if d.Link.Driver != "" {
			device.Driver = &d.Link.Driver
		}
		for _, n := range f.napis {
			if n.Queue.Ifindex != d.Link.Index {
				continue
			}
			device.Netns = n.Queue.Netns
			device.NAPIs = append(device.NAPIs, trace.NAPI{
				Queue: n.Queue, NAPIID: n.ID, Mapping: n.Mapping, IRQ: n.IRQ, Threaded: n.Threaded, Settings: n.Settings,
				CPUs: f.serving[n.Queue],
			})
		}
		devices = append(devices, device)
	}
	// What cannot be read stays unknown in a trace.
	known, _ := f.host.Conditions(context.Background())
	return tracedConditions(devices, known)
}

// version is what built this program: a module version, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	if commit == "" {
		return info.Main.Version
	}
	return info.Main.Version + " " + commit + modified
}
