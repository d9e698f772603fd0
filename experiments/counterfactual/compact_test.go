package counterfactual

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestAPackedHistogramIsWhatItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want, got model.Histogram
		for i := range want.Counts {
			if rapid.Bool().Draw(t, "filled") {
				want.Counts[i] = rapid.Uint64().Draw(t, "count")
			}
		}
		got.Counts[3] = 7
		pack(&want).unpack(&got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestRatesOfWindowsWithoutAQueueAreZero(t *testing.T) {
	var r rates
	for _, w := range []int{2, ratesPiece - 1, ratesPiece, 3*ratesPiece + 5} {
		r.set(w, float64(w))
	}
	for w, want := range map[int]float64{
		-1: 0, 0: 0, 2: 2, 3: 0, ratesPiece - 1: ratesPiece - 1, ratesPiece: ratesPiece,
		2 * ratesPiece: 0, 3*ratesPiece + 5: 3*ratesPiece + 5, 3*ratesPiece + 6: 0, 1 << 40: 0,
	} {
		if got := r.at(w); math.Abs(got-want) > 3e-4*want {
			t.Errorf("window %d: %v, want %v", w, got, want)
		}
	}
}

func TestAHistoryTellsTheSettingsOfEachWindow(t *testing.T) {
	a, b := model.Settings{}, deferring(20*time.Microsecond)
	var h history
	for w, c := range []struct {
		settings model.Settings
		changed  bool
	}{3: {a, false}, 4: {a, false}, 5: {b, true}, 6: {b, false}, 7: {a, true}} {
		if w < 3 {
			continue
		}
		if changed := h.set(w, c.settings); changed != c.changed {
			t.Errorf("window %d: changed is %v, want %v", w, changed, c.changed)
		}
	}
	for w, want := range []model.Settings{a, a, a, a, a, b, b, a, a} {
		if got := h.at(w); got != want {
			t.Errorf("window %d: %v, want %v", w, got, want)
		}
	}
}

func TestARegimeKeepsAnUnbiasedSampleOfItsRows(t *testing.T) {
	g := &regime{}
	random := rand.New(rand.NewPCG(1, 2))
	const n = 100 * mostRows
	for i := range n {
		g.keep(row{p50: float32(i)}, random)
	}
	if len(g.rows) != mostRows || g.seen != n {
		t.Fatalf("%d rows of %d, want %d of %d", len(g.rows), g.seen, mostRows, n)
	}
	// The median of uniform values has a standard deviation of n/2/sqrt(rows).
	got, want := g.middle(func(w *row) float32 { return w.p50 }), n/2.0
	if within := 4 * n / 2 / math.Sqrt(mostRows); math.Abs(got-want) > within {
		t.Errorf("median %v, want %v within %v", got, want, within)
	}
}

// A day of 64 queues at a window a second is to be replayed in less than 100
// MiB, of which 40 are left to reading; here is a sixth of a day.
func TestADayOf64QueuesFitsInMemory(t *testing.T) {
	const queues, day, limit = 64, 86400 / 6, 60 << 20 / 6
	sample := model.Sample{Span: time.Second, Active: model.Config{}}
	delays := make([]model.Histogram, queues)
	spent := 10 * time.Millisecond
	for i := range queues {
		q := model.Queue{Netns: 1, Ifindex: 2, Index: i}
		for b := range 50 {
			delays[i].Counts[30+b] = uint64(1 + 40*(50-b))
		}
		sample.Queues = append(sample.Queues, model.QueueSample{
			Queue: q, NAPIID: uint32(i + 1), Delay: &delays[i], SampleEvery: 1, ThreadTime: &spent,
		})
	}
	var r Recording
	before := heap()
	for w := range day {
		// The load follows the day, and a policy tries settings.
		load := 2 + math.Sin(2*math.Pi*float64(w)/day)
		for i := range queues {
			sample.Queues[i].Thread = model.PollCounts{Polls: 500, Packets: uint64(load * float64(1000+100*i))}
			if w%20 == i%20 {
				sample.Active[sample.Queues[i].Queue] = deferring(flushes[(w/20+i)%len(flushes)])
			}
		}
		r.Add(&sample)
	}
	used := heap() - before
	t.Logf("%.1f MiB", float64(used)/(1<<20))
	if used > limit {
		t.Errorf("%d bytes, want at most %d", used, limit)
	}
	if all, disturbed := r.Windows(); all != day || disturbed != 0 {
		t.Errorf("%d windows, %d of them disturbed, want %d and none", all, disturbed, day)
	}
	if targets := r.targets(defaultRequests); len(targets) != mostRegimes {
		t.Errorf("%d regimes to fit to, want %d: no setting at any load has much of the day, but much of an hour", len(targets), mostRegimes)
	}
	runtime.KeepAlive(&r)
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
