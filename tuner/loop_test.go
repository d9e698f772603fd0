package tuner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	good := tuner.Options{Policy: policy.Base{}, Objective: model.Objective{SLO: time.Millisecond, Quantile: 0.99}}
	tests := []struct {
		name   string
		change func(*tuner.Options)
		want   string // empty when it works
	}{
		{"policy and objective suffice", func(*tuner.Options) {}, ""},
		{"no policy", func(o *tuner.Options) { o.Policy = nil }, "a policy must be set"},
		{"no SLO", func(o *tuner.Options) { o.Objective.SLO = 0 }, "must be positive"},
		{"a quantile of 99", func(o *tuner.Options) { o.Objective.Quantile = 99 }, "not between 0 and 1"},
		{"a quantile that is no number", func(o *tuner.Options) { o.Objective.Quantile = math.NaN() }, "not between 0 and 1"},
		{"negative bounds", func(o *tuner.Options) { o.Bounds.MaxFlush = -1 }, "negative bounds"},
		{"a breach that nothing confirms", func(o *tuner.Options) { o.SLO.Confirm = -1 }, "cannot confirm a breach"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := tuner.New(o)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an error containing %q", err, tc.want)
			}
		})
	}
}

func TestRunEndsWithItsSource(t *testing.T) {
	b := newBench(t, 1, hold, nil)
	samples := []model.Sample{b.sample(same(steady())), b.sample(same(steady()))}
	p := &proposals{decide: hold}
	l, err := tuner.New(tuner.Options{
		Source: &scripted{samples: samples}, Actuator: b.kernel, Policy: p,
		Objective: model.Objective{SLO: time.Millisecond, Quantile: 0.9},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(context.Background()); err != nil {
		t.Errorf("Run at the end of the recording: %v", err)
	}
	if len(p.seen) != 2 {
		t.Errorf("decided %d windows, want 2", len(p.seen))
	}
}

// ticking is a live source: a window takes its length.
type ticking struct {
	sample func() model.Sample
	span   time.Duration
}

func (s *ticking) Next(ctx context.Context) (model.Sample, error) {
	timer := time.NewTimer(s.span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return model.Sample{}, fmt.Errorf("wait for the window: %w", ctx.Err())
	case <-timer.C:
		return s.sample(), nil
	}
}

func TestRunEndsWithItsContextInTheMiddleOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, hold, nil)
		p := &proposals{decide: hold}
		l, err := tuner.New(tuner.Options{
			Source:   &ticking{sample: func() model.Sample { return b.sample(same(steady())) }, span: time.Second},
			Actuator: b.kernel, Policy: p, Objective: model.Objective{SLO: time.Millisecond, Quantile: 0.9},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := l.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v, want the context's error", err)
		}
		if took := time.Since(start); took != 4500*time.Millisecond {
			t.Errorf("ended after %v, want 4.5s", took)
		}
		if len(p.seen) != 4 {
			t.Errorf("decided %d windows, want 4", len(p.seen))
		}
	})
}

type broken struct{ err error }

func (s broken) Next(context.Context) (model.Sample, error) { return model.Sample{}, s.err }

func (s broken) Record(tuner.Entry) error { return s.err }

func TestRunReportsABrokenSource(t *testing.T) {
	want := errors.New("map is gone")
	l, err := tuner.New(tuner.Options{Source: broken{want}, Policy: policy.Base{}, Objective: model.Objective{SLO: 1, Quantile: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(context.Background()); !errors.Is(err, want) || !strings.Contains(err.Error(), "read sample") {
		t.Errorf("got %v", err)
	}
}

func TestAJournalThatFailsEndsTheRun(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) { o.Journal = broken{io.ErrShortWrite} })
	if err := b.loop.Step(context.Background(), b.sample(same(steady()))); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want the journal's error", err)
	}
}

func TestAFailingQueueLeavesTheOthers(t *testing.T) {
	for _, cause := range []error{model.ErrGone, model.ErrReadOnly, model.ErrForeignWrite, model.ErrBusy, model.ErrLinkDown, errors.New("EIO")} {
		t.Run(cause.Error(), func(t *testing.T) {
			b := newBench(t, 2, always(deferralOf(50*us), model.PurposeSafety), nil)
			b.kernel.fail[b.queues[0]] = fmt.Errorf("the kernel says no: %w", cause)
			b.run(3, same(steady()))
			if got := b.kernel.state[b.queues[1]]; got != deferralOf(50*us) {
				t.Errorf("the other queue is at %v", got)
			}
			found := false
			for _, e := range *b.journal {
				if e.Queue == b.queues[0] && e.Verdict == model.VerdictFailed && strings.Contains(e.Why, cause.Error()) {
					found = true
				}
			}
			if !found {
				t.Errorf("no entry names the failure %v", cause)
			}
			outcomes := b.policy.outcomes()
			if len(outcomes) == 0 || !errors.Is(cause, model.ErrGone) && !errors.Is(cause, model.ErrReadOnly) && outcomes[0] == "" {
				t.Errorf("the policy was told %v", outcomes)
			}
		})
	}
}

func TestNoQueueLeftNamesEachOne(t *testing.T) {
	b := newBench(t, 2, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.kernel.fail[b.queues[0]] = model.ErrGone
	b.kernel.fail[b.queues[1]] = model.ErrReadOnly
	err := b.loop.Step(context.Background(), b.sample(same(steady())))
	for _, want := range []error{tuner.ErrNoQueue, model.ErrGone, model.ErrReadOnly} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	for _, q := range b.queues {
		if err == nil || !strings.Contains(err.Error(), q.String()) {
			t.Errorf("%v does not name %v", err, q)
		}
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

func TestABusyQueueIsTriedAgain(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.kernel.fail[b.queues[0]] = model.ErrBusy
	b.run(40, same(steady()))
	if n := len(b.kernel.writes); n < 3 || n > 10 {
		t.Errorf("tried %d times in 40 windows, want a few", n)
	}
	delete(b.kernel.fail, b.queues[0])
	b.run(70, same(steady()))
	e := b.wantEntry("", model.VerdictApplied, "wanted")
	if e.To != deferralOf(50*us) {
		t.Errorf("applied %v", e.To)
	}
}

func TestAFailedRevertIsTriedAgain(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 60 * us})
	b.run(3, show)
	b.kernel.fail[b.queues[0]] = model.ErrBusy
	b.run(1, show)
	b.wantState(deferralOf(50 * us))
	b.wantEntry("actuator", model.VerdictFailed, "busy")
	delete(b.kernel.fail, b.queues[0])
	b.run(3, show)
	b.wantState(model.Settings{})
}

func TestAnActuatorThatFailsAsAWholeEndsTheRun(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.kernel.whole = io.ErrClosedPipe
	err := b.loop.Step(context.Background(), b.sample(same(steady())))
	if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "apply settings") {
		t.Errorf("got %v", err)
	}
	b.wantEntry("actuator", model.VerdictFailed, "closed pipe")
}

func TestAWriteWithoutEffectIsNamed(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.kernel.ignore[b.queues[0]] = true
	b.run(1, same(steady()))
	e := b.wantEntry("actuator", model.VerdictFailed, "was written and defer=0,flush=0s is read back")
	if e.To != (model.Settings{}) {
		t.Errorf("the entry claims %v", e.To)
	}
}

func TestAnAbsentQueueIsWaitedForAndThenLost(t *testing.T) {
	b := newBench(t, 1, hold, nil)
	b.run(2, same(steady()))
	delete(b.kernel.state, b.queues[0])
	var err error
	n := 0
	for ; err == nil && n < 60; n++ {
		s := b.sample(same(steady()))
		s.Absent = map[model.Queue]string{b.queues[0]: "no such instance"}
		err = b.loop.Step(context.Background(), s)
	}
	if !errors.Is(err, tuner.ErrNoQueue) || !strings.Contains(err.Error(), "no such instance") {
		t.Errorf("got %v", err)
	}
	if n != 11 {
		t.Errorf("waited for %d windows of 1s, want 11", n)
	}
	b.wantEntry("loop", model.VerdictFailed, "absent: no such instance")
}

func TestALinkThatIsDownIsWaitedForHoweverLong(t *testing.T) {
	b := newBench(t, 1, hold, nil)
	b.run(2, same(steady()))
	delete(b.kernel.state, b.queues[0])
	for range 600 {
		s := b.sample(same(steady()))
		s.Absent = map[model.Queue]string{b.queues[0]: fmt.Sprintf("napi-get: %v", model.ErrLinkDown)}
		b.step(s)
	}
	b.wantEntry("loop", model.VerdictFailed, model.ErrLinkDown.Error())
}

func TestARenewedNAPIIsNoForeignWrite(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.wantState(deferralOf(50 * us))
	// The link went down and up: a new NAPI with the device's values.
	b.kernel.state[b.queues[0]] = deferralOf(7 * us)
	for range 4 {
		s := b.sample(same(steady()))
		s.Queues[0].NAPIID = 9000
		b.step(s)
	}
	b.wantEntry("loop", model.VerdictHeld, "back as NAPI 9000 (was 8193)")
	b.wantState(deferralOf(50 * us))
}

func TestObservingWritesNothingAndSaysWhatItWould(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), func(o *tuner.Options) { o.Actuator = nil })
	b.run(3, same(steady()))
	b.wantState(model.Settings{})
	e := b.wantEntry("", model.VerdictAdvised, "wanted")
	if e.To != deferralOf(50*us) || e.From != (model.Settings{}) {
		t.Errorf("advised %v to %v", e.From, e.To)
	}
	if got := b.policy.outcomes(); len(got) == 0 || got[0] != model.VerdictAdvised {
		t.Errorf("the policy was told %v", got)
	}
}

func TestRepeatedHoldsAreThinned(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) { o.HoldEvery = 0 })
	b.run(30, same(steady()))
	if n := len(*b.journal); n != 3 {
		t.Errorf("%d entries in 30 s of the same hold, want one in 10 s", n)
	}
}

func TestRepeatedOrdersAreThinned(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	for _, tt := range []struct {
		name    string
		observe bool
		verdict model.Verdict
	}{
		{"refused by readiness", false, model.VerdictRefused},
		{"advised, since nothing is written", true, model.VerdictAdvised},
	} {
		t.Run(tt.name, func(t *testing.T) {
			order := suspend
			if tt.observe {
				order.IRQSuspendTimeout = 0
			}
			b := newBench(t, 1, func(model.Features) model.Decision {
				return model.Decision{Settings: order, Purpose: model.PurposeOrder, Why: "ordered"}
			}, func(o *tuner.Options) {
				o.HoldEvery = 0
				if tt.observe {
					o.Actuator = nil
				}
			})
			b.run(30, same(steady()))
			said := 0
			for _, e := range *b.journal {
				if e.Verdict == tt.verdict {
					said++
				}
			}
			if said != 3 {
				t.Errorf("said %d times in 30 s, want once in 10 s: %v", said, *b.journal)
			}
		})
	}
}

func TestAnOrderRefusedForAnotherReasonIsJournalledAtOnce(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeOrder), func(o *tuner.Options) { o.HoldEvery = 0 })
	for _, contexts := range [][]model.EpollContext{nil, nil, nil, {{FD: 5, Prefer: true, NAPIIDs: []uint32{8193, 8194}}}, {{FD: 5, Prefer: true, NAPIIDs: []uint32{8193, 8194}}}} {
		s := b.sample(same(steady()))
		s.Apps = []model.AppSample{{PID: 7, Comm: "memcached", Contexts: contexts}}
		b.step(s)
	}
	var why []string
	for _, e := range *b.journal {
		if e.Verdict == model.VerdictRefused {
			why = append(why, e.Why)
		}
	}
	if len(why) != 2 || !strings.Contains(why[0], "no application") || !strings.Contains(why[1], "mixes") {
		t.Errorf("refused for %q, want once for no application and once for a mixed one", why)
	}
}

func TestSameSamplesAndSeedGiveTheSameBytes(t *testing.T) {
	for _, spec := range []string{"random:seed=7", "aimd"} {
		t.Run(spec, func(t *testing.T) {
			decide := func() []byte {
				var out bytes.Buffer
				p := newPlant(3, 250*time.Millisecond, time.Minute, lowHighLow(5*time.Second))
				runPlant(t, p, spec, tuner.NewJSONL(&out))
				return out.Bytes()
			}
			first, second := decide(), decide()
			if len(first) == 0 || !bytes.Equal(first, second) {
				t.Errorf("%d and %d bytes differ", len(first), len(second))
			}
		})
	}
}

func BenchmarkStep1000Queues(b *testing.B) {
	const n = 1000
	queues := testQueues(n)
	p := policy.NewAIMD(policy.DefaultAIMDOptions())
	k := newKernel(queues...)
	l, err := tuner.New(tuner.Options{
		Actuator: k, Policy: p, Journal: tuner.NewJSONL(io.Discard), Queues: queues,
		Objective: model.Objective{SLO: 250 * us, Quantile: 0.99},
	})
	if err != nil {
		b.Fatal(err)
	}
	s := model.Sample{Span: time.Second, Active: k.state}
	thread := 400 * time.Millisecond
	h := &model.Histogram{}
	h.Add(100*us, 20_000)
	for i, q := range queues {
		s.Queues = append(s.Queues, model.QueueSample{
			Queue: q, NAPIID: uint32(i + 1), ThreadTime: &thread, Delay: h,
			Thread: model.PollCounts{Polls: 20_000, Packets: 20_000},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.At += time.Second
		if err := l.Step(context.Background(), s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/queue")
}
