package model

import "time"

// PublishedCase is one setting of the measurements that came with IRQ
// suspension (Joe Damato and Martin Karsten, "Suspend IRQs during application
// busy periods", version 6, November 2024; netdev).
type PublishedCase struct {
	Name     string
	Settings Settings
}

// PublishedCases returns the twelve cases in the order of the published table.
// The cases that busy poll say so in [Settings.BusyPoll]; all others leave the
// application as it is.
func PublishedCases() []PublishedCase {
	const budget = 64
	deferral := func(name string, flush time.Duration, poll BusyPoll) PublishedCase {
		return PublishedCase{name, Settings{DeferHardIRQs: 100, GROFlushTimeout: flush, BusyPoll: poll}}
	}
	suspension := func(name string, flush time.Duration) PublishedCase {
		c := deferral(name, flush, BusyPoll{Budget: budget, Prefer: true})
		c.Settings.IRQSuspendTimeout = 20 * time.Millisecond
		return c
	}
	// Without deferral suspension has no effect; the published runs show it.
	suspend0 := suspension("suspend0", 0)
	suspend0.Settings.DeferHardIRQs = 0
	own := BusyPoll{}
	return []PublishedCase{
		{Name: "base"},
		deferral("defer10", 10*time.Microsecond, own),
		deferral("defer20", 20*time.Microsecond, own),
		deferral("defer50", 50*time.Microsecond, own),
		deferral("defer200", 200*time.Microsecond, own),
		deferral("fullbusy", 5*time.Millisecond, BusyPoll{Span: time.Millisecond, Budget: budget, Prefer: true}),
		deferral("napibusy", 200*time.Microsecond, BusyPoll{Span: 64 * time.Microsecond, Budget: budget, Prefer: true}),
		suspend0,
		suspension("suspend10", 10*time.Microsecond),
		suspension("suspend20", 20*time.Microsecond),
		suspension("suspend50", 50*time.Microsecond),
		suspension("suspend200", 200*time.Microsecond),
	}
}
