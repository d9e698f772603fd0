package actuate

import (
	"fmt"
	"strings"

	"autotune/actuate/busypoll"
	"autotune/model"
)

// Outcome is what a restore did about one knob.
type Outcome string

// The outcomes. All but [OutcomeLinkDown], [OutcomeAbsent] and [OutcomeFailed]
// settle the knob.
const (
	// OutcomeUnchanged: the present value is the original.
	OutcomeUnchanged Outcome = "unchanged"
	// OutcomeRestored: the original was written and read back.
	OutcomeRestored Outcome = "restored"
	// OutcomeForeign: another writer has set it since; left alone.
	OutcomeForeign Outcome = "foreign"
	// OutcomeGone: the device or its namespace, or the process, no longer
	// exists.
	OutcomeGone Outcome = "gone"
	// OutcomeLinkDown: the device is down and has no NAPI instance now, but
	// what autotune wrote can come back with it. Restore again when it is up.
	OutcomeLinkDown Outcome = "link-down"
	// OutcomeAbsent: the device is up but has no such queue now; what was
	// written can come back with it.
	OutcomeAbsent Outcome = "absent"
	// OutcomeFailed: the kernel did not take the original.
	OutcomeFailed Outcome = "failed"
)

func (o Outcome) settled() bool {
	switch o {
	case OutcomeLinkDown, OutcomeAbsent, OutcomeFailed:
		return false
	default:
		return true
	}
}

// KnobReport tells what became of one knob of one queue. Values are in the
// kernel's unit: a count, or nanoseconds.
type KnobReport struct {
	// Queue has the index [WholeDevice] where all queues were set together.
	Queue  model.Queue `json:"queue"`
	Ifname string      `json:"ifname"`
	// NAPIID is the instance that serves the queue now, null where none does,
	// and for a whole device.
	NAPIID   *uint32 `json:"napi_id"`
	Knob     Knob    `json:"knob"`
	Outcome  Outcome `json:"outcome"`
	Original uint64  `json:"original"`
	// Found is the value before the restore, null where it could not be read.
	Found *uint64 `json:"found"`
	// Detail says why, and what to do.
	Detail string `json:"detail"`
}

// ContextReport tells what became of one busy-poll parameter of an epoll
// context, or of a socket, of an application.
type ContextReport struct {
	PID  int           `json:"pid"`
	Comm string        `json:"comm"`
	FD   int           `json:"fd"`
	Kind busypoll.Kind `json:"kind"`
	// Parameter is empty where the report is about all of them: where the
	// context no longer exists, or could not be reached.
	Parameter busypoll.Parameter `json:"parameter"`
	Outcome   Outcome            `json:"outcome"`
	// Original and Found are the values before autotune and before the
	// restore; 1 is on. Found is null where it could not be read, both where
	// the report is about all parameters.
	Original *uint32 `json:"original"`
	Found    *uint32 `json:"found"`
	Detail   string  `json:"detail"`
}

func (c ContextReport) String() string {
	s := fmt.Sprintf("%s (pid %d) %s %d", c.Comm, c.PID, c.Kind, c.FD)
	if c.Parameter != "" {
		s += " " + string(c.Parameter)
	}
	s += ": " + string(c.Outcome)
	if c.Found != nil && c.Original != nil && *c.Found != *c.Original {
		s += fmt.Sprintf(" (found %d, original %d)", *c.Found, *c.Original)
	}
	if c.Detail != "" {
		s += ": " + c.Detail
	}
	return s
}

func (k KnobReport) String() string {
	what := fmt.Sprintf("queue %d", k.Queue.Index)
	if k.Queue.Index == WholeDevice {
		what = "all queues"
	}
	s := fmt.Sprintf("%s %s %s: %s", k.Ifname, what, k.Knob, k.Outcome)
	if k.Found != nil && *k.Found != k.Original {
		s += fmt.Sprintf(" (found %s, original %s)", k.Knob.format(*k.Found), k.Knob.format(k.Original))
	}
	if k.Detail != "" {
		s += ": " + k.Detail
	}
	return s
}

// Report is the outcome of a restore.
type Report struct {
	StateDir string `json:"state_dir"`
	// Note says in a sentence what was found, where there were no knobs to
	// report on: no state, nothing written, another boot.
	Note  string       `json:"note"`
	Knobs []KnobReport `json:"knobs"`
	// Contexts are the parameters of applications.
	Contexts []ContextReport `json:"contexts"`
	// Placements are threads, interrupts and packet steering that were moved.
	Placements []PlacementReport `json:"placements"`
	// Settled means that nothing is left to do and the state was removed.
	Settled bool `json:"settled"`
}

// String returns one line for each knob that was not simply unchanged.
func (r Report) String() string {
	var b strings.Builder
	if r.Note != "" {
		fmt.Fprintf(&b, "%s: %s\n", r.StateDir, r.Note)
	}
	unchanged := 0
	for _, k := range r.Knobs {
		if k.Outcome == OutcomeUnchanged {
			unchanged++
			continue
		}
		fmt.Fprintln(&b, k)
	}
	for _, c := range r.Contexts {
		if c.Outcome == OutcomeUnchanged {
			unchanged++
			continue
		}
		fmt.Fprintln(&b, c)
	}
	for _, p := range r.Placements {
		if p.Outcome == OutcomeUnchanged {
			unchanged++
			continue
		}
		fmt.Fprintln(&b, p)
	}
	if unchanged > 0 {
		fmt.Fprintf(&b, "%s left as they were: already the originals\n", model.Count(unchanged, "value"))
	}
	return b.String()
}

// Empty reports whether there was nothing to restore.
func (r Report) Empty() bool { return len(r.Knobs)+len(r.Contexts)+len(r.Placements) == 0 }

// allSettled reports whether nothing is left to restore.
func (r Report) allSettled() bool {
	for _, k := range r.Knobs {
		if !k.Outcome.settled() {
			return false
		}
	}
	for _, c := range r.Contexts {
		if !c.Outcome.settled() {
			return false
		}
	}
	for _, p := range r.Placements {
		if !p.Outcome.settled() {
			return false
		}
	}
	return true
}

// settledFor reports whether nothing of the device is left to restore.
func (r Report) settledFor(netns uint64, ifindex int) bool {
	for _, k := range r.Knobs {
		if k.Queue.Netns == netns && k.Queue.Ifindex == ifindex && !k.Outcome.settled() {
			return false
		}
	}
	for _, p := range r.Placements {
		if q := p.Item.Queue; q.Netns == netns && q.Ifindex == ifindex && !p.Outcome.settled() {
			return false
		}
	}
	return true
}
