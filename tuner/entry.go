package tuner

import (
	"time"

	"autotune/model"
)

// Entry is one decision for one queue as the journal keeps it. It holds only
// what follows from samples, so that deciding a recording again gives the same
// bytes.
type Entry struct {
	// At is the end of the window decided upon, since boot.
	At     time.Duration  `json:"at_ns"`
	Queue  model.Queue    `json:"queue"`
	NAPIID uint32         `json:"napi_id"`
	Policy string         `json:"policy"`
	From   model.Settings `json:"from"`
	// To is what the queue is set to after the decision; Proposed is what the
	// policy asked for.
	To       model.Settings `json:"to"`
	Proposed model.Settings `json:"proposed"`
	Purpose  model.Purpose  `json:"purpose"`
	Verdict  model.Verdict  `json:"verdict"`
	// Guard names the guard that changed, held or refused the proposal.
	Guard string `json:"guard"`
	Why   string `json:"why"`
	// PolicyWhy is the policy's own reason, Forecast what it expects; null where
	// it was not asked, and where it expects nothing.
	PolicyWhy *string        `json:"policy_why"`
	Forecast  *EntryForecast `json:"forecast"`
	// Guards are those that were asked, from the outside in. What they compare
	// is as they saw it.
	Guards []GuardStep `json:"guards"`
	// Propensity is null for deterministic choices.
	Propensity *float64 `json:"propensity"`
	Evidence   Evidence `json:"evidence"`
}

// Evidence is what a decision rested on. Null means not known.
type Evidence struct {
	Span    time.Duration `json:"span_ns"`
	Windows int           `json:"windows"`
	// DelaySamples is the number of delays behind Quantile.
	DelaySamples  uint64         `json:"delay_samples"`
	Quantile      float64        `json:"quantile"`
	QuantileDelay *time.Duration `json:"quantile_delay_ns"`
	MedianDelay   *time.Duration `json:"median_delay_ns"`
	SLO           time.Duration  `json:"slo_ns"`
	PacketRate    float64        `json:"packets_per_s"`
	CostPerPacket *time.Duration `json:"cost_per_packet_ns"`
	Utilisation   *float64       `json:"utilisation"`
	Lost          uint64         `json:"lost_events"`
}
