package compare

import (
	"time"

	"autotune/model/sim"
)

// Trace is the load of one recording, a scenario of a plan. Its digest stands
// for the load in a manifest: shards are joined without the recordings.
type Trace struct {
	// Name is what results call it.
	Name string `json:"scenario"`
	// About says in a sentence what of the recording it is.
	About string `json:"about"`
	// Duration is its length.
	Duration time.Duration `json:"duration_ns"`
	// Digest identifies the load.
	Digest string `json:"load_sha256"`
	// Load is what each simulated queue is offered; without queues in a plan
	// that was read from a manifest, which cannot be run.
	Load sim.Windows `json:"-"`
}

// NewTrace returns the scenario of a recorded load, all of it.
func NewTrace(name, about string, duration time.Duration, load sim.Windows) Trace {
	return Trace{Name: name, About: about, Duration: duration, Digest: digest(load), Load: load}
}
