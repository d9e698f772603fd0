package tuner

import "time"

// GuardOptions are the options of the guards alone, with the defaults in place
// of zero values. A recorded run keeps them, so that deciding again does not
// depend on the defaults of a later version.
type GuardOptions struct {
	Absence   time.Duration    `json:"absence_ns"`
	HoldEvery time.Duration    `json:"hold_every_ns"`
	Evidence  EvidenceOptions  `json:"evidence"`
	Ownership OwnershipOptions `json:"ownership"`
	StepLimit StepLimitOptions `json:"step_limit"`
	Cooldown  CooldownOptions  `json:"cooldown"`
	Trial     TrialOptions     `json:"trial"`
	Tripwire  TripwireOptions  `json:"tripwire"`
	Breaker   BreakerOptions   `json:"breaker"`
	SLO       SLOOptions       `json:"slo"`
}

// Guards returns what the guards of a loop with these options go by.
func (o Options) Guards() GuardOptions {
	o = o.withDefaults()
	return GuardOptions{
		Absence: o.Absence, HoldEvery: o.HoldEvery,
		Evidence: o.Evidence, Ownership: o.Ownership, StepLimit: o.StepLimit, Cooldown: o.Cooldown,
		Trial: o.Trial, Tripwire: o.Tripwire, Breaker: o.Breaker, SLO: o.SLO,
	}
}

// SetGuards makes the guards go by g.
func (o *Options) SetGuards(g GuardOptions) {
	o.Absence, o.HoldEvery = g.Absence, g.HoldEvery
	o.Evidence, o.Ownership, o.StepLimit, o.Cooldown = g.Evidence, g.Ownership, g.StepLimit, g.Cooldown
	o.Trial, o.Tripwire, o.Breaker, o.SLO = g.Trial, g.Tripwire, g.Breaker, g.SLO
	if o.StepLimit.Headroom == 0 {
		// A run that did not record it knew no such step.
		o.StepLimit.Headroom = -1
	}
	// Nor these.
	if o.Evidence.Others == 0 {
		o.Evidence.Others = -1
	}
	orDefault(&o.Tripwire.Confirm, 1)
}
