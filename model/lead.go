package model

import (
	"reflect"
	"slices"
)

// Lead returns the sample with the queues that are set together merged into the
// one that stands for them, as leads tells for each queue: what was counted and
// timed is added up, delays are merged, and the settings are those of the lead.
// A queue that leads does not name stands for itself. s is not changed.
//
// It is for kernels that set all queues of a device at once: one decision is
// then taken upon what all of them did.
func (s *Sample) Lead(leads map[Queue]Queue) Sample {
	of := func(q Queue) Queue {
		if lead, ok := leads[q]; ok {
			return lead
		}
		return q
	}
	out := *s
	out.Queues = nil
	at := map[Queue]int{}
	for i := range s.Queues {
		from := &s.Queues[i]
		lead := of(from.Queue)
		j, known := at[lead]
		if !known {
			j = len(out.Queues)
			at[lead] = j
			out.Queues = append(out.Queues, QueueSample{Queue: lead, NAPIID: from.NAPIID})
		}
		to := &out.Queues[j]
		id := to.NAPIID
		if from.Queue == lead {
			id = from.NAPIID
		}
		every := max(to.SampleEvery, from.SampleEvery)
		addUp(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem())
		to.Queue, to.NAPIID, to.SampleEvery = lead, id, every
		// Those of one queue may belong to the sample that is merged.
		to.CPUs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(to.CPUs, from.CPUs))))
	}
	slices.SortFunc(out.Queues, func(a, b QueueSample) int { return a.Queue.Compare(b.Queue) })
	out.Active = leading(s.Active, of)
	out.NAPIIDs = leading(s.NAPIIDs, of)
	out.Absent = leading(s.Absent, of)
	return out
}

func leading[M ~map[Queue]V, V any](all M, of func(Queue) Queue) M {
	if all == nil {
		return nil
	}
	out := M{}
	for q, v := range all {
		if of(q) == q {
			out[q] = v
		}
	}
	return out
}

// addUp adds every number in from to its place in to. What is nil in both stays
// nil; what to gets of from is copied.
func addUp(to, from reflect.Value) {
	switch to.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		to.SetInt(to.Int() + from.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		to.SetUint(to.Uint() + from.Uint())
	case reflect.Float32, reflect.Float64:
		to.SetFloat(to.Float() + from.Float())
	case reflect.Struct:
		for i := range to.NumField() {
			addUp(to.Field(i), from.Field(i))
		}
	case reflect.Array:
		for i := range to.Len() {
			addUp(to.Index(i), from.Index(i))
		}
	case reflect.Pointer:
		if from.IsNil() {
			return
		}
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		addUp(to.Elem(), from.Elem())
	default: // nothing to add
	}
}
