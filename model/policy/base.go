package policy

import "autotune/model"

// Base proposes nothing: what it is compared with is the host as found.
type Base struct{}

func baseKind() Kind {
	return Kind{
		Name:    "base",
		Usage:   "base",
		Summary: "changes nothing",
		make:    func(*arguments) (model.Policy, error) { return Base{}, nil },
	}
}

// Name implements [model.Policy].
func (Base) Name() string { return "base" }

// NeedsEvidence reports that the policy decides the same whatever was seen.
func (Base) NeedsEvidence() bool { return false }

// Memoryless reports that what is decided does not depend on earlier decisions.
func (Base) Memoryless() bool { return true }

// Decide implements [model.Policy].
func (Base) Decide(f model.Features) model.Decision {
	return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: "base changes nothing"}
}
