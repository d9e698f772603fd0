package model_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

func ptr[T any](v T) *T { return &v }

func TestCostsCountNoTimeTwice(t *testing.T) {
	const ms = time.Millisecond
	a, b := model.Queue{Netns: 1, Ifindex: 2}, model.Queue{Netns: 1, Ifindex: 2, Index: 1}
	softirq := func(q model.Queue, id uint32, packets uint64) model.QueueSample {
		return model.QueueSample{Queue: q, NAPIID: id, Softirq: model.PollCounts{Packets: packets}}
	}
	threaded := func(q model.Queue, id uint32, packets uint64, cpu time.Duration) model.QueueSample {
		return model.QueueSample{Queue: q, NAPIID: id, Thread: model.PollCounts{Packets: packets}, ThreadTime: &cpu}
	}
	tests := []struct {
		name   string
		sample model.Sample
		want   map[model.Queue]time.Duration
	}{
		{"nothing observed is not known", model.Sample{Queues: []model.QueueSample{softirq(a, 1, 100)}}, map[model.Queue]time.Duration{}},
		{
			"of NET_RX only what interrupted idle is added",
			model.Sample{
				Queues: []model.QueueSample{softirq(a, 1, 100)},
				CPUs:   []model.CPUSample{{NetRX: ptr(50 * ms), NetRXIdle: ptr(20 * ms)}},
				Apps:   []model.AppSample{{CPU: 100 * ms}},
			},
			map[model.Queue]time.Duration{a: 120 * ms},
		},
		{
			"NET_RX does not count for a queue that its thread polls",
			model.Sample{
				Queues: []model.QueueSample{threaded(a, 1, 100, 30*ms)},
				CPUs:   []model.CPUSample{{NetRX: ptr(50 * ms), NetRXIdle: ptr(20 * ms)}},
				Apps:   []model.AppSample{{CPU: 100 * ms}},
			},
			map[model.Queue]time.Duration{a: 130 * ms},
		},
		{
			"of device interrupts only what no task was charged with is added",
			model.Sample{
				Queues: []model.QueueSample{threaded(a, 1, 300, 30*ms), softirq(b, 2, 100)},
				CPUs:   []model.CPUSample{{HardIRQ: ptr(60 * ms), HardIRQIdle: ptr(25 * ms)}, {HardIRQ: ptr(20 * ms), HardIRQIdle: ptr(15 * ms)}},
			},
			map[model.Queue]time.Duration{a: 60 * ms, b: 10 * ms},
		},
		{
			"ksoftirqd counts once, beside the softirqs that it did not run",
			model.Sample{
				Queues: []model.QueueSample{softirq(a, 1, 300), softirq(b, 2, 100), threaded(model.Queue{Netns: 1, Ifindex: 2, Index: 2}, 3, 100, 5*ms)},
				CPUs:   []model.CPUSample{{NetRX: ptr(90 * ms), NetRXIdle: ptr(10 * ms), Ksoftirqd: ptr(70 * ms)}},
			},
			map[model.Queue]time.Duration{a: 60 * ms, b: 20 * ms, {Netns: 1, Ifindex: 2, Index: 2}: 5 * ms},
		},
		{
			"ksoftirqd alone is known",
			model.Sample{
				Queues: []model.QueueSample{softirq(a, 1, 100)},
				CPUs:   []model.CPUSample{{NetRX: ptr(70 * ms), Ksoftirqd: ptr(70 * ms)}},
			},
			map[model.Queue]time.Duration{a: 70 * ms},
		},
		{
			"queues share by packets",
			model.Sample{
				Queues: []model.QueueSample{softirq(a, 1, 300), softirq(b, 2, 100)},
				CPUs:   []model.CPUSample{{NetRXIdle: ptr(20 * ms)}, {NetRXIdle: ptr(20 * ms)}},
				Apps:   []model.AppSample{{CPU: 80 * ms}},
			},
			map[model.Queue]time.Duration{a: 90 * ms, b: 30 * ms},
		},
		{
			"softirq time is shared by the time of polls, not by what they found",
			model.Sample{
				Queues: []model.QueueSample{
					{Queue: a, NAPIID: 1, Softirq: model.PollCounts{Polls: 900, Packets: 100}, SoftirqTime: ptr(30 * ms)},
					{Queue: b, NAPIID: 2, Softirq: model.PollCounts{Polls: 100, Packets: 900}, SoftirqTime: ptr(10 * ms)},
				},
				CPUs: []model.CPUSample{{NetRXIdle: ptr(20 * ms), HardIRQIdle: ptr(10 * ms)}},
			},
			map[model.Queue]time.Duration{a: 24 * ms, b: 6 * ms},
		},
		{
			"an empty poll counts as a packet where no time is known",
			model.Sample{
				Queues: []model.QueueSample{
					{Queue: a, NAPIID: 1, Softirq: model.PollCounts{Polls: 300}},
					{Queue: b, NAPIID: 2, Softirq: model.PollCounts{Polls: 50, Packets: 50}},
				},
				CPUs: []model.CPUSample{{NetRXIdle: ptr(20 * ms)}},
			},
			map[model.Queue]time.Duration{a: 15 * ms, b: 5 * ms},
		},
		{
			"an application is shared by how busy the queues' own CPUs are beside softirqs",
			model.Sample{
				Queues: []model.QueueSample{onCPU(softirq(a, 1, 100), 0), onCPU(softirq(b, 2, 100), 1)},
				CPUs: []model.CPUSample{
					{CPU: 0, Busy: 80 * ms, NetRXIdle: ptr(20 * ms)}, {CPU: 1, Busy: 20 * ms},
				},
				Apps: []model.AppSample{{CPU: 80 * ms}},
			},
			map[model.Queue]time.Duration{a: 70 * ms, b: 30 * ms},
		},
		{
			"but by packets where these CPUs had no time for it",
			model.Sample{
				Queues: []model.QueueSample{onCPU(softirq(a, 1, 100), 0), onCPU(softirq(b, 2, 100), 1)},
				CPUs:   []model.CPUSample{{CPU: 0, Busy: 40 * ms}, {CPU: 1, Busy: 10 * ms}},
				Apps:   []model.AppSample{{CPU: 80 * ms}},
			},
			map[model.Queue]time.Duration{a: 40 * ms, b: 40 * ms},
		},
		{
			"and where queues share a CPU",
			model.Sample{
				Queues: []model.QueueSample{onCPU(softirq(a, 1, 100), 0), onCPU(softirq(b, 2, 100), 0)},
				CPUs:   []model.CPUSample{{CPU: 0, Busy: 100 * ms}},
				Apps:   []model.AppSample{{CPU: 80 * ms}},
			},
			map[model.Queue]time.Duration{a: 40 * ms, b: 40 * ms},
		},
		{
			"an application counts only for the queues of its contexts",
			model.Sample{
				Queues: []model.QueueSample{threaded(a, 1, 100, 10*ms), threaded(b, 2, 100, 10*ms)},
				Apps: []model.AppSample{
					{CPU: 80 * ms, Contexts: []model.EpollContext{{NAPIIDs: []uint32{2}}, {NAPIIDs: []uint32{2, 77}}}},
					{CPU: 10 * ms, Contexts: []model.EpollContext{{NAPIIDs: []uint32{1, 2}}}},
				},
			},
			map[model.Queue]time.Duration{a: 15 * ms, b: 95 * ms},
		},
		{
			"nothing is known while an application comes or goes",
			model.Sample{
				Queues: []model.QueueSample{softirq(a, 1, 300), threaded(b, 2, 100, 10*ms)},
				CPUs:   []model.CPUSample{{NetRXIdle: ptr(20 * ms)}},
				Apps:   []model.AppSample{{CPU: 80 * ms}}, AppsUnknown: 1,
			},
			map[model.Queue]time.Duration{},
		},
		{
			"a thread without a baseline is not free",
			model.Sample{
				Queues: []model.QueueSample{
					softirq(a, 1, 300), {Queue: b, NAPIID: 2, Thread: model.PollCounts{Polls: 50, Packets: 100}},
				},
				CPUs: []model.CPUSample{{NetRXIdle: ptr(20 * ms)}},
				Apps: []model.AppSample{{CPU: 80 * ms}},
			},
			map[model.Queue]time.Duration{a: 80 * ms},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, model.Costs(&tc.sample)); diff != "" {
				t.Errorf("costs (-want +got):\n%s", diff)
			}
		})
	}
}

// onCPU returns the queue with its polls on one CPU.
func onCPU(q model.QueueSample, cpu int) model.QueueSample {
	q.CPUs = []int{cpu}
	return q
}

func TestWindowFeatures(t *testing.T) {
	q := model.Queue{Netns: 1, Ifindex: 2}
	part := func(at time.Duration, delay time.Duration) model.WindowPart {
		h := &model.Histogram{}
		h.Add(delay, 1000)
		return model.WindowPart{
			At: at, Span: time.Second, Delay: h, Cost: ptr(20 * time.Millisecond), Utilisation: 0.5,
			Queue: &model.QueueSample{
				Softirq: model.PollCounts{Polls: 60, Packets: 750, Empty: 10}, Thread: model.PollCounts{Polls: 50, Packets: 250},
				Timer: &model.TimerCounts{Fires: 100},
			},
		}
	}
	var w model.Window
	w.Add(part(time.Second, 10*time.Microsecond))
	w.Add(part(2*time.Second, 100*time.Microsecond))
	objective := model.Objective{SLO: time.Millisecond, Quantile: 0.9}
	f := w.Features(q, model.Settings{}, objective, 500)
	if f.At != 2*time.Second || f.Span != 2*time.Second || f.Windows != 2 || f.Delay.Count() != 2000 {
		t.Errorf("merged %v, %v, %d windows, %d delays", f.At, f.Span, f.Windows, f.Delay.Count())
	}
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"packet rate", f.PacketRate, 1000},
		{"rate change", f.RateChange, 1},
		{"packets per non-empty poll", f.PacketsPerPoll, 10},
		{"empty share", f.EmptyShare, 20.0 / 220},
		{"fires per packet", f.FiresPerPacket, 0.1},
		{"softirq share", f.SoftirqShare, 0.75},
		{"thread share", f.ThreadShare, 0.25},
		{"busy share", f.BusyShare, 0},
		{"utilisation", f.Utilisation, 0.5},
		{"cost per packet in us", f.CostPerPacket.Seconds() * 1e6, 20},
	} {
		if math.Abs(x.got-x.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", x.name, x.got, x.want)
		}
	}
	// The quantile is that of both windows together.
	if f.Quantile < 88*time.Microsecond || f.Quantile > 113*time.Microsecond {
		t.Errorf("p90 is %v, want about 100us", f.Quantile)
	}
}

func TestWindowOfNothingKnowsNothing(t *testing.T) {
	var w model.Window
	w.Add(model.WindowPart{Span: time.Second, Utilisation: math.NaN()})
	f := w.Features(model.Queue{}, model.Settings{}, model.Objective{Quantile: 0.9}, 0)
	for name, x := range map[string]float64{"utilisation": f.Utilisation, "packets per poll": f.PacketsPerPoll, "empty share": f.EmptyShare, "fires": f.FiresPerPacket} {
		if !math.IsNaN(x) {
			t.Errorf("%s is %v, want NaN", name, x)
		}
	}
	if f.CostPerPacket != 0 || f.Delay != nil || f.PacketRate != 0 || f.RateChange != 0 {
		t.Errorf("got %+v", f)
	}
}

func TestWindowCostIsUnknownWhereAPartLacksIt(t *testing.T) {
	q := &model.QueueSample{Thread: model.PollCounts{Packets: 100}}
	for _, costs := range [][]*time.Duration{{nil, ptr(time.Second)}, {ptr(time.Second), nil}, {ptr(time.Second), nil, ptr(time.Second)}} {
		var w model.Window
		for _, c := range costs {
			w.Add(model.WindowPart{Span: time.Second, Queue: q, Cost: c})
		}
		if f := w.Features(model.Queue{}, model.Settings{}, model.Objective{}, 0); f.CostPerPacket != 0 {
			t.Errorf("cost %v from incomplete parts", f.CostPerPacket)
		}
	}
}
