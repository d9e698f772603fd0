package main

import (
	"context"
	"slices"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe/trace"
)

// withHardware returns the devices with what is known of their hardware and of
// its interrupt moderation. What cannot be read stays unknown in a trace.
func withHardware(devices []trace.Device, host *actuate.Host) []trace.Device {
	known, _ := host.Conditions(context.Background())
	out := slices.Clone(devices)
	for i := range out {
		d := deviceConditions(known, out[i].Ifindex)
		out[i].Firmware, out[i].BusInfo, out[i].NIC, out[i].SpeedMbps = d.Firmware, d.BusInfo, d.NIC, d.SpeedMbps
		out[i].Coalescing = tracedCoalescing(d.Coalescing)
	}
	return out
}

func tracedCoalescing(c *model.Coalescing) *trace.Coalescing {
	if c == nil {
		return nil
	}
	return &trace.Coalescing{
		AdaptiveRX: c.AdaptiveRX, AdaptiveTX: c.AdaptiveTX, RXUsecs: c.RXUsecs, RXFrames: c.RXFrames, TXUsecs: c.TXUsecs, TXFrames: c.TXFrames,
		CQEModeRX: c.CQEModeRX, CQEModeTX: c.CQEModeTX,
	}
}
