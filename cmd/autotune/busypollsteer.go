package main

import (
	"context"
	"errors"
	"fmt"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/model"
	"autotune/tuner"
)

// canSteer refuses early what needs a newer kernel, or more of it.
func (s *session) canSteer(o sessionOptions) error {
	if len(o.apps) == 0 {
		return nil
	}
	if err := s.apps.whole(); err != nil {
		return err
	}
	if err := busypoll.TryEpoll(); err != nil && o.apply {
		return cannotError(fmt.Errorf("epoll contexts cannot be set here: %w; boot Linux 6.9 or later", err))
	}
	return nil
}

func newSteering(host *actuate.Host, o sessionOptions) *actuate.Steering {
	return actuate.NewSteering(actuate.SteeringOptions{
		Host: host, Selectors: o.apps, Report: func(line string) { fmt.Fprintln(o.warn, line) },
	})
}

// steeredSource completes samples by what the selected applications do.
type steeredSource struct {
	tuner.Source
	steering *actuate.Steering
}

// Next implements [tuner.Source].
func (s steeredSource) Next(ctx context.Context) (model.Sample, error) {
	sample, err := s.Source.Next(ctx)
	if err != nil {
		return sample, err
	}
	if err := s.steering.Observe(ctx, &sample); err != nil {
		return sample, errors.Join(err, ctx.Err())
	}
	return sample, nil
}
