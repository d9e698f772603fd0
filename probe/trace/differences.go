package trace

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Differences says in what two recordings do not compare: idle states and their
// limits, frequency governors, and interrupt moderation and receive time stamps
// of the devices that both have, by name. What one of them does not know is no difference. It is
// empty where they compare.
func (c Conditions) Differences(o Conditions) []string {
	var out []string
	text := func(what string, a, b *string) {
		if a != nil && b != nil && *a != *b {
			out = append(out, fmt.Sprintf("%s %s and %s", what, orNone(*a), orNone(*b)))
		}
	}
	text("cpuidle driver", c.CPUIdleDriver, o.CPUIdleDriver)
	text("cpuidle governor", c.CPUIdleGovernor, o.CPUIdleGovernor)
	text("idle states limited on the kernel command line by", c.IdleLimit, o.IdleLimit)
	if a, b := c.CPUDMALatency, o.CPUDMALatency; a != nil && b != nil && *a != *b {
		out = append(out, fmt.Sprintf("/dev/cpu_dma_latency %v and %v", *a, *b))
	}
	out = append(out, cpuDifferences(c.CPUs, o.CPUs)...)
	for _, d := range c.Devices {
		i := slices.IndexFunc(o.Devices, func(e Device) bool { return e.Ifname == d.Ifname })
		if i < 0 {
			continue
		}
		if a, b := d.Stamping, o.Devices[i].Stamping; a != nil && b != nil {
			text("receive time stamps of "+d.Ifname, a.Filter, b.Filter)
		}
		if d.Coalescing == nil || o.Devices[i].Coalescing == nil {
			continue
		}
		if fields := d.Coalescing.differences(o.Devices[i].Coalescing); len(fields) > 0 {
			out = append(out, fmt.Sprintf("interrupt moderation of %s: %s", d.Ifname, strings.Join(fields, ", ")))
		}
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// cpuDifferences has a line for each thing in which CPUs differ, with the first
// of them and their number.
func cpuDifferences(a, b []CPU) []string {
	type difference struct {
		first string
		n     int
	}
	var order []string
	found := map[string]*difference{}
	note := func(what string, cpu int, x, y any) {
		d := found[what]
		if d == nil {
			d = &difference{first: fmt.Sprintf("%s of CPU %d: %v and %v", what, cpu, x, y)}
			found[what] = d
			order = append(order, what)
		}
		d.n++
	}
	for _, x := range a {
		i := slices.IndexFunc(b, func(y CPU) bool { return y.CPU == x.CPU })
		if i < 0 {
			continue
		}
		y := b[i]
		if x.Governor != nil && y.Governor != nil && *x.Governor != *y.Governor {
			note("frequency governor", x.CPU, *x.Governor, *y.Governor)
		}
		if l, m := latencyText(x.ResumeLatency), latencyText(y.ResumeLatency); l != m {
			note("limit on the latency of idle states", x.CPU, l, m)
		}
		if x.IdleStates != nil && y.IdleStates != nil && !slices.Equal(x.IdleStates, y.IdleStates) {
			note("idle states", x.CPU, idleText(x.IdleStates), idleText(y.IdleStates))
		}
	}
	var out []string
	for _, what := range order {
		line := found[what].first
		if n := found[what].n; n > 1 {
			line += fmt.Sprintf(" (and of %d more)", n-1)
		}
		out = append(out, line)
	}
	return out
}

// latencyText is the limit of a CPU, nil being none.
func latencyText(d *time.Duration) string {
	if d == nil {
		return "none"
	}
	return d.String()
}

func idleText(states []IdleState) string {
	var names []string
	for _, s := range states {
		name := fmt.Sprintf("%s (%v", s.Name, s.Latency)
		if s.Disabled {
			name += ", disabled"
		}
		names = append(names, name+")")
	}
	return strings.Join(names, " ")
}

// differences names the fields that both know and that differ, with their
// values.
func (c *Coalescing) differences(o *Coalescing) []string {
	var out []string
	a, b := reflect.ValueOf(*c), reflect.ValueOf(*o)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.IsNil() || y.IsNil() || x.Elem().Equal(y.Elem()) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %v and %v", a.Type().Field(i).Tag.Get("json"), x.Elem(), y.Elem()))
	}
	return out
}
