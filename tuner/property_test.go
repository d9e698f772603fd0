package tuner_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"autotune/model"
	"autotune/tuner"
)

// hostile proposes whatever was drawn.
func hostile(t *rapid.T) func(model.Features) model.Decision {
	purposes := []model.Purpose{model.PurposeHold, model.PurposeCost, model.PurposeSafety, model.PurposeExploration, model.PurposeReturn, model.PurposeOrder, "", "whim"}
	duration := rapid.OneOf(
		rapid.Just(time.Duration(0)),
		rapid.Map(rapid.Int64Range(0, 400), func(n int64) time.Duration { return time.Duration(n) * us }),
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
	)
	return func(f model.Features) model.Decision {
		d := model.Decision{
			Settings: model.Settings{
				DeferHardIRQs:     rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 100)).Draw(t, "defer"),
				GROFlushTimeout:   duration.Draw(t, "flush"),
				IRQSuspendTimeout: duration.Draw(t, "suspend"),
			},
			Purpose:    rapid.SampledFrom(purposes).Draw(t, "purpose"),
			Why:        rapid.String().Draw(t, "why"),
			Propensity: rapid.SampledFrom([]float64{0, 0.5, math.NaN(), math.Inf(1), -1}).Draw(t, "propensity"),
		}
		if rapid.Bool().Draw(t, "from features") {
			// A careless policy computes with what may be NaN.
			d.Settings.GROFlushTimeout = time.Duration(float64(f.Quantile) * f.Utilisation * f.EmptyShare)
			d.Settings.DeferHardIRQs = uint32(f.PacketRate * f.FiresPerPacket)
		}
		return d
	}
}

// anySample draws a sample that no source should yield.
func anySample(t *rapid.T, at time.Duration, queues []model.Queue, state model.Config) model.Sample {
	odd := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 100_000), rapid.Uint64())
	length := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Just(time.Second), rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }))
	pointer := func(name string) *time.Duration {
		if rapid.Bool().Draw(t, name+" known") {
			d := length.Draw(t, name)
			return &d
		}
		return nil
	}
	histogram := func() *model.Histogram {
		if rapid.Bool().Draw(t, "delay unknown") {
			return nil
		}
		h := &model.Histogram{}
		for range rapid.IntRange(0, 3).Draw(t, "buckets") {
			h.Counts[rapid.IntRange(0, model.HistogramBuckets-1).Draw(t, "bucket")] += odd.Draw(t, "count")
		}
		return h
	}
	s := model.Sample{At: at, Span: length.Draw(t, "span"), Lost: rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "lost")}
	if rapid.IntRange(0, 9).Draw(t, "no state") > 0 {
		s.Active = model.Config{}
		for q, v := range state {
			if rapid.IntRange(0, 9).Draw(t, "absent") > 0 {
				s.Active[q] = v
			}
		}
	}
	for _, q := range queues {
		if rapid.IntRange(0, 9).Draw(t, "no queue") == 0 {
			continue
		}
		x := model.QueueSample{Queue: q, NAPIID: rapid.SampledFrom([]uint32{0, 1, 1, 1, 2}).Draw(t, "napi"), ThreadTime: pointer("thread"), Delay: histogram()}
		x.Softirq = model.PollCounts{Polls: odd.Draw(t, "polls"), Packets: odd.Draw(t, "packets"), Empty: odd.Draw(t, "empty")}
		if rapid.Bool().Draw(t, "timer") {
			x.Timer = &model.TimerCounts{Fires: odd.Draw(t, "fires")}
		}
		s.Queues = append(s.Queues, x)
	}
	if rapid.Bool().Draw(t, "cpus") {
		s.CPUs = []model.CPUSample{{CPU: 0, NetRX: pointer("net_rx"), NetRXIdle: pointer("idle"), Busy: length.Draw(t, "busy"), Steal: length.Draw(t, "steal")}}
	}
	if rapid.Bool().Draw(t, "apps") {
		s.Apps = []model.AppSample{{CPU: length.Draw(t, "app"), Contexts: []model.EpollContext{{Prefer: true, NAPIIDs: []uint32{1}}}}}
	}
	if rapid.Bool().Draw(t, "latency") {
		s.Latency = &model.Latency{}
	}
	return s
}

func TestNothingHostileReachesTheKernel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queues := testQueues(rapid.IntRange(1, 3).Draw(t, "queues"))
		k := newKernel(queues...)
		journal := &entries{}
		bounds := model.Bounds{MaxDefer: 200, MaxFlush: time.Millisecond, MaxSuspend: 50 * time.Millisecond}
		p := &proposals{decide: hostile(t)}
		l, err := tuner.New(tuner.Options{
			Actuator: k, Policy: p, Journal: journal, Bounds: bounds, HoldEvery: -1,
			Objective: model.Objective{SLO: 250 * us, Quantile: 0.5},
			Absence:   time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		var at time.Duration
		for range rapid.IntRange(1, 25).Draw(t, "windows") {
			at += time.Second
			seen := len(*journal)
			err := l.Step(context.Background(), anySample(t, at, queues, k.state))
			if err != nil && !errors.Is(err, tuner.ErrNoQueue) {
				t.Fatalf("step: %v", err)
			}
			decided := map[model.Queue]bool{}
			for _, e := range (*journal)[seen:] {
				decided[e.Queue] = true
			}
			for _, f := range p.seen {
				if f.At == at && !decided[f.Queue] {
					t.Fatalf("the decision on %v is not journalled", f.Queue)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "trouble") == 0 {
				q := queues[0]
				k.fail[q] = rapid.SampledFrom([]error{nil, model.ErrBusy, model.ErrGone, model.ErrForeignWrite, model.ErrLinkDown}).Draw(t, "failure")
			}
		}
		for _, c := range k.writes {
			for q, s := range c {
				if err := bounds.Check(s); err != nil {
					t.Fatalf("reached the actuator for %v: %v", q, err)
				}
			}
		}
		var out bytes.Buffer
		for _, e := range *journal {
			if err := tuner.NewJSONL(&out).Record(e); err != nil {
				t.Fatal(err)
			}
		}
	})
}
