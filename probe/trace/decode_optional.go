package trace

import (
	"math"
	"time"

	"autotune/model"
)

func (d *decoder) latency() *model.Latency {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.Latency)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "source":
			out.Source, seen = s.str(), seen|1
		case "histogram":
			d.counts(out.Histogram.Counts[:])
			seen |= 2
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "source", "histogram")
	return out
}

func (d *decoder) probe() *model.ProbeSample {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.ProbeSample)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "budget_ns_per_s":
			out.Budget, seen = time.Duration(s.int()), seen|1
		case "poll_every":
			out.PollEvery, seen = uint32(s.uint(math.MaxUint32)), seen|2
		case "cost_ns_per_s":
			out.Cost = d.duration()
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "budget_ns_per_s", "poll_every")
	return out
}

func (d *decoder) takeovers() *model.Takeovers {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.Takeovers)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "interrupt_to_timer":
			out.InterruptToTimer, seen = s.uint(math.MaxUint64), seen|1
		case "interrupt_to_application":
			out.InterruptToApplication, seen = s.uint(math.MaxUint64), seen|2
		case "timer_to_interrupt":
			out.TimerToInterrupt, seen = s.uint(math.MaxUint64), seen|4
		case "timer_to_application":
			out.TimerToApplication, seen = s.uint(math.MaxUint64), seen|8
		case "application_to_interrupt":
			out.ApplicationToInterrupt, seen = s.uint(math.MaxUint64), seen|16
		case "application_to_timer":
			out.ApplicationToTimer, seen = s.uint(math.MaxUint64), seen|32
		default:
			s.skip()
		}
	}
	d.require(seen, 63, "interrupt_to_timer", "interrupt_to_application", "timer_to_interrupt", "timer_to_application", "application_to_interrupt", "application_to_timer")
	return out
}

func (d *decoder) suspension() *model.Suspension {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.Suspension)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "started":
			out.Started, seen = s.uint(math.MaxUint64), seen|1
		case "resumed":
			out.Resumed, seen = s.uint(math.MaxUint64), seen|2
		case "expired":
			out.Expired, seen = s.uint(math.MaxUint64), seen|4
		case "flushed":
			out.Flushed, seen = s.uint(math.MaxUint64), seen|8
		case "length":
			d.counts(out.Length.Counts[:])
			seen |= 16
		default:
			s.skip()
		}
	}
	d.require(seen, 31, "started", "resumed", "expired", "flushed", "length")
	return out
}

func (d *decoder) busyPolls() *model.BusyPolls {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.BusyPolls)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "polls":
			out.Polls, seen = s.uint(math.MaxUint64), seen|1
		case "packets":
			out.Packets, seen = s.uint(math.MaxUint64), seen|2
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "polls", "packets")
	return out
}

func (d *decoder) pollsOrNil() *model.PollCounts {
	if d.scan.null() {
		return nil
	}
	out := new(model.PollCounts)
	d.polls(out)
	return out
}

func (d *decoder) count() *uint64 {
	if d.scan.null() {
		return nil
	}
	out := d.scan.uint(math.MaxUint64)
	return &out
}
