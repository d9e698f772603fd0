package policy

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"autotune/model"
)

// readyFeatures are those of a queue under suspension, at a load that its CPU has
// room for.
func readyFeatures(queue int) model.Features {
	return model.Features{
		Queue:      model.Queue{Netns: 1, Ifindex: 2, Index: queue},
		Active:     model.Settings{DeferHardIRQs: 20, GROFlushTimeout: 50 * time.Microsecond, IRQSuspendTimeout: 5 * time.Millisecond},
		PacketRate: 100_000, CostPerPacket: 4 * time.Microsecond, Utilisation: 0.4,
		Quantile: 200 * time.Microsecond, Median: 80 * time.Microsecond,
		Objective:  model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.99},
		Suspension: model.Readiness{Ready: true},
	}
}

func mustGreybox(t *testing.T) *Greybox {
	t.Helper()
	p, err := NewGreybox(DefaultGreyboxOptions())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lateTail returns delays with that 0.99 quantile and an exponential tail.
func lateTail(quantile time.Duration) *model.Histogram {
	const n = 1e6
	above := func(d time.Duration) float64 { return math.Exp(-math.Log(100) * float64(d) / float64(quantile)) }
	var h model.Histogram
	for i := range h.Counts {
		low, high := model.HistogramBounds(i)
		h.Counts[i] = uint64(n * (above(low) - above(high)))
	}
	return &h
}

// besideBench is a device of queues that are alike but in their delays.
type besideBench struct {
	p *Greybox
	d *greyboxDevice
}

func newBesideBench(t *testing.T) *besideBench {
	b := &besideBench{p: mustGreybox(t)}
	b.p.queue(readyFeatures(0).Queue)
	b.d = b.p.devices[greyboxDeviceKey{1, 2}]
	return b
}

func (b *besideBench) features(queue int, quantile time.Duration) (*greyboxQueue, model.Features) {
	f := readyFeatures(queue)
	f.Delay = lateTail(quantile)
	f.Quantile = f.Delay.Quantile(f.Objective.Quantile)
	return b.p.queue(f.Queue), f
}

func (b *besideBench) see(queue int, quantile time.Duration) {
	q, f := b.features(queue, quantile)
	b.d.host.see(b.d, q, &f)
}

func (b *besideBench) left(queue int, quantile time.Duration) float64 {
	q, f := b.features(queue, quantile)
	return newGreyboxChoice(b.p, q, b.d, &f).left
}

// While a queue is late with more than its part the others use less of the SLO,
// and no longer.
func TestQueuesMakeRoomBesideOneThatIsLate(t *testing.T) {
	const queues = 5
	for _, tc := range []struct {
		name string
		late time.Duration
		want float64
		// deferring is that where nothing may be suspended.
		deferring float64
	}{
		{"none is late", 245 * time.Microsecond, 1, 1},
		// exp(-ln 100 * 250/300) of its requests are late, which leaves the others
		// 0.59% each.
		{"one takes twice its part", 300 * time.Microsecond, 0.897, 0.897},
		{"one leaves nothing", 600 * time.Microsecond, math.Log(100) / math.Log(400), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBesideBench(t)
			for queue := range queues {
				quantile := 240 * time.Microsecond
				if queue == 3 {
					quantile = tc.late
				}
				b.see(queue, quantile)
			}
			if got := b.left(0, 240*time.Microsecond); math.Abs(got-tc.want) > 0.02 {
				t.Errorf("the others may use %.3f of the SLO, want %.3f", got, tc.want)
			}
			q, f := b.features(0, 240*time.Microsecond)
			f.Suspension = model.Readiness{}
			if got, want := b.d.host.left(q, &f), tc.deferring; math.Abs(got-want) > 0.02 {
				t.Errorf("under deferral alone the others may use %.3f of the SLO, want %.3f", got, want)
			}
			if got := b.left(3, tc.late); got != 1 {
				t.Errorf("the late queue may use %.3f of the SLO, want all", got)
			}
			for range greyboxHostWindows * 3 {
				b.see(3, 200*time.Microsecond)
			}
			if got := b.left(0, 240*time.Microsecond); got != 1 {
				t.Errorf("after the late windows the others may use %.3f of the SLO, want all", got)
			}
		})
	}
}

// What was late under another setting, or is no longer decided upon, asks nothing
// of the others.
func TestLatenessOfThePastIsForgotten(t *testing.T) {
	const late, well = 400 * time.Microsecond, 240 * time.Microsecond
	tests := []struct {
		name      string
		then      func(b *besideBench, q *greyboxQueue)
		forgotten bool
	}{
		{"nothing", func(*besideBench, *greyboxQueue) {}, false},
		{"a move that should hold", func(b *besideBench, q *greyboxQueue) { b.d.host.moved(q) }, true},
		{"a move for want of better", func(b *besideBench, q *greyboxQueue) { q.forced = true; b.d.host.moved(q) }, false},
		{"no requests", func(b *besideBench, _ *greyboxQueue) {
			for range 4 * greyboxHostRound {
				b.see(0, well)
			}
		}, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := newBesideBench(t)
			b.see(0, well)
			b.see(1, late)
			q, _ := b.features(1, late)
			tc.then(b, q)
			if got := b.left(0, well); (got == 1) != tc.forgotten {
				t.Errorf("the other may use %.3f of the SLO, forgotten should be %v", got, tc.forgotten)
			}
		})
	}
}

// The sums are those of the queues, whatever came and went.
func TestHostSumsAreThoseOfItsQueues(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBesideBench(t)
		for range rapid.IntRange(1, 60).Draw(rt, "windows") {
			quantile := time.Duration(rapid.IntRange(100, 600).Draw(rt, "us")) * time.Microsecond
			queue := rapid.IntRange(0, 4).Draw(rt, "queue")
			b.see(queue, quantile)
			if q, _ := b.features(queue, quantile); rapid.Bool().Draw(rt, "moved") {
				b.d.host.moved(q)
			}
		}
		var want greyboxHost
		for _, q := range b.d.queues {
			want.add(&q.lateness, 1)
		}
		got := b.d.host
		got.round, got.decisions = 0, 0
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(greyboxHost{}), cmpopts.EquateApprox(0, 1e-3)); diff != "" {
			rt.Errorf("sums (-want +got):\n%s", diff)
		}
	})
}

// Where no timeout holds and the CPU is nearly full, a late queue does not go up
// and down with the noise.
func TestALateQueueKeepsItsTimeout(t *testing.T) {
	p := mustGreybox(t)
	f := readyFeatures(0)
	f.PacketRate, f.Utilisation, f.CostPerPacket = 280_000, 0.97, 3464*time.Nanosecond
	f.Active.GROFlushTimeout = 12 * time.Microsecond
	changes := 0
	for w := range 60 {
		f.Quantile = time.Duration(290+10*(w%3)) * time.Microsecond
		d := p.Decide(f)
		if d.Settings != f.Active && w > 10 {
			changes++
		}
		f.Active = d.Settings
	}
	if changes > 2 {
		t.Errorf("%d changes in 50 windows, want at most 2", changes)
	}
}

// An application that polls by itself and cannot keep up is not helped by softirqs.
func TestAnOverloadedQueueStaysInSuspension(t *testing.T) {
	p := mustGreybox(t)
	f := readyFeatures(0)
	f.PacketRate, f.Utilisation, f.CostPerPacket = 290_000, 1, 3450*time.Nanosecond
	f.Quantile = 300 * time.Microsecond
	for w := range 60 {
		f.Quantile = time.Duration(290+10*(w%3)) * time.Microsecond
		d := p.Decide(f)
		if d.Settings.Mode() != model.ModeSuspension {
			t.Fatalf("window %d: %v, %s", w, d.Settings, d.Why)
		}
		f.Active = d.Settings
	}
}
