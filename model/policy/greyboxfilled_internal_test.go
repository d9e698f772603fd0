package policy

import (
	"testing"
	"time"
)

// A dip, in which a packet costs more, does not foretell a full CPU for the load
// that comes back.
func TestADipForetellsNoFullCPU(t *testing.T) {
	p := mustGreybox(t)
	f := readyFeatures(0)
	f.PacketRate, f.CostPerPacket, f.Utilisation = 228_000, 3450*time.Nanosecond, 0.79
	f.Active.GROFlushTimeout = 20 * time.Microsecond
	for range 30 {
		p.Decide(f)
	}
	busy := f.Utilisation
	f.PacketRate, f.CostPerPacket, f.Utilisation, f.RateChange = 76_000, 4500*time.Nanosecond, 0.34, -2.0/3
	q := p.queues[f.Queue]
	q.learn(&f)
	c := newGreyboxChoice(p, q, p.devices[greyboxDeviceKey{1, 2}], &f)
	if c.rate < 200_000 {
		t.Fatalf("prepares for %.0f packets/s, want the load before the dip", c.rate)
	}
	if got := c.now.busiest; got < busy-0.1 || got > busy+0.1 {
		t.Errorf("at %.0f packets/s the CPU is predicted to be %.0f%% busy, want about the %.0f%% that it was", c.rate, 100*got, 100*busy)
	}
}
