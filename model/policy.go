package model

import "time"

// Policy proposes settings. The loop tells it what was seen and asks what to
// do (reverse communication): a policy never touches the plant, reads no
// clock, and draws randomness only from the seed that it was made with, so
// that a replay repeats it exactly.
//
// One value serves all queues of a run, called for one queue at a time; it
// keeps what it learns per queue by [Features.Queue].
type Policy interface {
	Name() string
	Decide(Features) Decision
}

// BreachWindows is the number of windows in a row above the SLO that confirm a
// breach, for the guards and for policies that have no model of the delay: a host
// that is held up for a moment shows one or two at any setting.
const BreachWindows = 3

// Decision is a policy's proposal for one queue.
type Decision struct {
	Settings Settings
	Purpose  Purpose
	// Why is the reason in a sentence that a person can follow: the numbers
	// compared and the constraint that bound.
	Why string
	// Propensity is the probability with which a randomised policy chose
	// this; zero when the choice was deterministic.
	Propensity float64
	// Forecast is what the policy expects of the next window at Settings; nil
	// where it does not say. Guards hold it against what comes: a policy whose
	// forecasts hold may move without a trial of each step.
	Forecast *Forecast
	// Otherwise is what it expects where a guard holds the move, at what is in
	// place; nil where it does not say, or proposes no move.
	Otherwise *Forecast
}

// Forecast is what a policy expects of a window at given settings and load.
// Errors are standard deviations, of everything: noise of a window and what is
// not known.
type Forecast struct {
	// PacketRate is the load that it is made for, in packets per second.
	PacketRate float64
	// CostPerPacket is in CPU time per packet, and CostError relative to it.
	CostPerPacket time.Duration
	CostError     float64
	// Delay is that of the objective's quantile.
	Delay, DelayError time.Duration
	// CostElasticity and DelayElasticity are the relative changes of cost and
	// delay per relative change of load, near PacketRate.
	CostElasticity, DelayElasticity float64
	// Utilisation is that of the busiest CPU that serves the queue, 0 to 1 and
	// above where it is overloaded; NaN when not known.
	Utilisation float64
}

// Purpose is why a move is made. Guards judge a move by its purpose.
type Purpose string

const (
	// PurposeHold proposes no change.
	PurposeHold Purpose = "hold"
	// PurposeCost seeks less CPU; it must lower cost without breaking the SLO.
	PurposeCost Purpose = "cost"
	// PurposeSafety seeks less delay or fewer violations, and may cost.
	PurposeSafety Purpose = "safety"
	// PurposeExploration seeks knowledge.
	PurposeExploration Purpose = "exploration"
	// PurposeReturn goes back to settings that held before: the originals, or
	// what was confirmed at this load.
	PurposeReturn Purpose = "return"
	// PurposeOrder is a setting that the user asked for by name. It needs no
	// evidence; ownership, readiness and bounds still guard it.
	PurposeOrder Purpose = "order"
)
