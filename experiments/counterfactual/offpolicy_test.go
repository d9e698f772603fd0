package counterfactual

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"autotune/model"
)

var flushes = []time.Duration{0, 10 * time.Microsecond, 20 * time.Microsecond, 40 * time.Microsecond, 80 * time.Microsecond}

func deferring(flush time.Duration) model.Settings {
	if flush == 0 {
		return model.Settings{}
	}
	return model.Settings{DeferHardIRQs: 10, GROFlushTimeout: flush}
}

// drawn is a log of a policy that draws one of the flush timeouts with the
// probabilities given, where the result is a known function of load and setting.
func drawn(n int, probabilities []float64, target func(rate float64) time.Duration) (choices []Choice, truth float64) {
	r := rand.New(rand.NewPCG(1, 2))
	result := func(rate float64, flush time.Duration) float64 {
		return 10 - 2*flush.Seconds()*1e4 + rate/1e5
	}
	for range n {
		rate := 1e4 + 9e4*r.Float64()
		u, pick := r.Float64(), 0
		for u > probabilities[pick] && pick < len(probabilities)-1 {
			u -= probabilities[pick]
			pick++
		}
		choices = append(choices, Choice{
			PacketRate: rate, Taken: deferring(flushes[pick]), Propensity: probabilities[pick], Target: deferring(target(rate)),
			Result: Result{CPUPerPacketUs: result(rate, flushes[pick]) + r.NormFloat64()},
		})
		truth += result(rate, target(rate))
	}
	return choices, truth / float64(n)
}

func TestOffPolicyFindsWhatAnotherPolicyWouldHaveComeTo(t *testing.T) {
	target := func(rate float64) time.Duration {
		if rate > 5e4 {
			return 80 * time.Microsecond
		}
		return 0
	}
	for name, probabilities := range map[string][]float64{
		"uniform": {0.2, 0.2, 0.2, 0.2, 0.2},
		"skewed":  {0.5, 0.2, 0.1, 0.1, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			choices, truth := drawn(4000, probabilities, target)
			e, err := OffPolicy(choices)
			if err != nil {
				t.Fatal(err)
			}
			// Four standard errors of a mean over the effective sample.
			within := 4 * e.Error.CPUPerPacketUs
			if within <= 0 || within > 0.5 {
				t.Fatalf("a standard error of %v", e.Error.CPUPerPacketUs)
			}
			if d := math.Abs(e.Weighted.CPUPerPacketUs - truth); d > within {
				t.Errorf("weighted estimate %.3f, want %.3f within %.3f", e.Weighted.CPUPerPacketUs, truth, within)
			}
			if d := math.Abs(e.DoublyRobust.CPUPerPacketUs - truth); d > within {
				t.Errorf("doubly robust estimate %.3f, want %.3f within %.3f", e.DoublyRobust.CPUPerPacketUs, truth, within)
			}
			mean := 0.0
			for _, c := range choices {
				mean += c.Result.CPUPerPacketUs / float64(len(choices))
			}
			if math.Abs(mean-truth) < within {
				t.Errorf("the plain mean %.3f would pass for the truth %.3f: the test shows nothing", mean, truth)
			}
		})
	}
}

func TestOffPolicyRefusesWhatItCannotTell(t *testing.T) {
	always := func(float64) time.Duration { return 80 * time.Microsecond }
	deterministic, _ := drawn(1000, []float64{0.2, 0.2, 0.2, 0.2, 0.2}, always)
	for i := range deterministic {
		deterministic[i].Propensity = 0
	}
	few, _ := drawn(300, []float64{0.2, 0.2, 0.2, 0.2, 0.2}, always)
	elsewhere, _ := drawn(5000, []float64{0.5, 0.5, 0, 0, 0}, always)
	for name, c := range map[string]struct {
		choices []Choice
		want    error
	}{
		"a deterministic log":     {deterministic, ErrDeterministic},
		"an empty log":            {nil, ErrDeterministic},
		"a short log":             {few, ErrTooFew},
		"a log of other settings": {elsewhere, ErrTooFew},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OffPolicy(c.choices); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestWeightsAreClipped(t *testing.T) {
	choices, _ := drawn(20000, []float64{0.98, 0.005, 0.005, 0.005, 0.005}, func(float64) time.Duration { return 80 * time.Microsecond })
	e, err := OffPolicy(append(choices, choices...))
	if err != nil {
		t.Fatal(err)
	}
	if e.Clipped != e.Matched || e.Clipped == 0 {
		t.Errorf("%d of %d weights were clipped, want all: each would be 200", e.Clipped, e.Matched)
	}
}

func TestAChoiceEndsWithItsSettings(t *testing.T) {
	q := model.Queue{Netns: 1, Ifindex: 2}
	taken := deferring(40 * time.Microsecond)
	sample := func(active model.Settings, delay time.Duration) *model.Sample {
		h := &model.Histogram{}
		h.Add(delay, 10)
		spent := 10 * time.Millisecond
		return &model.Sample{
			Span: time.Second, Active: model.Config{q: active},
			Queues: []model.QueueSample{{Queue: q, Thread: model.PollCounts{Polls: 10, Packets: 1000}, ThreadTime: &spent, Delay: h, SampleEvery: 1}},
		}
	}
	c := Choices{Objective: model.Objective{SLO: 100 * time.Microsecond, Quantile: 0.9}}
	c.Decide(q, 1000, taken, 0.2, taken)
	c.Add(sample(taken, time.Millisecond)) // carried over: not counted
	c.Add(sample(taken, 50*time.Microsecond))
	c.Add(sample(taken, 200*time.Microsecond))
	c.Add(sample(model.Settings{}, time.Second)) // somebody else's
	got := c.List()
	if len(got) != 1 {
		t.Fatalf("%d choices, want 1", len(got))
	}
	if r := got[0].Result; r.CPUPerPacketUs != 10 || r.Violating != 0.5 || math.Abs(r.DelayUs-125) > 10 {
		t.Errorf("result %+v, want 10 us per packet, half of the windows violating and about 125 us", r)
	}
}
