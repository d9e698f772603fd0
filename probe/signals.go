package probe

// Signal is one thing that samples can tell of.
type Signal struct {
	Name string
	// Observed tells that they do. Where they do not, [Source.Missing] says why,
	// unless it was not asked for ([Options]). It also names those that are
	// observed in part.
	Observed bool
}

// Signals lists all signals, in a fixed order; performance counters and
// receive time stamps only where the hardware has them.
func (s *Source) Signals() []Signal {
	var out []Signal
	for _, group := range signals() {
		out = append(out, Signal{Name: group.name, Observed: s.kernel.observes(group.name)})
	}
	if s.counters != nil || s.lacks(signalCounters) {
		out = append(out, Signal{Name: signalCounters, Observed: s.counters != nil})
	}
	if s.stamps != nil && (len(s.stamps.byIfindex) > 0 || s.stamps.err != nil) {
		out = append(out, Signal{Name: signalStamps, Observed: len(s.stamps.clocks) > 0})
	}
	return append(out,
		Signal{Name: signalSoftirqTimes, Observed: s.kernel.observes(signalSoftirqTimes)},
		Signal{Name: signalEpollReturns, Observed: s.kernel.observes(signalEpollReturns)},
		Signal{Name: signalContexts, Observed: s.contexts != nil},
		Signal{Name: signalCost, Observed: !s.lacks(signalCost)},
	)
}

func (s *Source) lacks(name string) bool {
	for _, m := range s.missing {
		if m.Name == name {
			return true
		}
	}
	return false
}
