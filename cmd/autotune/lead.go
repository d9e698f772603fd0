package main

import (
	"context"
	"errors"

	"autotune/actuate"
	"autotune/model"
	"autotune/tuner"
)

// ledSource merges the queues that can only be set together, for which the loop
// decides as one.
type ledSource struct {
	source tuner.Source
	host   *actuate.Host
}

// Next implements [tuner.Source].
func (l ledSource) Next(ctx context.Context) (model.Sample, error) {
	s, err := l.source.Next(ctx)
	if err != nil {
		return s, err
	}
	return s.Lead(l.host.Leads()), nil
}

// ledCPUs gives the queue that stands for others the CPUs of all of them.
func ledCPUs(serving map[model.Queue][]int, leads map[model.Queue]model.Queue) map[model.Queue][]int {
	out := make(map[model.Queue][]int, len(serving))
	for q, cpus := range serving {
		lead, ok := leads[q]
		if !ok {
			lead = q
		}
		out[lead] = append(out[lead], cpus...)
	}
	return out
}

// measurable refuses kernels that list no NAPI instances: the probes tell them
// apart by an ID that is not known there.
func measurable(napis []model.NAPI) error {
	for _, n := range napis {
		if n.ID != 0 {
			return nil
		}
	}
	return cannotError(errors.New("this kernel lists no NAPI instances (that came with Linux 6.8), so what a queue does cannot be measured; " +
		"autotune list shows the settings"))
}
