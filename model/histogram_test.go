package model_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

// A bucket's middle is within 6.25% of every value in it from 1 us on, and
// within 64 ns below.
func TestHistogramBucketErrorIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(137*time.Second)).Draw(t, "duration"))
		if rapid.Bool().Draw(t, "small") {
			d %= 10 * time.Microsecond
		}
		i := model.HistogramBucket(d)
		low, high := model.HistogramBounds(i)
		if d < low || d >= high {
			t.Fatalf("%v is in bucket %d, which spans %v to %v", d, i, low, high)
		}
		middle := float64(low+high) / 2
		off := math.Abs(float64(d) - middle)
		if limit := max(64, 0.0625*float64(d)); off > limit {
			t.Fatalf("the middle of bucket %d is %.0f ns off %v, more than %.0f", i, off, d, limit)
		}
	})
}

func TestHistogramBucketsAdjoin(t *testing.T) {
	var last time.Duration
	for i := range model.HistogramBuckets {
		low, high := model.HistogramBounds(i)
		if low != last || high <= low {
			t.Fatalf("bucket %d spans %v to %v after %v", i, low, high, last)
		}
		if i < model.HistogramBuckets-1 && model.HistogramBucket(high) != i+1 {
			t.Fatalf("%v is in bucket %d, want %d", high, model.HistogramBucket(high), i+1)
		}
		last = high
	}
	for _, d := range []time.Duration{137439 * time.Millisecond, math.MaxInt64} {
		if got := model.HistogramBucket(d); got != model.HistogramBuckets-1 {
			t.Errorf("%v is in bucket %d, want the last", d, got)
		}
	}
	if got := model.HistogramBucket(-time.Second); got != 0 {
		t.Errorf("a negative duration is in bucket %d, want 0", got)
	}
}

// A quantile lies within the bucket of the exact one.
func TestHistogramQuantileIsNearTheExactOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Second)), 1, 300).Draw(t, "values")
		q := rapid.Float64Range(0.001, 1).Draw(t, "quantile")
		var h model.Histogram
		for _, v := range values {
			h.Add(time.Duration(v), 1)
		}
		slices.Sort(values)
		exact := time.Duration(values[max(0, int(math.Ceil(q*float64(len(values))-1e-9))-1)])
		got := h.Quantile(q)
		if diff := math.Abs(float64(got - exact)); diff > max(128, 0.126*float64(exact)) {
			t.Fatalf("the %v-quantile is %v, exactly %v", q, got, exact)
		}
	})
}

func TestHistogramMergeIsTheHistogramOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b, all model.Histogram
		for i, v := range rapid.SliceOf(rapid.Int64Range(0, int64(time.Minute))).Draw(t, "values") {
			d := time.Duration(v)
			if i%2 == 0 {
				a.Add(d, 1)
			} else {
				b.Add(d, 1)
			}
			all.Add(d, 1)
		}
		a.Merge(&b)
		if diff := cmp.Diff(all, a); diff != "" {
			t.Fatalf("merged (-want +got):\n%s", diff)
		}
	})
}

// The field sample: the p95 of two instances is that of the merged histogram,
// and far from the average of both.
func TestQuantileOfMergedInstances(t *testing.T) {
	data, err := os.ReadFile("testdata/quantile_merge.json")
	if err != nil {
		t.Fatal(err)
	}
	type instance struct {
		N      uint64            `json:"n"`
		Counts map[string]uint64 `json:"counts_ms"`
	}
	var field struct {
		A     instance `json:"napi_a"`
		B     instance `json:"napi_b"`
		P95A  float64  `json:"p95_a"`
		P95B  float64  `json:"p95_b"`
		Wrong float64  `json:"wrong_average"`
		P95   float64  `json:"right_merged_p95"`
		P99   float64  `json:"right_merged_p99"`
	}
	if err := json.Unmarshal(data, &field); err != nil {
		t.Fatal(err)
	}
	fill := func(in instance) *model.Histogram {
		h := &model.Histogram{}
		for ms, n := range in.Counts {
			x, err := strconv.ParseFloat(ms, 64)
			if err != nil {
				t.Fatal(err)
			}
			h.Add(time.Duration(x*float64(time.Millisecond)), n)
		}
		if h.Count() != in.N {
			t.Fatalf("%d counted, the sample says %d", h.Count(), in.N)
		}
		return h
	}
	a, b := fill(field.A), fill(field.B)
	merged := &model.Histogram{}
	merged.Merge(a)
	merged.Merge(b)
	near := func(name string, got time.Duration, wantMS float64) {
		t.Helper()
		want := wantMS * float64(time.Millisecond)
		// A quantile is interpolated in its bucket, which is 12.5% wide.
		if math.Abs(float64(got)-want) > 0.125*want {
			t.Errorf("%s is %v, want %v ms within 12.5%%", name, got, wantMS)
		}
	}
	near("p95 of a", a.Quantile(0.95), field.P95A)
	near("p95 of b", b.Quantile(0.95), field.P95B)
	near("merged p95", merged.Quantile(0.95), field.P95)
	near("merged p99", merged.Quantile(0.99), field.P99)
	if got := merged.Quantile(0.95).Seconds() * 1e3; math.Abs(got-field.Wrong) < field.Wrong/2 {
		t.Errorf("merged p95 is %v ms, the average of the quantiles", got)
	}
}

func TestHistogramAbove(t *testing.T) {
	var h model.Histogram
	h.Add(10*time.Microsecond, 3)
	h.Add(20*time.Microsecond, 4)
	h.Add(time.Hour, 5)
	for d, want := range map[time.Duration]uint64{0: 12, 10 * time.Microsecond: 9, 15 * time.Microsecond: 9, time.Second: 5, 2 * time.Hour: 0} {
		if got := h.Above(d); got != want {
			t.Errorf("above %v: %d, want %d", d, got, want)
		}
	}
	var none *model.Histogram
	if none.Above(0) != 0 || none.Count() != 0 {
		t.Error("a histogram that was not observed counts something")
	}
}

func TestHistogramJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in, out model.Histogram
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			in.Counts[rapid.IntRange(0, model.HistogramBuckets-1).Draw(t, "bucket")] = rapid.Uint64().Draw(t, "count")
		}
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in, out); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
	})
}

func FuzzHistogramJSON(f *testing.F) {
	for _, seed := range []string{`[]`, `null`, `[[0,1],[223,18446744073709551615]]`, `[[224,1]]`, `[[-1,1]]`, `[[1]]`, `{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var h, again model.Histogram
		if json.Unmarshal(data, &h) != nil {
			return
		}
		out, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || again != h {
			t.Fatalf("%s reads as another histogram: %v", out, err)
		}
	})
}
