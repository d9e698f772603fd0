package tuner

import (
	"context"

	"autotune/model"
)

// Source yields one sample per window. Next blocks until the window is over,
// returns io.EOF at the end of a recording, and ctx's error when that ends
// first.
type Source interface {
	Next(context.Context) (model.Sample, error)
}

// Actuator applies desired state. Apply is idempotent: queues that already
// have the settings are not written. It returns what was read back after it.
// A failure of single queues is reported as [model.QueueError] values joined
// by errors.Join, beside the read-back of the others.
type Actuator interface {
	Apply(context.Context, model.Config) (model.Config, error)
}

// Journal keeps every decision.
type Journal interface {
	Record(Entry) error
}
