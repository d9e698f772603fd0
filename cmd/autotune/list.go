package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"autotune/actuate"
	"autotune/model"
)

type listCmd struct {
	Iface string `arg:"" optional:"" help:"Only this interface; all that have NAPI instances by default."`
	Netns string `help:"Network namespace, by name or path." placeholder:"NAME|PATH"`

	Live        bool           `help:"What each instance does: rates, loops and delays, window by window."`
	Interval    *time.Duration `help:"With --live: length of a window; 1s by default." placeholder:"DURATION"`
	Duration    time.Duration  `help:"With --live: end after this time; until stopped by default."`
	ProbeBudget probeBudget    `help:"With --live: share of a CPU that the probes may take before they sample less, 1% by default; none: no limit." name:"probe-budget" placeholder:"PERCENT"`
	JSON        bool           `help:"One object per line." name:"json"`
}

// napiLine is one NAPI instance in the output of list --json.
type napiLine struct {
	Kind    string  `json:"kind"` // "napi"
	Netns   uint64  `json:"netns"`
	Ifname  string  `json:"ifname"`
	Ifindex int     `json:"ifindex"`
	Queue   int     `json:"queue"`
	NAPIID  *uint32 `json:"napi_id"`
	IRQ     *uint32 `json:"irq"`
	// IRQAffinity and IRQEffective are lists of CPUs.
	IRQAffinity  *string       `json:"irq_affinity"`
	IRQEffective *string       `json:"irq_effective_affinity"`
	PID          *uint32       `json:"pid"`
	Driver       string        `json:"driver"`
	Mapping      model.Mapping `json:"mapping"`

	DeferHardIRQs     *uint32 `json:"defer_hard_irqs"`
	GROFlushTimeout   *int64  `json:"gro_flush_timeout_ns"`
	IRQSuspendTimeout *int64  `json:"irq_suspend_timeout_ns"`
	Threaded          *uint32 `json:"threaded"`

	Tunable bool    `json:"tunable"`
	WhyNot  *string `json:"why_not"`
	// Scope is how far a setting reaches.
	Scope actuate.Scope `json:"scope"`
}

// deviceLine is one interface in the output of list --json.
type deviceLine struct {
	Kind    string `json:"kind"` // "device"
	Netns   uint64 `json:"netns"`
	Ifname  string `json:"ifname"`
	Ifindex int    `json:"ifindex"`
	Driver  string `json:"driver"`
	// TransmitOnly counts queues whose NAPI instance has no ID: they receive
	// nothing and cannot be tuned.
	TransmitOnly int `json:"transmit_only"`
	// GRO tells whether the device merges received packets.
	GRO *bool `json:"gro"`

	Firmware   *string           `json:"firmware"`
	BusInfo    *string           `json:"bus_info"`
	NIC        *string           `json:"nic"`
	SpeedMbps  *uint32           `json:"speed_mbps"`
	Coalescing *model.Coalescing `json:"coalescing"`
}

// Run implements the command.
func (c *listCmd) Run(ctx context.Context, std streams) (err error) {
	if err := c.checkLive(); err != nil {
		return usageError(err)
	}
	host, err := openToLook(ctx, c.Netns, c.Iface)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if c.Live {
		return c.live(ctx, std, host)
	}
	napis, listErr := host.NAPIs(ctx)
	if len(napis) == 0 && listErr != nil {
		return openError(listErr)
	}
	lines := describe(napis, whyNot(listErr), host.Privilege())
	conditions, err := host.Conditions(ctx)
	if err != nil {
		fmt.Fprintln(std.err, err)
	}
	annotate(lines, conditions, host.Scope())
	if c.JSON {
		return c.printJSON(std, lines, host.Devices(), host.GRO(), conditions)
	}
	if err := host.DeviceWide(); err != nil && len(lines) > 0 {
		fmt.Fprintln(std.out, deviceWideText(err))
	}
	return c.print(std, lines, host.Devices(), host.GRO(), conditions)
}

// openToLook opens an interface, or all where none is named, to read only.
func openToLook(ctx context.Context, netns, iface string) (*actuate.Host, error) {
	var ifaces []string
	if iface != "" {
		ifaces = []string{iface}
	}
	host, err := actuate.Open(ctx, actuate.Options{Namespace: actuate.ParseNamespace(netns), Ifaces: ifaces, ReadOnly: true})
	if err != nil {
		return nil, openError(err)
	}
	return host, nil
}

// whyNot sorts what could not be read by queue.
func whyNot(err error) map[model.Queue]error {
	out := make(map[model.Queue]error)
	var walk func(error)
	walk = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
			return
		}
		var q *model.QueueError
		if errors.As(err, &q) {
			out[q.Queue] = q.Err
		}
	}
	walk(err)
	return out
}

// describe makes the lines. unread says of which queue the settings could not
// be read; privilege is why nothing could be written, nil where it could.
func describe(napis []model.NAPI, unread map[model.Queue]error, privilege error) []napiLine {
	var lines []napiLine
	for _, n := range napis {
		line := napiLine{
			Kind: "napi", Netns: n.Queue.Netns, Ifname: n.Ifname, Ifindex: n.Queue.Ifindex, Queue: n.Queue.Index,
			IRQ: n.IRQ, PID: n.PID, Driver: n.Driver, Mapping: n.Mapping, Threaded: n.Threaded,
			Tunable: true,
		}
		if n.ID != 0 {
			line.NAPIID = &n.ID
		}
		refuse := func(err error) {
			why := err.Error()
			line.Tunable, line.WhyNot = false, &why
		}
		if err := unread[n.Queue]; err != nil {
			refuse(err)
		} else {
			flush, suspend := int64(n.Settings.GROFlushTimeout), int64(n.Settings.IRQSuspendTimeout)
			line.DeferHardIRQs, line.GROFlushTimeout, line.IRQSuspendTimeout = &n.Settings.DeferHardIRQs, &flush, &suspend
			if privilege != nil {
				refuse(privilege)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (c *listCmd) printJSON(std streams, lines []napiLine, devices []actuate.Device, gro map[int]bool, conditions model.Conditions) error {
	for _, line := range lines {
		if err := printJSON(std.out, line); err != nil {
			return err
		}
	}
	for _, d := range withNAPIs(devices, lines) {
		known := deviceConditions(conditions, d.Link.Index)
		var merges *bool
		if on, ok := gro[d.Link.Index]; ok {
			merges = &on
		}
		if err := printJSON(std.out, deviceLine{
			Kind: "device", Netns: lines[0].Netns, Ifname: d.Link.Name, Ifindex: d.Link.Index,
			Driver: d.Link.Driver, TransmitOnly: d.Untunable, GRO: merges,
			Firmware: known.Firmware, BusInfo: known.BusInfo, NIC: known.NIC, SpeedMbps: known.SpeedMbps, Coalescing: known.Coalescing,
		}); err != nil {
			return err
		}
	}
	return printJSON(std.out, hostLine{
		Kind: "host", CPUs: conditions.CPUs, CPUIdleDriver: conditions.CPUIdleDriver, CPUIdleGovernor: conditions.CPUIdleGovernor,
		CPUDMALatency: conditions.CPUDMALatency, IdleLimit: conditions.IdleLimit,
	})
}

// deviceWideText announces the mode of kernels without napi-set.
func deviceWideText(why error) string {
	return fmt.Sprintf("device-wide (sysfs): all queues of a device have one setting, and interrupts cannot be suspended (%v)", why)
}

// withNAPIs leaves out devices that have nothing to show.
func withNAPIs(devices []actuate.Device, lines []napiLine) []actuate.Device {
	var out []actuate.Device
	for _, d := range devices {
		for _, line := range lines {
			if line.Ifindex == d.Link.Index {
				out = append(out, d)
				break
			}
		}
	}
	return out
}

func (c *listCmd) print(std streams, lines []napiLine, devices []actuate.Device, gro map[int]bool, conditions model.Conditions) error {
	if len(lines) == 0 {
		fmt.Fprintln(std.out, "no interface here has a NAPI instance with an ID")
		printGRO(std.out, devices, lines, gro)
		return nil
	}
	t := newTable(std.out, "DEVICE", "QUEUE", "NAPI", "IRQ", "CPUS", "PID", "DRIVER", "MAPPING", "DEFER", "FLUSH", "SUSPEND", "THREADED", "TUNABLE")
	for _, line := range lines {
		tunable := "yes"
		if line.Scope == actuate.ScopeDevice {
			tunable = "device-wide"
		}
		if !line.Tunable {
			tunable = "no: " + *line.WhyNot
		}
		t.row(line.Ifname, fmt.Sprint(line.Queue), orDash(line.NAPIID), orDash(line.IRQ), orDash(line.IRQEffective), orDash(line.PID), dashIfEmpty(line.Driver),
			string(line.Mapping), orDash(line.DeferHardIRQs), orDashTime(line.GROFlushTimeout), orDashTime(line.IRQSuspendTimeout),
			threadedText(line.Threaded), tunable)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, d := range withNAPIs(devices, lines) {
		if d.Untunable > 0 {
			fmt.Fprintf(std.out, "%s: besides, %s only for transmission, without a NAPI ID\n", d.Link.Name, model.Count(d.Untunable, "queue"))
		}
	}
	printGRO(std.out, devices, lines, gro)
	return printConditions(std.out, withNAPIs(devices, lines), conditions)
}

// printGRO says what follows where GRO is off.
func printGRO(w io.Writer, devices []actuate.Device, lines []napiLine, gro map[int]bool) {
	shown := withNAPIs(devices, lines)
	for _, d := range devices {
		on, known := gro[d.Link.Index]
		if on || !known {
			continue
		}
		switch {
		case slices.ContainsFunc(shown, func(s actuate.Device) bool { return s.Link.Index == d.Link.Index }):
			fmt.Fprintf(w, "%s: GRO is off: no timeout makes packets merge, so a longer flush timeout saves polls and interrupts only (`ethtool -K %[1]s gro on`)\n", d.Link.Name)
		case d.Link.Kind == "veth" && d.Link.Up:
			fmt.Fprintf(w, "%s: not listed, as a veth has NAPI instances only with GRO on (`ethtool -K %[1]s gro on`)\n", d.Link.Name)
		}
	}
}

func dashIfEmpty(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orDashTime(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return time.Duration(*ns).String()
}

// threadedText names the values of enum netdev_napi_threaded
// (include/uapi/linux/netdev.h).
func threadedText(v *uint32) string {
	switch {
	case v == nil:
		return "-"
	case *v == 0:
		return "no"
	case *v == 1:
		return "yes"
	case *v == 2:
		return "busy-poll"
	default:
		return fmt.Sprint(*v)
	}
}
