package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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

// announceApps says which processes a selector fits now.
func (s *session) announceApps(ctx context.Context, w io.Writer, sel model.Selector) error {
	rows, err := selected(ctx, s.apps, sel, false)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range rows {
		if name := fmt.Sprintf("%s (pid %d)", d.Comm, d.PID); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	const many = 8
	switch {
	case len(names) == 0:
		fmt.Fprintf(w, "no process with an epoll context fits %v yet\n", sel)
	case len(names) > many:
		fmt.Fprintf(w, "%v fits %s, among them %s\n", sel, model.Count(len(names), "process"), strings.Join(names[:many], ", "))
	default:
		fmt.Fprintf(w, "%v fits %s\n", sel, strings.Join(names, ", "))
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
