package sim

// Totals are what a simulated host did in all windows so far. Only a simulator
// knows them: a live host sees neither the requests that are due nor the cycles
// that it takes to leave idle states.
type Totals struct {
	// Due is the number of requests that clients wanted to send, Served that
	// of the responses that they got, and Dropped that of packets that found
	// the ring full.
	Due, Served, Dropped uint64
	// Packets is the number of packets polled.
	Packets uint64
	// Cycles are those of all cores, idle exits included.
	Cycles float64
	// BusySeconds is the core time behind Cycles.
	BusySeconds float64
}

// Totals returns the totals of all windows so far, warm-up excluded.
func (s *Simulator) Totals() Totals {
	c := &s.total
	busy := float64(c.softirq+c.thread+c.idleExit) / 1e9
	return Totals{
		Due: c.due, Served: c.served, Dropped: c.dropped,
		Packets:     c.softirqPolls.Packets + c.busyPolls.Packets,
		Cycles:      busy * s.options.Preset.Host.ClockMHz * 1e6,
		BusySeconds: busy,
	}
}
