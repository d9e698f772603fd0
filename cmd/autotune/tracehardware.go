package main

import (
	"slices"

	"autotune/model"
	"autotune/probe/trace"
)

// withHardware returns the devices with what is known of their hardware, their
// interrupts and the moderation of those.
func withHardware(devices []trace.Device, known model.Conditions) []trace.Device {
	out := slices.Clone(devices)
	for i := range out {
		d := deviceConditions(known, out[i].Ifindex)
		out[i].Firmware, out[i].BusInfo, out[i].NIC, out[i].SpeedMbps = d.Firmware, d.BusInfo, d.NIC, d.SpeedMbps
		out[i].Coalescing = tracedCoalescing(d.Coalescing)
		out[i].Stamping = d.Stamping
		napis := slices.Clone(out[i].NAPIs)
		for j := range napis {
			for _, n := range d.NAPIs {
				if n.Queue == napis[j].Queue {
					napis[j].IRQAffinity = n.IRQAffinity
				}
			}
		}
		out[i].NAPIs = napis
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
