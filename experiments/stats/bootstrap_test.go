package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestMeanKnownValues(t *testing.T) {
	// For two values the expanded percentile lies beyond the extreme
	// resample, so the interval is their range. For five values at 90% the
	// tail is Phi(-2.1318*sqrt(5/4)) = 0.00857; the least resampled means of
	// {0,0,0,0,1} are 0 with probability 0.8^5 = 0.328, the greatest are 1
	// (0.2^5 = 0.00032), 0.8 (5*0.2^4*0.8 = 0.0064) and 0.6.
	inf := math.Inf(1)
	nan := math.NaN()
	tests := []struct {
		name   string
		values []float64
		want   Interval
	}{
		{"no value is unknown", nil, Interval{nan, nan, nan}},
		{"one value has no interval", []float64{3}, Interval{3, -inf, inf}},
		{"two values span their range", []float64{1, 3}, Interval{2, 1, 3}},
		{"equal values have no width", []float64{2, 2, 2, 2, 2}, Interval{2, 2, 2}},
		{"one outlier of five", []float64{0, 0, 0, 0, 1}, Interval{0.2, 0, 0.6}},
		{"an unknown value makes all unknown", []float64{1, nan}, Interval{nan, nan, nan}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Bootstrap{}.Mean(tt.values)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	got := Bootstrap{}.Ratio([]float64{2, 8}, []float64{1, 1})
	if diff := cmp.Diff(Interval{4, 2, 8}, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		name             string
		treated, control []float64
	}{
		{"zero", []float64{0, 1}, []float64{1, 1}},
		{"negative over negative", []float64{-1, -1}, []float64{-1, -1}},
		{"unpaired", []float64{1, 1}, []float64{1}},
	} {
		if got := (Bootstrap{}).Ratio(tt.treated, tt.control); !math.IsNaN(got.Estimate) {
			t.Errorf("%s: got %+v, want NaN", tt.name, got)
		}
	}
}

func TestEnumerationIsTheWholeDistribution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-10, 10), 2, MaxExact).Draw(t, "values")
		var total, mean float64
		for _, w := range enumerate(values) {
			total += w.weight
			mean += w.weight * w.value
		}
		want := Bootstrap{}.Mean(values).Estimate
		if math.Abs(total-1) > 1e-9 || math.Abs(mean-want) > 1e-9 {
			t.Fatalf("probabilities sum to %v (want 1), mean %v (want %v)", total, mean, want)
		}
	})
}

func TestDrawnAgreesWithEnumerated(t *testing.T) {
	values := []float64{0.91, 1.02, 0.97, 1.11, 0.88, 1.0, 0.95, 1.04}
	exact := Bootstrap{}.Mean(values)
	means := Bootstrap{Seed: 7, Resamples: 200000}.draw(values)
	var sum, squares float64
	for _, w := range means {
		sum += w.weight * w.value
		squares += w.weight * w.value * w.value
	}
	var wantSquares float64
	for _, w := range enumerate(values) {
		wantSquares += w.weight * w.value * w.value
	}
	if math.Abs(sum-exact.Estimate) > 5e-4 || math.Abs(squares-wantSquares) > 1e-3 {
		t.Errorf("drawn moments %v, %v; enumerated %v, %v", sum, squares, exact.Estimate, wantSquares)
	}
}

func TestSameSeedSameInterval(t *testing.T) {
	values := make([]float64, 12)
	for i := range values {
		values[i] = math.Sin(float64(i))
	}
	a, b := Bootstrap{Seed: 1}.Mean(values), Bootstrap{Seed: 1}.Mean(values)
	if a != b {
		t.Errorf("%+v != %+v", a, b)
	}
	if c := (Bootstrap{Seed: 2}).Mean(values); a == c {
		t.Errorf("seeds 1 and 2 drew the same resamples: %+v", a)
	}
}

func TestRaisingAValueLowersNoEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1, 1), 2, 10).Draw(t, "values")
		before := Bootstrap{Resamples: 500}.Mean(values)
		index := rapid.IntRange(0, len(values)-1).Draw(t, "index")
		values[index] += rapid.Float64Range(0, 2).Draw(t, "by")
		after := Bootstrap{Resamples: 500}.Mean(values)
		const rounding = 1e-12
		if after.Low < before.Low-rounding || after.High < before.High-rounding || after.Estimate < before.Estimate-rounding {
			t.Fatalf("raising value %d moved %+v to %+v", index, before, after)
		}
	})
}

// TestCoverage holds the intervals to what they promise, with the numbers of
// rounds that experiments use: each end of a 90% interval is to be wrong in
// about 5% of repetitions.
func TestCoverage(t *testing.T) {
	const repetitions = 4000
	tests := []struct {
		name   string
		n      int
		sample func(*rand.Rand) float64
		most   float64 // of misses at either end
	}{
		{"five normal values", 5, func(r *rand.Rand) float64 { return r.NormFloat64() }, 0.075},
		{"eight normal values", 8, func(r *rand.Rand) float64 { return r.NormFloat64() }, 0.065},
		{"twelve normal values", 12, func(r *rand.Rand) float64 { return r.NormFloat64() }, 0.065},
		{"five uniform values", 5, func(r *rand.Rand) float64 { return r.Float64() - 0.5 }, 0.08},
		{"five heavy-tailed values", 5, func(r *rand.Rand) float64 {
			if r.Float64() < 0.1 {
				return 4 * r.NormFloat64()
			}
			return r.NormFloat64()
		}, 0.075},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(11, 13))
			var above, below int
			values := make([]float64, tt.n)
			for range repetitions {
				for i := range values {
					values[i] = tt.sample(random)
				}
				interval := Bootstrap{Resamples: 500}.Mean(values)
				if interval.Low > 0 {
					above++
				}
				if interval.High < 0 {
					below++
				}
			}
			for _, missed := range []int{above, below} {
				if share := float64(missed) / repetitions; share > tt.most || share < 0.01 {
					t.Errorf("an end missed the truth in %.1f%% of repetitions, want 1 to %.1f%%", 100*share, 100*tt.most)
				}
			}
		})
	}
}

func TestIntervalJSON(t *testing.T) {
	tests := []struct {
		name string
		in   Interval
		want string
	}{
		{"bounded", Interval{1, 0.5, 2}, `{"estimate":1,"low":0.5,"high":2}`},
		{"unbounded", Interval{1, math.Inf(-1), math.Inf(1)}, `{"estimate":1,"low":null,"high":null}`},
		{"unknown", Interval{math.NaN(), math.NaN(), math.NaN()}, `{"estimate":null,"low":null,"high":null}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := json.Marshal(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(data)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var back Interval
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.in, back, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}
