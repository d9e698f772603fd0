package policy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// Static orders one setting and keeps to it.
type Static struct {
	settings model.Settings
}

func staticKind() Kind {
	return Kind{
		Name:    "static",
		Usage:   "static:defer=100,flush=50us[,suspend=20ms]",
		Summary: "applies one setting at once",
		keys:    []string{"defer", "flush", "suspend"},
		make:    makeStatic,
	}
}

func makeStatic(a *arguments) (model.Policy, error) {
	s := model.Settings{
		DeferHardIRQs:     uint32(a.uint("defer", 0, model.MaxDeferHardIRQs)),
		GROFlushTimeout:   a.duration("flush", 0, 0, math.MaxInt64),
		IRQSuspendTimeout: a.duration("suspend", 0, 0, math.MaxInt64),
	}
	switch {
	case a.err != nil:
		return nil, a.err
	case a.has("suspend") && (!a.has("defer") || !a.has("flush")):
		return nil, errors.New("suspend needs defer and flush; write static:defer=100,flush=50us,suspend=20ms")
	case s.IRQSuspendTimeout > 0 && s.Mode() != model.ModeSuspension:
		return nil, errors.New("suspend has no effect with defer or flush at 0; write static:defer=100,flush=50us,suspend=20ms")
	case !a.has("defer") && !a.has("flush"):
		return nil, errors.New("nothing to set; write static:defer=100,flush=50us[,suspend=20ms]")
	}
	return NewStatic(s), nil
}

// NewStatic returns the policy that orders s.
func NewStatic(s model.Settings) *Static { return &Static{settings: s} }

// Settings returns what is ordered.
func (p *Static) Settings() model.Settings { return p.settings }

// Name implements [model.Policy].
func (p *Static) Name() string { return fmt.Sprintf("static:%v", p.settings) }

// NeedsEvidence reports that an order does not depend on what was seen.
func (p *Static) NeedsEvidence() bool { return false }

// Suspends reports whether the order asks for suspension, for which the
// applications' epoll contexts must be observed.
func (p *Static) Suspends() bool { return p.settings.IRQSuspendTimeout > 0 }

// Decide implements [model.Policy].
func (p *Static) Decide(f model.Features) model.Decision {
	if f.Active == p.settings {
		return model.Decision{Settings: p.settings, Purpose: model.PurposeHold, Why: "the ordered setting is in place"}
	}
	return model.Decision{Settings: p.settings, Purpose: model.PurposeOrder, Why: fmt.Sprintf("%v was ordered", p.settings)}
}

// deferFor returns the defer count that goes with a flush timeout where the
// idle gap is not known: as many empty polls as fit into 2 ms, 5 to 100, so
// that deferral outlasts usual gaps and a quiet queue is back at interrupts
// within 2 ms.
func deferFor(flush time.Duration) uint32 {
	if flush <= 0 {
		return 0
	}
	return uint32(max(5, min(100, 2*time.Millisecond/flush)))
}

// deferral returns the settings for a flush timeout; zero is plain interrupts.
func deferral(flush time.Duration) model.Settings {
	if flush <= 0 {
		return model.Settings{}
	}
	return model.Settings{DeferHardIRQs: deferFor(flush), GROFlushTimeout: flush}
}
