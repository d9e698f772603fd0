package model

import "time"

// Features is what a policy sees of one queue: one or more samples, merged
// until the evidence sufficed.
type Features struct {
	Queue Queue
	// At is the end of the last window, Span the time covered by all of them,
	// and Windows their number.
	At, Span time.Duration
	Windows  int
	// Active is what the queue is set to now.
	Active Settings
	// PacketRate is in packets per second. RateChange is its relative change
	// against the window before.
	PacketRate, RateChange float64
	// Utilisation is the busiest share, 0 to 1, of the CPUs that serve the
	// queue; NaN when not known.
	Utilisation float64
	// PacketsPerPoll counts non-empty polls; EmptyShare and FiresPerPacket
	// are ratios. NaN when nothing was polled, or not observed.
	PacketsPerPoll, EmptyShare, FiresPerPacket float64
	// SoftirqShare, ThreadShare and BusyShare are each loop's share of the
	// packets; they sum to 1 unless no packet came.
	SoftirqShare, ThreadShare, BusyShare float64
	// CostPerPacket is the CPU time spent per packet, by the NAPI, its
	// softirq and the applications that it serves; zero when not known.
	CostPerPacket time.Duration
	// Delay is the merged delay histogram; nil when not observed. Quantile is
	// the objective's quantile of it, and Median its median.
	Delay            *Histogram
	Quantile, Median time.Duration
	// Suspension is whether the queue may be suspended.
	Suspension Readiness
	// Outcome is what became of the policy's last proposal for this queue.
	Outcome Outcome
	// Objective is what is to be met.
	Objective Objective
}

// Objective is a latency target: the Quantile of the delay is to stay at or
// below SLO, at the least CPU.
type Objective struct {
	SLO      time.Duration
	Quantile float64
}

// Outcome is the fate of the last proposal for a queue.
type Outcome struct {
	Verdict Verdict
	// Guard names who decided, empty where none intervened.
	Guard string
	// From and To are the settings before and after the proposed move.
	From, To Settings
	Purpose  Purpose
	// CostChange is the relative change of CostPerPacket that a trial which
	// ended measured; zero when not known.
	CostChange float64
}

// Verdict is what became of a proposal.
type Verdict string

// The verdicts. The zero value means that nothing was proposed yet.
const (
	// VerdictHeld: the proposal was not looked at, for lack of evidence or
	// because an earlier move is still being measured.
	VerdictHeld Verdict = "held"
	// VerdictApplied: the settings were written and read back.
	VerdictApplied Verdict = "applied"
	// VerdictRefused: a guard forbade the move.
	VerdictRefused Verdict = "refused"
	// VerdictKept: the trial of the move ended in its favour.
	VerdictKept Verdict = "kept"
	// VerdictReverted: the trial ended against it, and the settings before it
	// are back.
	VerdictReverted Verdict = "reverted"
	// VerdictFailed: the kernel did not take the settings.
	VerdictFailed Verdict = "failed"
	// VerdictAborted: the trial of the move ended without a result, because
	// load moved or the queue was taken out of the loop's hands.
	VerdictAborted Verdict = "aborted"
	// VerdictAdvised: the move would have been applied; the run only observes.
	VerdictAdvised Verdict = "advised"
)
