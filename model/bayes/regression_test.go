package bayes_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"autotune/model/bayes"
)

func row(values ...float64) *bayes.Row {
	var r bayes.Row
	for i, v := range values {
		if v != 0 {
			r.Set(i, v)
		}
	}
	return &r
}

func prior(t testing.TB, mean, deviation []float64) *bayes.Prior {
	t.Helper()
	p, err := bayes.NewPrior(mean, deviation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// One coefficient has a closed form: precisions add up, and the mean is that of
// prior and data weighted by them.
func TestOneCoefficientIsTheWeightedMean(t *testing.T) {
	r := bayes.NewRegression(prior(t, []float64{10}, []float64{2}), 1, 1)
	r.Observe(0, row(1), 16, 1)
	r.Observe(0, row(1), 14, 1)
	mean, variance := r.Predict(row(1))
	if want := (10*0.25 + 30) / 2.25; math.Abs(mean-want) > 1e-12 {
		t.Errorf("mean %v, want %v", mean, want)
	}
	if want := 1 / 2.25; math.Abs(variance-want) > 1e-12 {
		t.Errorf("variance %v, want %v", variance, want)
	}
}

func TestRecoversALine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := bayes.NewRegression(prior(t, []float64{0, 0}, []float64{100, 100}), 1, 1)
	for range 2000 {
		x := 10 * random.Float64()
		r.Observe(0, row(1, x), 3-0.5*x+0.1*random.NormFloat64(), 0.01)
	}
	for i, want := range []float64{3, -0.5} {
		if got := r.Mean(i); math.Abs(got-want) > 0.02 {
			t.Errorf("coefficient %d is %v, want %v", i, got, want)
		}
	}
}

func TestForgetsItsOwnGroupTowardsThePrior(t *testing.T) {
	r := bayes.NewRegression(prior(t, []float64{0, 0}, []float64{1, 1}), 0.9, 2)
	for range 64 {
		r.Observe(0, row(1), 5, 1)
	}
	before := r.Mean(0)
	for range 320 {
		r.Observe(1, row(0, 1), 5, 1)
	}
	if got := r.Mean(0); math.Abs(got-before) > 1e-9 {
		t.Errorf("a group that was not looked at moved from %v to %v", before, got)
	}
	// An observation of next to no weight still forgets.
	for range 320 {
		r.Observe(0, row(1), 0, 1e12)
	}
	if got := r.Mean(0); math.Abs(got) > 1e-6 {
		t.Errorf("forgotten data leave %v, want the prior's 0", got)
	}
}

func TestPriorOfOthersData(t *testing.T) {
	base := prior(t, []float64{0, 1}, []float64{10, 10})
	others := bayes.NewEvidence(2)
	for range 100 {
		others.Add(row(1, 2), 8, 1)
		others.Add(row(1, 0), 2, 1)
	}
	p, err := base.Updated(others, 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err = p.Widened([]float64{0.5, 0})
	if err != nil {
		t.Fatal(err)
	}
	mean, variance := bayes.NewRegression(p, 1, 1).Predict(row(1))
	if math.Abs(mean-2) > 0.01 {
		t.Errorf("mean %v, want about 2", mean)
	}
	if want := 0.25 + 0.01; math.Abs(variance-want) > 0.001 {
		t.Errorf("variance %v, want about %v", variance, want)
	}
}

// What is updated by rank one is what solving all of it gives.
func TestRankOneUpdatesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		mean, deviation := make([]float64, n), make([]float64, n)
		for i := range n {
			mean[i] = rapid.Float64Range(-5, 5).Draw(t, "mean")
			deviation[i] = rapid.Float64Range(0.1, 10).Draw(t, "deviation")
		}
		p, err := bayes.NewPrior(mean, deviation)
		if err != nil {
			t.Fatal(err)
		}
		r := bayes.NewRegression(p, 1, 1)
		all := bayes.NewEvidence(n)
		probe := make([]float64, n)
		for range rapid.IntRange(0, 40).Draw(t, "observations") {
			for i := range n {
				probe[i] = rapid.Float64Range(-3, 3).Draw(t, "x")
			}
			y := rapid.Float64Range(-20, 20).Draw(t, "y")
			v := rapid.Float64Range(0.1, 10).Draw(t, "variance")
			r.Observe(0, row(probe...), y, v)
			all.Add(row(probe...), y, v)
		}
		q, err := p.Updated(all, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range q.Mean() {
			if got := r.Mean(i); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Fatalf("coefficient %d is %v, want %v", i, got, want)
			}
		}
	})
}

func TestPassesOverWhatIsNotFinite(t *testing.T) {
	r := bayes.NewRegression(prior(t, []float64{1}, []float64{1}), 0.9, 1)
	nan, inf := math.NaN(), math.Inf(1)
	for range 40 {
		r.Observe(0, row(1), nan, 1)
		r.Observe(0, row(inf), 1, 1)
		r.Observe(0, row(1), 1, 0)
		r.Observe(0, row(1), inf, 1)
	}
	if mean, variance := r.Predict(row(1)); mean != 1 || variance != 1 {
		t.Errorf("mean %v and variance %v, want the prior's 1 and 1", mean, variance)
	}
}

// A million windows at one setting, then another: the variance stays positive
// and the mean follows.
func TestStaysStable(t *testing.T) {
	steps := 1_000_000
	if testing.Short() {
		steps = 50_000
	}
	r := bayes.NewRegression(prior(t, []float64{0, 0, 0}, []float64{1.5, 1, 1}), 0.98, 1)
	for i := range steps {
		w := 0.2
		if i%1000 == 0 {
			w = 0.9
		}
		r.Observe(0, row(1, w, math.Sqrt(w)), 8+w, 1e-4)
	}
	mean, variance := r.Predict(row(1, 0.2, math.Sqrt(0.2)))
	if math.Abs(mean-8.2) > 0.01 || !(variance > 0) || variance > 1e-4 {
		t.Errorf("mean %v and variance %v after %d observations, want 8.2 and a little", mean, variance, steps)
	}
}

func TestPriorRefuses(t *testing.T) {
	for name, c := range map[string][2][]float64{
		"no coefficient":       {{}, {}},
		"unequal lengths":      {{1}, {1, 2}},
		"no deviation":         {{1}, {0}},
		"an infinite one":      {{1}, {math.Inf(1)}},
		"a mean of no number":  {{math.NaN()}, {1}},
		"a negative deviation": {{1}, {-1}},
	} {
		if _, err := bayes.NewPrior(c[0], c[1]); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestEvidenceValuesReadBack(t *testing.T) {
	e := bayes.NewEvidence(3)
	e.Add(row(1, 2, 3), 4, 0.5)
	e.Add(row(0, 1, -1), 2, 2)
	information, weighted := e.Values()
	again, ok := bayes.EvidenceOf(information, weighted)
	if !ok {
		t.Fatal("what was written does not read")
	}
	i2, w2 := again.Values()
	for i := range information {
		if information[i] != i2[i] {
			t.Errorf("information %d is %v, want %v", i, i2[i], information[i])
		}
	}
	for i := range weighted {
		if weighted[i] != w2[i] {
			t.Errorf("weighted %d is %v, want %v", i, w2[i], weighted[i])
		}
	}
	if _, ok := bayes.EvidenceOf(information[1:], weighted); ok {
		t.Error("lengths that do not belong together are taken")
	}
}

func BenchmarkObserveAndPredict(b *testing.B) {
	n := 13
	mean, deviation := make([]float64, n), make([]float64, n)
	for i := range n {
		deviation[i] = 1
	}
	r := bayes.NewRegression(prior(b, mean, deviation), 0.98, 3)
	x := row(1, 0.5, 0.3, 0.7, 0.1)
	b.ReportAllocs()
	for range b.N {
		r.Observe(0, x, 1, 0.01)
		r.Predict(x)
	}
}

// What is learned of one coefficient is expected of one that is correlated with
// it, in units of their deviations; each by itself is as open as before.
func TestCorrelatedCoefficients(t *testing.T) {
	const correlation = 0.9
	p, err := prior(t, []float64{1, 2, 3}, []float64{2, 4, 5}).Correlated(correlation, [2]int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	r := bayes.NewRegression(p, 1, 1)
	for i, want := range []float64{2, 4, 5} {
		x := make([]float64, 3)
		x[i] = 1
		if _, variance := r.Predict(row(x...)); math.Abs(math.Sqrt(variance)-want) > 1e-9 {
			t.Errorf("coefficient %d deviates by %v, want %v", i, math.Sqrt(variance), want)
		}
	}
	r.Observe(0, row(1), 1+2, 1e-12)
	mean, variance := r.Predict(row(0, 1))
	if want := 2 + correlation*4; math.Abs(mean-want) > 1e-6 {
		t.Errorf("mean %v, want %v", mean, want)
	}
	if want := 16 * (1 - correlation*correlation); math.Abs(variance-want) > 1e-6 {
		t.Errorf("variance %v, want %v", variance, want)
	}
	if mean, _ := r.Predict(row(0, 0, 1)); math.Abs(mean-3) > 1e-9 {
		t.Errorf("a coefficient of no pair moved to %v", mean)
	}
	if _, err := prior(t, []float64{0, 0}, []float64{1, 1}).Correlated(1.5, [2]int{0, 1}); !errors.Is(err, bayes.ErrNotPositive) {
		t.Errorf("a correlation of 1.5: %v", err)
	}
}
