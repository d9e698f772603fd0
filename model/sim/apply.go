package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// ErrNotSelected is wrapped by the refusal of busy-poll parameters for an
// application that may not be steered ([Options].Selected).
var ErrNotSelected = errors.New("the application is not selected")

// Apply sets queues to what config says, from the next action on, and returns
// the settings of every queue that config names. It refuses what the kernel
// refuses, and to change how an application waits that is not selected.
func (s *Simulator) Apply(ctx context.Context, config model.Config) (model.Config, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make(model.Config, len(config))
	var failed []error
	for q, settings := range config {
		if q != SimulatedQueue(q.Index) || q.Index < 0 || q.Index >= len(s.lanes) {
			failed = append(failed, &model.QueueError{Queue: q, Op: "napi-set", Err: model.ErrGone})
			continue
		}
		l := s.lanes[q.Index]
		if err := s.set(l, settings); err != nil {
			err.Queue = q
			failed = append(failed, err)
		}
		out[q] = l.knobs
	}
	return out, errors.Join(failed...)
}

func (s *Simulator) set(l *lane, settings model.Settings) *model.QueueError {
	kernel := model.Bounds{
		MaxDefer: model.MaxDeferHardIRQs, MaxFlush: math.MaxInt64, MaxSuspend: math.MaxInt64,
		MaxBusyPoll: math.MaxUint32 * time.Microsecond, MaxBudget: math.MaxUint16,
	}
	if err := kernel.Check(settings); err != nil {
		return &model.QueueError{Op: "napi-set", Err: err}
	}
	if settings.BusyPoll != l.knobs.BusyPoll && !s.options.Selected {
		return &model.QueueError{Op: "set busy poll", Err: fmt.Errorf("%w: %w", ErrNotSelected, model.ErrReadOnly)}
	}
	l.set(settings)
	return nil
}

// SetWait changes how the application waits by itself, as its own call of
// EPIOCSPARAMS does, from its next call on.
func (s *Simulator) SetWait(w Wait) {
	for _, l := range s.lanes {
		l.own = w.withDefaults()
		l.set(l.knobs)
	}
}
