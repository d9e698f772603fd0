package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestLevelsNumberTheRoundedCounts(t *testing.T) {
	before := uint64(0)
	for level := uint64(1); level <= lastLevel; level++ {
		n := levelCount(level)
		if n <= before {
			t.Fatalf("level %d is of %d, the one before of %d", level, n, before)
		}
		if got := levelOf(n); got != level {
			t.Fatalf("%d is of level %d, want %d", n, got, level)
		}
		if got := levelOf(n - 1); got != level-1 {
			t.Fatalf("%d is of level %d, want %d", n-1, got, level-1)
		}
		before = n
	}
	if got := levelOf(math.MaxUint64); got != lastLevel {
		t.Errorf("the largest count is of level %d, want %d", got, lastLevel)
	}
	var got []uint64
	for level := range uint64(18) {
		got = append(got, levelCount(level))
	}
	if diff := cmp.Diff([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What rounding promises of every histogram.
func TestRoundingKeepsTheSumAndAlmostTheNumberAboveEachBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 9), rapid.Uint64Range(0, 5000), rapid.Uint64Range(0, 1<<40)), 1, 66).Draw(t, "counts")
		got := slices.Clone(counts)
		roundCounts(got)
		if !rounded(got) {
			t.Fatalf("%v is not rounded", got)
		}
		// off is how many more are above a bound than were, and most what the
		// bucket that was rounded last may have made of it.
		off, most, before := int64(0), 0.0, uint64(0)
		for _, n := range counts {
			before += n
		}
		for i := len(counts) - 1; i >= 0; i-- {
			off += int64(got[i]) - int64(counts[i])
			before -= counts[i]
			if got[i] != 0 {
				most = float64(got[i]) / 8
			}
			// Where little is left below, a bucket can only be rounded down.
			if float64(before) < most {
				most *= 2
			}
			if math.Abs(float64(off)) > most {
				t.Fatalf("%d more than before lie above bucket %d, in\n%v\nof\n%v", off, i, got, counts)
			}
		}
		if off != 0 {
			t.Fatalf("%d more than before, in\n%v\nof\n%v", off, got, counts)
		}
		again := slices.Clone(got)
		roundCounts(again)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("rounded twice (-once +twice):\n%s", diff)
		}
	})
}

func TestRoundedHistogramsSurvive(t *testing.T) {
	samples := rapid.Make[model.Sample]()
	rapid.Check(t, func(t *rapid.T) {
		want := Round(samples.Draw(t, "sample"))
		line := newEncoder().append(nil, &want)
		if !json.Valid(line) {
			t.Fatalf("not JSON: %q", line)
		}
		decodesTo(t, line, want)
	})
}

func TestRoundedColumnsAreOfTheShortestForm(t *testing.T) {
	source := newRealistic(5, 3)
	source.all, source.packets = true, 20000
	s := source.next()
	exact, rounded := newEncoder().append(nil, &s), Round(s)
	line := newEncoder().append(nil, &rounded)
	for _, column := range []string{"work_levels", "delay_levels", "ring_wait_pairs", "socket_wait_pairs", "service_pairs", "suspension_length_pairs"} {
		if !bytes.Contains(line, []byte(`"`+column+`":"`)) {
			t.Errorf("no column %s in %s", column, line)
		}
		if bytes.Contains(exact, []byte(`"`+column+`":`)) {
			t.Errorf("column %s in the exact sample", column)
		}
	}
}

// Quantiles of delays move by less than what they are read with.
func TestQuantilesOfRoundedDelaysAreWithin2Percent(t *testing.T) {
	for _, packets := range []float64{200, 2000, 20000, 200000} {
		source := newRealistic(8, 8)
		source.packets, source.every = packets, 1
		exact := source.next()
		got := Round(exact)
		for i := range exact.Queues {
			want := exact.Queues[i]
			for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
				a, b := want.Delay.Quantile(q), got.Queues[i].Delay.Quantile(q)
				if off := math.Abs(float64(b)/float64(a) - 1); off > 0.02 {
					t.Errorf("at %.0f packets p%g is %v, was %v", packets, 100*q, b, a)
				}
			}
			// Those of the other histograms, of twice the buckets' width, by less
			// than half of it.
			for name, h := range map[string][2]*model.Histogram{
				"ring wait":   {want.RingWait, got.Queues[i].RingWait},
				"socket wait": {want.SocketWait, got.Queues[i].SocketWait},
				"service":     {want.Service, got.Queues[i].Service},
			} {
				a, b := h[0].Quantile(0.5), h[1].Quantile(0.5)
				if off := math.Abs(float64(b)/float64(a) - 1); off > 0.1 {
					t.Errorf("at %.0f packets the median %s is %v, was %v", packets, name, b, a)
				}
				if h[0].Count() != h[1].Count() {
					t.Errorf("%s counts %d, counted %d", name, h[1].Count(), h[0].Count())
				}
			}
			if got.Queues[i].Polls() != want.Polls() {
				t.Error("counters have changed")
			}
		}
		if diff := cmp.Diff(exact.Latency, got.Latency); diff != "" {
			t.Errorf("latency of the host (-want +got):\n%s", diff)
		}
	}
}

// What a source has counted is its own.
func TestRoundingChangesACopy(t *testing.T) {
	s := newRealistic(4, 2).next()
	s.Queues[0].Suspension = new(model.Suspension)
	s.Queues[0].Suspension.Length.Add(time.Millisecond, 999)
	var d decoder
	before, err := d.sample(newEncoder().append(nil, &s))
	if err != nil {
		t.Fatal(err)
	}
	Round(s)
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

type oneSample struct{ samples []model.Sample }

func (o *oneSample) Next(context.Context) (model.Sample, error) {
	if len(o.samples) == 0 {
		return model.Sample{}, io.EOF
	}
	s := o.samples[0]
	o.samples = o.samples[1:]
	return s, nil
}

func TestWhatDecidesSeesWhatIsRecorded(t *testing.T) {
	source := newRealistic(6, 2)
	source.every = 1
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{Histograms: DetailRounded}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tee := NewTee(NewRounding(&oneSample{[]model.Sample{source.next(), source.next()}}), w, nil)
	var seen []model.Sample
	for {
		s, err := tee.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, s)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&out, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Header().Histograms; got != DetailRounded {
		t.Errorf("header has %v histograms", got)
	}
	for i := range seen {
		s, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(seen[i], s); diff != "" {
			t.Errorf("sample %d (-seen +recorded):\n%s", i, diff)
		}
	}
}
