package trace

import (
	"math"
	"time"

	"autotune/model"
)

type keyed[V any] struct {
	queue model.Queue
	value V
}

// byQueue makes a map of items, nil of nil.
func byQueue[V any](d *decoder, items []keyed[V]) map[model.Queue]V {
	if items == nil {
		return nil
	}
	out := make(map[model.Queue]V, len(items))
	for _, item := range items {
		out[item.queue] = item.value
	}
	if len(out) != len(items) {
		d.scan.fail("a queue is listed twice")
	}
	return out
}

func (d *decoder) settings(item *keyed[model.Settings]) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "queue":
			item.queue, seen = d.queueID(), seen|1
		case "defer_hard_irqs":
			item.value.DeferHardIRQs, seen = uint32(s.uint(math.MaxUint32)), seen|2
		case "gro_flush_timeout_ns":
			item.value.GROFlushTimeout, seen = time.Duration(s.int()), seen|4
		case "irq_suspend_timeout_ns":
			item.value.IRQSuspendTimeout, seen = time.Duration(s.int()), seen|8
		case "busy_poll_ns":
			if !s.null() {
				item.value.BusyPoll.Span = time.Duration(s.int())
			}
		case "busy_poll_budget":
			if !s.null() {
				item.value.BusyPoll.Budget = uint16(s.uint(math.MaxUint16))
			}
		case "prefer_busy_poll":
			if !s.null() {
				item.value.BusyPoll.Prefer = s.boolean()
			}
		default:
			s.skip()
		}
	}
	d.require(seen, 15, "queue", "defer_hard_irqs", "gro_flush_timeout_ns", "irq_suspend_timeout_ns")
}

func (d *decoder) napiID(item *keyed[uint32]) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "queue":
			item.queue, seen = d.queueID(), seen|1
		case "napi_id":
			item.value, seen = uint32(s.uint(math.MaxUint32)), seen|2
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "queue", "napi_id")
}

func (d *decoder) reason(item *keyed[string]) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "queue":
			item.queue, seen = d.queueID(), seen|1
		case "reason":
			item.value, seen = s.str(), seen|2
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "queue", "reason")
}
