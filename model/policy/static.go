package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"autotune/model"
)

// Static orders one setting and keeps to it.
type Static struct {
	name     string
	settings model.Settings
}

const staticExample = "write static:defer=100,flush=50us[,suspend=20ms], or static:case=suspend20"

func staticKind() Kind {
	return Kind{
		Name:    "static",
		Usage:   "static:defer=100,flush=50us[,suspend=20ms][,usecs=0us,budget=64,prefer=on] or static:case=suspend20",
		Summary: "applies one setting at once",
		keys:    []string{"defer", "flush", "suspend", "usecs", "budget", "prefer", "case"},
		make:    makeStatic,
	}
}

func makeStatic(a *arguments) (model.Policy, error) {
	if name, ok := a.values["case"]; ok {
		if len(a.values) > 1 {
			return nil, errors.New("case stands for a whole setting; leave the other keys out")
		}
		return staticCase(name)
	}
	s := model.Settings{
		DeferHardIRQs:     uint32(a.uint("defer", 0, model.MaxDeferHardIRQs)),
		GROFlushTimeout:   a.duration("flush", 0, 0, math.MaxInt64),
		IRQSuspendTimeout: a.duration("suspend", 0, 0, math.MaxInt64),
	}
	own := a.has("usecs") || a.has("budget") || a.has("prefer")
	if own {
		s.BusyPoll = model.BusyPoll{
			Span:   a.duration("usecs", 0, 0, time.Second),
			Budget: uint16(a.count("budget", pollBudget, 1, math.MaxUint16)),
			Prefer: a.onOff("prefer"),
		}
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case s.BusyPoll.Span%time.Microsecond != 0:
		return nil, fmt.Errorf("usecs=%v is not in whole microseconds", s.BusyPoll.Span)
	case a.has("suspend") && (!a.has("defer") || !a.has("flush")):
		return nil, errors.New("suspend needs defer and flush; write static:defer=100,flush=50us,suspend=20ms")
	case s.IRQSuspendTimeout > 0 && s.Mode() != model.ModeSuspension:
		return nil, errors.New("suspend has no effect with defer or flush at 0; write static:defer=100,flush=50us,suspend=20ms")
	case s.DeferHardIRQs > 0 && !a.has("flush"):
		return nil, errors.New("defer has no effect without flush; write static:defer=100,flush=50us")
	case !a.has("defer") && !a.has("flush"):
		return nil, errors.New("nothing to set; " + staticExample)
	case s.DeferHardIRQs > 0 && s.GROFlushTimeout == 0:
		return nil, fmt.Errorf("defer=%d has no effect without flush, whose timer is what polls while interrupts are deferred; write static:defer=%[1]d,flush=50us", s.DeferHardIRQs)
	case !a.has("defer"):
		return nil, fmt.Errorf("flush=%v defers no interrupt without defer; write static:defer=100,flush=%[1]v, or defer=0 for the timeout alone", s.GROFlushTimeout)
	}
	return NewStatic(s), nil
}

// staticCase returns the policy that orders a published case.
func staticCase(name string) (model.Policy, error) {
	var known []string
	for _, c := range model.PublishedCases() {
		effective := c.Settings.IRQSuspendTimeout == 0 || c.Settings.Mode() == model.ModeSuspension
		switch {
		case c.Name == name && !effective:
			return nil, fmt.Errorf("case %s suspends without defer and flush, which has no effect: it behaves as base; write base, or static:case=suspend20", name)
		case c.Name == name:
			return &Static{name: "static:case=" + name, settings: c.Settings}, nil
		case effective:
			known = append(known, c.Name)
		}
	}
	return nil, fmt.Errorf("unknown case %q; possible are %s", name, strings.Join(known, ", "))
}

// NewStatic returns the policy that orders s.
func NewStatic(s model.Settings) *Static { return &Static{name: "static:" + s.String(), settings: s} }

// Settings returns what is ordered.
func (p *Static) Settings() model.Settings { return p.settings }

// Name implements [model.Policy].
func (p *Static) Name() string { return p.name }

// NeedsEvidence reports that an order does not depend on what was seen.
func (p *Static) NeedsEvidence() bool { return false }

// Suspends reports whether the order asks for suspension or busy polling, for
// which the applications' epoll contexts must be observed.
func (p *Static) Suspends() bool {
	return p.settings.IRQSuspendTimeout > 0 || p.settings.BusyPoll != model.BusyPoll{}
}

// Memoryless reports that what is decided does not depend on earlier decisions.
func (*Static) Memoryless() bool { return true }

// Decide implements [model.Policy].
func (p *Static) Decide(f model.Features) model.Decision {
	want, also := p.settings, ""
	if want.Mode() == model.ModeSuspension && want.BusyPoll.Prefer && f.Suspension.Ready && !f.Suspension.Steered {
		want.BusyPoll = model.BusyPoll{}
		also = "; its applications prefer busy polling by themselves, and keep their own parameters"
	}
	if f.Active == want {
		return model.Decision{Settings: want, Purpose: model.PurposeHold, Why: "the ordered setting is in place" + also}
	}
	return model.Decision{Settings: want, Purpose: model.PurposeOrder, Why: fmt.Sprintf("%v was ordered%s", p.settings, also)}
}
