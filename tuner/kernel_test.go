package tuner_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// kernel is an actuator in memory.
type kernel struct {
	state model.Config
	// fail gives the error of a write to a queue; ignore the queues whose
	// writes succeed and change nothing.
	fail   map[model.Queue]error
	ignore map[model.Queue]bool
	whole  error
	writes []model.Config
}

func newKernel(queues ...model.Queue) *kernel {
	k := &kernel{state: model.Config{}, fail: map[model.Queue]error{}, ignore: map[model.Queue]bool{}}
	for _, q := range queues {
		k.state[q] = model.Settings{}
	}
	return k
}

func (k *kernel) Apply(_ context.Context, c model.Config) (model.Config, error) {
	k.writes = append(k.writes, maps.Clone(c))
	if k.whole != nil {
		return nil, k.whole
	}
	var errs []error
	out := model.Config{}
	for q, s := range c {
		if err := k.fail[q]; err != nil {
			errs = append(errs, &model.QueueError{Queue: q, Op: "napi-set", Err: err})
			continue
		}
		if !k.ignore[q] {
			k.state[q] = s
		}
		out[q] = k.state[q]
	}
	return out, errors.Join(errs...)
}

// scripted yields samples until they run out.
type scripted struct {
	samples []model.Sample
}

func (s *scripted) Next(context.Context) (model.Sample, error) {
	if len(s.samples) == 0 {
		return model.Sample{}, io.EOF
	}
	next := s.samples[0]
	s.samples = s.samples[1:]
	return next, nil
}

// proposals answers with a function of the turn.
type proposals struct {
	decide func(model.Features) model.Decision
	seen   []model.Features
}

func (p *proposals) Name() string { return "scripted" }

func (p *proposals) Decide(f model.Features) model.Decision {
	p.seen = append(p.seen, f)
	return p.decide(f)
}

func (p *proposals) outcomes() []model.Verdict {
	var out []model.Verdict
	for _, f := range p.seen {
		if f.Outcome.Verdict != "" {
			out = append(out, f.Outcome.Verdict)
		}
	}
	return out
}

// entries is a journal in memory.
type entries []tuner.Entry

func (e *entries) Record(x tuner.Entry) error {
	*e = append(*e, x)
	return nil
}

func (e entries) find(guard string, v model.Verdict) (tuner.Entry, bool) {
	for _, x := range e {
		if x.Guard == guard && x.Verdict == v {
			return x, true
		}
	}
	return tuner.Entry{}, false
}

// bench steps a loop through windows of one second.
type bench struct {
	t       *testing.T
	loop    *tuner.Loop
	kernel  *kernel
	journal *entries
	policy  *proposals
	now     time.Duration
	queues  []model.Queue
}

func testQueue(i int) model.Queue { return model.Queue{Netns: 4026531840, Ifindex: 3, Index: i} }

func testQueues(n int) []model.Queue {
	out := make([]model.Queue, n)
	for i := range out {
		out[i] = testQueue(i)
	}
	return out
}

func newBench(t *testing.T, n int, decide func(model.Features) model.Decision, change func(*tuner.Options)) *bench {
	t.Helper()
	b := &bench{t: t, queues: testQueues(n), journal: &entries{}, policy: &proposals{decide: decide}}
	b.kernel = newKernel(b.queues...)
	o := tuner.Options{
		Actuator: b.kernel, Policy: b.policy, Journal: b.journal, Queues: b.queues,
		Objective: model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.9},
		HoldEvery: -1,
	}
	if change != nil {
		change(&o)
	}
	loop, err := tuner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.loop = loop
	return b
}

// window is what a queue shows in one second.
type window struct {
	packets uint64
	cost    time.Duration // per packet
	delay   time.Duration
}

func steady() window {
	return window{packets: 20_000, cost: 20 * time.Microsecond, delay: 100 * time.Microsecond}
}

func (b *bench) sample(show func(model.Queue, model.Settings) window) model.Sample {
	b.now += time.Second
	s := model.Sample{At: b.now, Span: time.Second, Active: maps.Clone(b.kernel.state)}
	for i, q := range b.queues {
		if _, ok := s.Active[q]; !ok {
			continue
		}
		w := show(q, s.Active[q])
		thread := w.cost * time.Duration(w.packets)
		h := &model.Histogram{}
		h.Add(w.delay, w.packets)
		s.Queues = append(s.Queues, model.QueueSample{
			Queue: q, NAPIID: uint32(8193 + i), ThreadTime: &thread, Delay: h,
			Thread: model.PollCounts{Polls: w.packets, Packets: w.packets},
		})
	}
	return s
}

func (b *bench) step(s model.Sample) {
	b.t.Helper()
	if err := b.loop.Step(context.Background(), s); err != nil {
		b.t.Fatalf("step at %v: %v", s.At, err)
	}
}

// run steps through n equal windows.
func (b *bench) run(n int, show func(model.Queue, model.Settings) window) {
	b.t.Helper()
	for range n {
		b.step(b.sample(show))
	}
}

func same(w window) func(model.Queue, model.Settings) window {
	return func(model.Queue, model.Settings) window { return w }
}

func deferralOf(flush time.Duration) model.Settings {
	return model.Settings{DeferHardIRQs: 20, GROFlushTimeout: flush}
}

// always proposes s until it is active.
func always(s model.Settings, p model.Purpose) func(model.Features) model.Decision {
	return func(f model.Features) model.Decision {
		if f.Active == s {
			return model.Decision{Settings: s, Purpose: model.PurposeHold, Why: "there"}
		}
		return model.Decision{Settings: s, Purpose: p, Why: "wanted"}
	}
}

func hold(f model.Features) model.Decision {
	return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: "nothing to do"}
}
