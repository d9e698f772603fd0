package tuner

import (
	"time"

	"autotune/model"
)

// Options are what a [Loop] is made of.
type Options struct {
	// Source yields the samples. [Loop.Run] needs it; [Loop.Step] does not.
	Source Source
	// Actuator applies settings. Nil observes: decisions are journalled with
	// [model.VerdictAdvised], and nothing is written.
	Actuator Actuator
	// Policy proposes. It must be set. A policy with a method
	// NeedsEvidence() bool that returns false is asked in every window,
	// whatever was seen of it, and passes the guards that need evidence.
	Policy model.Policy
	// Journal keeps the decisions; nil keeps none.
	Journal Journal
	// Memory is what the guards learned in an earlier loop; nil begins with
	// none. Whoever keeps a policy between loops keeps this too.
	Memory *Memory
	// Objective is what is to be met. An SLO of zero, or a quantile that is
	// not between 0 and 1, is an error.
	Objective model.Objective
	// Bounds are the hard limits; the zero value stands for
	// [model.DefaultBounds].
	Bounds model.Bounds
	// Queues are tuned; when empty, every queue that a sample has a read-back
	// of.
	Queues []model.Queue
	// CPUs are the CPUs that serve a queue, where utilisation and steal are
	// looked for unless a sample tells which ones polled it. For a queue that is missing, steal is looked for on all
	// CPUs, and utilisation on those that spend at least 1% of their time in
	// NET_RX, provided that the queue is polled in softirq; otherwise it is
	// not known.
	CPUs map[model.Queue][]int
	// Absence is for how long a queue may have no read-back (its link is down,
	// or its NAPI is being made again) before it counts as lost. Zero stands
	// for 10 s.
	Absence time.Duration
	// HoldEvery is how often a hold is journalled again while the same guard
	// holds the same settings for the same policy purpose, or the same order is
	// refused for the same reason, or only advised; everything else is always
	// journalled. Zero stands for 10 s, a negative value for every window.
	HoldEvery time.Duration

	Evidence  EvidenceOptions
	Ownership OwnershipOptions
	StepLimit StepLimitOptions
	Cooldown  CooldownOptions
	Trial     TrialOptions
	Tripwire  TripwireOptions
	Breaker   BreakerOptions
	SLO       SLOOptions
}

// EvidenceOptions set what is enough to decide upon.
type EvidenceOptions struct {
	// Above is the number of delays that must lie above the quantile; zero
	// stands for 20, which is 2,000 delays for a p99 and 200 for a p90.
	Above uint64 `json:"above"`
	// Windows is the number of windows merged at most; zero stands for 10.
	Windows int `json:"windows"`
	// Steal is the share of a window that the hypervisor may take from a CPU;
	// zero stands for 0.01. One tick is always allowed.
	Steal float64 `json:"steal"`
	// Tick is the resolution of the steal count; zero stands for 10 ms
	// (USER_HZ, in which /proc/stat counts).
	Tick time.Duration `json:"tick_ns"`
	// Others is the share of a CPU that others may take from the queue beyond
	// what they usually do, once it is 85% busy, for up to four windows in a row
	// and a fifth of all; zero stands for 0.25, a negative value for no limit.
	Others float64 `json:"others"`
	// Lapse is for how long a queue keeps what the loop wrote without a window
	// that bears a decision, in time of the samples: after it, and after no
	// fewer than Windows windows, the queue goes back to its original
	// settings. Zero stands for one minute; a negative value for ever.
	Lapse time.Duration `json:"lapse_ns"`
}

// OwnershipOptions set how a queue with another writer is treated.
type OwnershipOptions struct {
	// Backoff is how long a queue is left alone at least, once another writer
	// has changed it; it doubles each time. Zero stands for one minute. After
	// it the queue is taken again only when it reads what the loop last wrote.
	Backoff time.Duration `json:"backoff_ns"`
}

// StepLimitOptions bound how far one move may go up. Moves down are not
// limited.
type StepLimitOptions struct {
	// Factor bounds each field by its present value times Factor; zero stands
	// for 2.
	Factor float64 `json:"factor"`
	// Flush, Defer and Suspend are always within reach, however small the
	// present value. Zero stands for 50 us, 100 and 20 ms.
	Flush   time.Duration `json:"flush_ns"`
	Defer   uint32        `json:"defer"`
	Suspend time.Duration `json:"suspend_ns"`
	// Headroom is the share of the SLO that the delay leaves free by which the
	// flush timeout may always go up: between plain interrupts and a timeout
	// that pays lie those that cost more than either. Zero stands for 0.9, a
	// negative value for none.
	Headroom float64 `json:"headroom"`
}

// CooldownOptions space the moves that seek cost or knowledge.
type CooldownOptions struct {
	// Windows between the end of one trial and the next such move of the
	// queue; zero stands for 2, a negative value for none.
	Windows int `json:"windows"`
	// Rise is the relative rise of load since the window before at which no
	// such move is made; zero stands for 0.2.
	Rise float64 `json:"rise"`
	// OneIn is how many queues there are for each that may be on trial at the
	// same time, rounded up; zero stands for 8.
	OneIn int `json:"one_in"`
}

// TrialOptions set how moves are measured.
type TrialOptions struct {
	// Settle is the number of windows after a move that are not measured;
	// zero stands for 1, a negative value for none.
	Settle int `json:"settle"`
	// Reference is the number of windows at similar load that must have been
	// measured before a move that seeks cost; zero stands for 3.
	Reference int `json:"reference"`
	// Windows is the number measured at one setting at most; zero stands for
	// 8.
	Windows int `json:"windows"`
	// Steps is how often a direction may go on without a verdict; zero stands
	// for 8.
	Steps int `json:"steps"`
	// Similar is the relative difference up to which two loads can be
	// compared, beyond the counting noise of the packets; zero stands for
	// 0.15.
	Similar float64 `json:"similar"`
	// Noise is the standard deviation of the cost of a window, as a share,
	// that is assumed before any was measured; zero stands for 0.06.
	Noise float64 `json:"noise"`
	// Error is the probability of a wrong verdict on a direction that changes
	// nothing: of keeping it for a cost that is not lower, over all its steps,
	// or of giving one step up for a cost that is not higher. Zero stands for
	// 0.05.
	Error float64 `json:"error"`
	// Tolerance is how much more a direction may cost, as a share, before it
	// is given up although it could go on; zero stands for 0.25.
	Tolerance float64 `json:"tolerance"`
	// Gross is the rise of cost, as a share, that ends a trial even in a
	// window that is still settling; zero stands for 0.5.
	Gross float64 `json:"gross"`
	// Credit is how many more of a policy's forecasts must have held than
	// failed before its moves for cost and safety need no trial; zero stands
	// for 3, a negative value for a trial always.
	Credit int `json:"credit"`
}

// TripwireOptions set what rolls a move back at once.
type TripwireOptions struct {
	// Factor on the SLO; zero stands for 4.
	Factor float64 `json:"factor"`
	// Confirm is the number of windows in a row that it takes where no trial is
	// under way: what one shows then is the host's doing as a rule, unless a
	// quarter of the windows do. Zero stands for 2.
	Confirm int `json:"confirm"`
	// Utilisation; zero stands for 0.95. It trips only when both utilisation
	// and cost per packet rose since the move.
	Utilisation float64 `json:"utilisation"`
}

// BreakerOptions set when a direction is frozen.
type BreakerOptions struct {
	// Reverts of one kind, direction and octave of load, within Windows; zero
	// stands for 3 in 60.
	Reverts int `json:"reverts"`
	Windows int `json:"windows"`
	// Freeze is for how long, at first; it doubles each time. Zero stands for
	// 10 minutes.
	Freeze time.Duration `json:"freeze_ns"`
}

// SLOOptions set how a breach is answered.
type SLOOptions struct {
	// Confirm is the number of windows in a row above the SLO that make a
	// breach, in a trial as elsewhere: a host that is held up for a moment shows
	// one or two at any setting. Zero stands for [model.BreachWindows].
	Confirm int `json:"confirm"`
	// Full is the utilisation above which, where interrupts are only deferred,
	// the flush timeout is never lowered for safety; zero stands for 0.8.
	Full float64 `json:"full"`
	// FullSuspended is that where interrupts are suspended; zero stands for 0.95.
	FullSuspended float64 `json:"full_suspended"`
	// Backoff is the factor on the flush timeout where no better setting is
	// known; zero stands for 0.6.
	Backoff float64 `json:"backoff"`
}

// withDefaults replaces the documented zero values.
func (o Options) withDefaults() Options {
	if o.Bounds == (model.Bounds{}) {
		o.Bounds = model.DefaultBounds()
	}
	orDefault(&o.Absence, 10*time.Second)
	orDefault(&o.HoldEvery, 10*time.Second)
	orDefault(&o.Evidence.Above, 20)
	orDefault(&o.Evidence.Windows, 10)
	orDefault(&o.Evidence.Steal, 0.01)
	orDefault(&o.Evidence.Tick, 10*time.Millisecond)
	orDefault(&o.Evidence.Others, 0.25)
	orDefault(&o.Evidence.Lapse, time.Minute)
	orDefault(&o.Ownership.Backoff, time.Minute)
	orDefault(&o.StepLimit.Factor, 2)
	orDefault(&o.StepLimit.Flush, 50*time.Microsecond)
	orDefault(&o.StepLimit.Defer, 100)
	orDefault(&o.StepLimit.Suspend, 20*time.Millisecond)
	orDefault(&o.StepLimit.Headroom, 0.9)
	orDefault(&o.Cooldown.Windows, 2)
	orDefault(&o.Cooldown.Rise, 0.2)
	orDefault(&o.Cooldown.OneIn, 8)
	orDefault(&o.Trial.Settle, 1)
	orDefault(&o.Trial.Reference, 3)
	orDefault(&o.Trial.Windows, 8)
	orDefault(&o.Trial.Steps, 8)
	orDefault(&o.Trial.Similar, 0.15)
	orDefault(&o.Trial.Noise, 0.06)
	orDefault(&o.Trial.Error, 0.05)
	orDefault(&o.Trial.Tolerance, 0.25)
	orDefault(&o.Trial.Gross, 0.5)
	orDefault(&o.Trial.Credit, 3)
	orDefault(&o.Tripwire.Factor, 4)
	orDefault(&o.Tripwire.Confirm, 2)
	orDefault(&o.Tripwire.Utilisation, 0.95)
	orDefault(&o.Breaker.Reverts, 3)
	orDefault(&o.Breaker.Windows, 60)
	orDefault(&o.Breaker.Freeze, 10*time.Minute)
	orDefault(&o.SLO.Confirm, model.BreachWindows)
	orDefault(&o.SLO.Full, 0.8)
	orDefault(&o.SLO.FullSuspended, 0.95)
	orDefault(&o.SLO.Backoff, 0.6)
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
