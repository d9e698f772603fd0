package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/model"
)

// hostLine is what limits the CPUs, in the output of list --json.
type hostLine struct {
	Kind            string                `json:"kind"` // "host"
	CPUs            []model.CPUConditions `json:"cpus"`
	CPUIdleDriver   *string               `json:"cpuidle_driver"`
	CPUIdleGovernor *string               `json:"cpuidle_governor"`
	CPUDMALatency   *time.Duration        `json:"cpu_dma_latency_ns"`
	IdleLimit       *string               `json:"idle_limit"`
}

// annotate adds what is known of the interrupts, and how far settings reach.
func annotate(lines []napiLine, c model.Conditions, scope actuate.Scope) {
	for i := range lines {
		line := &lines[i]
		line.Scope = scope
		if scope == actuate.ScopeDevice {
			line.IRQSuspendTimeout = nil
		}
		for _, n := range deviceConditions(c, line.Ifindex).NAPIs {
			if n.Queue.Index == line.Queue {
				line.IRQAffinity, line.IRQEffective = n.IRQAffinity, n.IRQEffective
			}
		}
	}
}

func deviceConditions(c model.Conditions, ifindex int) model.DeviceConditions {
	for _, d := range c.Devices {
		if d.Ifindex == ifindex {
			return d
		}
	}
	return model.DeviceConditions{}
}

// printConditions shows what competes with the settings for the same latency.
func printConditions(w io.Writer, devices []actuate.Device, c model.Conditions) error {
	fmt.Fprintln(w)
	t := newTable(w, "DEVICE", "NIC", "SPEED", "ADAPTIVE-RX", "RX-USECS", "RX-FRAMES", "CQE-MODE-RX", "RX-STAMPS")
	for _, d := range devices {
		known := deviceConditions(c, d.Link.Index)
		moderation := known.Coalescing
		if moderation == nil {
			moderation = &model.Coalescing{}
		}
		speed := "-"
		if known.SpeedMbps != nil {
			speed = fmt.Sprintf("%d Mbit/s", *known.SpeedMbps)
		}
		t.row(d.Link.Name, orDash(known.NIC), speed, onOff(moderation.AdaptiveRX), orDash(moderation.RXUsecs), orDash(moderation.RXFrames), onOff(moderation.CQEModeRX), stampingText(known.Stamping))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nfrequency governor: %s\n", counted(c.CPUs, func(c *model.CPUConditions) string { return orDash(c.Governor) }))
	fmt.Fprintf(w, "deepest idle state: %s (driver %s, governor %s)\n", counted(c.CPUs, deepestState), orDash(c.CPUIdleDriver), orDash(c.CPUIdleGovernor))
	_, err := fmt.Fprintf(w, "limit on the exit latency of idle states: %s; on the kernel command line: %s\n",
		limitText(c.CPUDMALatency), dashIfEmpty(textOf(c.IdleLimit)))
	return err
}

// stampingText names a device's clock and which packets it stamps.
func stampingText(s *model.Stamping) string {
	if s == nil {
		return "-"
	}
	filter := "?"
	if s.Filter != nil {
		filter = *s.Filter
	}
	return fmt.Sprintf("%s (ptp%d)", filter, s.Clock)
}

func onOff(v *bool) string {
	switch {
	case v == nil:
		return "-"
	case *v:
		return "on"
	default:
		return "off"
	}
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// deepestState names the deepest idle state that a CPU may enter.
func deepestState(c *model.CPUConditions) string {
	deepest := "-"
	for _, s := range c.IdleStates {
		if !s.Disabled && (c.ResumeLatency == nil || s.Latency <= *c.ResumeLatency) {
			deepest = fmt.Sprintf("%s, %v to leave", s.Name, s.Latency)
		}
	}
	return deepest
}

// counted names what CPUs have, with the number of CPUs that have each.
func counted(cpus []model.CPUConditions, of func(*model.CPUConditions) string) string {
	var names []string
	count := map[string]int{}
	for i := range cpus {
		name := of(&cpus[i])
		if count[name] == 0 {
			names = append(names, name)
		}
		count[name]++
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, model.Count(count[name], "CPU"))
	}
	return dashIfEmpty(strings.Join(names, "; "))
}

func limitText(d *time.Duration) string {
	switch {
	case d == nil:
		return "-"
	case *d == model.NoLatencyLimit:
		return "none"
	default:
		return d.String()
	}
}
