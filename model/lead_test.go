package model

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLeadAddsUpWhatItsQueuesDid(t *testing.T) {
	delay := func(ds ...time.Duration) *Histogram {
		var h Histogram
		for _, d := range ds {
			h.Add(d, 1)
		}
		return &h
	}
	ptr := func(d time.Duration) *time.Duration { return &d }
	q := func(i int) Queue { return Queue{Ifindex: 2, Index: i} }
	other := Queue{Ifindex: 3}
	set := Settings{DeferHardIRQs: 2}
	s := Sample{
		Span: time.Second, Lost: 3,
		Queues: []QueueSample{
			{Queue: q(0), NAPIID: 11, Softirq: PollCounts{Polls: 5, Packets: 50}, Timer: &TimerCounts{Fires: 1}, Delay: delay(100), SampleEvery: 4},
			{Queue: q(1), NAPIID: 12, Softirq: PollCounts{Polls: 7, Packets: 70, Empty: 1}, Timer: &TimerCounts{Fires: 2, Arms: 3}, ThreadTime: ptr(time.Second), Delay: delay(100, 9000), SampleEvery: 4},
			{Queue: other, NAPIID: 13, Busy: PollCounts{Polls: 1}},
		},
		Active:  Config{q(0): set, q(1): set, other: {}},
		NAPIIDs: map[Queue]uint32{q(0): 11, q(1): 12, other: 13},
	}
	before := s.Queues[0]
	got := s.Lead(map[Queue]Queue{q(0): q(0), q(1): q(0)})
	want := Sample{
		Span: time.Second, Lost: 3,
		Queues: []QueueSample{
			{
				Queue: q(0), NAPIID: 11, Softirq: PollCounts{Polls: 12, Packets: 120, Empty: 1}, Timer: &TimerCounts{Fires: 3, Arms: 3},
				ThreadTime: ptr(time.Second), Delay: delay(100, 100, 9000), SampleEvery: 4,
			},
			{Queue: other, NAPIID: 13, Busy: PollCounts{Polls: 1}},
		},
		Active:  Config{q(0): set, other: {}},
		NAPIIDs: map[Queue]uint32{q(0): 11, other: 13},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, s.Queues[0]); diff != "" || s.Queues[0].Delay.Count() != 1 {
		t.Errorf("the sample itself has changed:\n%s", diff)
	}
	if diff := cmp.Diff(s, s.Lead(nil)); diff != "" {
		t.Errorf("without leads (-want +got):\n%s", diff)
	}
}

// TestLeadForgetsNoField fills every number of two queues with 1.
func TestLeadForgetsNoField(t *testing.T) {
	var ones QueueSample
	fill(reflect.ValueOf(&ones).Elem())
	ones.Queue, ones.NAPIID = Queue{Ifindex: 2}, 7
	second := ones
	second.Queue, second.CPUs = Queue{Ifindex: 2, Index: 1}, []int{0, 1}
	s := Sample{Queues: []QueueSample{ones, second}}
	got := s.Lead(map[Queue]Queue{second.Queue: ones.Queue}).Queues
	if len(got) != 1 {
		t.Fatalf("%d queues", len(got))
	}
	for i := range reflect.TypeFor[QueueSample]().NumField() {
		name := reflect.TypeFor[QueueSample]().Field(i).Name
		a, b := reflect.ValueOf(got[0]).Field(i), reflect.ValueOf(ones).Field(i)
		same := reflect.DeepEqual(a.Interface(), b.Interface())
		if identity := name == "Queue" || name == "NAPIID" || name == "SampleEvery"; same != identity {
			t.Errorf("%s: %v of two queues with %v each", name, a, b)
		}
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	default: // no number
	}
}
