package counterfactual

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model"
)

// The reasons for which no off-policy estimate is given.
var (
	// ErrDeterministic: the recorded decisions were not drawn at random, so
	// nothing tells what another choice would have done.
	ErrDeterministic = errors.New("the recorded decisions have no propensities")
	// ErrOwnPath: what the policy decides follows from what came of its own
	// decisions before, and the recorded run took others.
	ErrOwnPath = errors.New("its decisions follow from what came of its own earlier ones")
	// ErrTooFew: too few recorded choices are those of the policy in question.
	ErrTooFew = errors.New("too few recorded choices are those that the policy makes")
)

const (
	// MostWeight is where importance weights are clipped.
	MostWeight = 20
	// LeastEffective is the effective sample size below which an estimate is
	// refused.
	LeastEffective = 100
	// ridge keeps the outcome model's normal equations solvable.
	ridge = 1e-3
)

// Choice is one recorded decision that was applied, and what followed.
type Choice struct {
	// PacketRate is the load it was made at, in packets per second.
	PacketRate float64
	// Taken was applied, with the probability Propensity; zero where it was not
	// drawn at random.
	Taken      model.Settings
	Propensity float64
	// Target is what the policy in question proposed at the same moment.
	Target model.Settings
	// Result is what followed until the next change, without the first window,
	// in which both settings had a part.
	Result Result
}

// Result is what windows came to.
type Result struct {
	// CPUPerPacketUs is the CPU time per packet, DelayUs the mean over windows
	// of the SLO's quantile of the delay, both in microseconds; Violating is
	// the share of windows above the SLO.
	CPUPerPacketUs, DelayUs, Violating float64
}

// Estimate is what a policy would have come to, by the recorded choices alone.
// It is that of the moments at which the recorded run made choices, each
// counting alike: where guards let only some moments and settings pass, of no
// others.
type Estimate struct {
	// Choices are those recorded, Matched those that the policy makes too.
	Choices, Matched int
	// Effective is the effective sample size of the weights, (sum w)^2 / sum
	// w^2, and Clipped how many weights were cut at [MostWeight].
	Effective float64
	Clipped   int
	// Weighted is the self-normalised inverse-propensity estimate (Swaminathan
	// and Joachims, NIPS 2015), DoublyRobust that with a regression of results
	// on load and flush timeout (Dudik, Langford and Li, ICML 2011).
	Weighted, DoublyRobust Result
	// Error is the standard error of Weighted, which allows for choices that
	// are alike because they were made at about the same time.
	Error Result
}

// OffPolicy estimates what the policy in question would have come to. A choice
// counts as the policy's where the flush timeout is within an eighth, which is
// half a step of the grid that settings are drawn from, and the mode is the
// same. Errors wrap [ErrDeterministic] or [ErrTooFew].
func OffPolicy(choices []Choice) (Estimate, error) {
	e := Estimate{Choices: len(choices)}
	// What was not drawn has no weight, and is no sample of the moments at which
	// draws were made either: a guard's way back follows upon what went wrong.
	choices = slices.DeleteFunc(slices.Clone(choices), func(c Choice) bool { return !(c.Propensity > 0) })
	weights := make([]float64, len(choices))
	for i, c := range choices {
		if !sameChoice(c.Taken, c.Target) {
			continue
		}
		e.Matched++
		weights[i] = 1 / c.Propensity
		if weights[i] > MostWeight {
			weights[i] = MostWeight
			e.Clipped++
		}
	}
	if len(choices) == 0 {
		return e, fmt.Errorf("%w: of %d choices none was drawn at random; record a run with --policy random:every=4 or another that explores", ErrDeterministic, e.Choices)
	}
	var sum, squares float64
	for _, w := range weights {
		sum += w
		squares += w * w
	}
	if squares > 0 {
		e.Effective = sum * sum / squares
	}
	if e.Effective < LeastEffective {
		return e, fmt.Errorf("%w: %d of the %d that were drawn, an effective sample of %.0f, and %d are needed", ErrTooFew, e.Matched, len(choices), e.Effective, LeastEffective)
	}
	each := []struct {
		of   func(*Result) *float64
		from func(Choice) float64
	}{
		{func(r *Result) *float64 { return &r.CPUPerPacketUs }, func(c Choice) float64 { return c.Result.CPUPerPacketUs }},
		{func(r *Result) *float64 { return &r.DelayUs }, func(c Choice) float64 { return c.Result.DelayUs }},
		{func(r *Result) *float64 { return &r.Violating }, func(c Choice) float64 { return c.Result.Violating }},
	}
	for _, v := range each {
		mean := 0.0
		for i, c := range choices {
			mean += weights[i] * v.from(c)
		}
		mean /= sum
		*v.of(&e.Weighted) = mean
		*v.of(&e.Error) = deviation(choices, weights, mean, v.from) / sum
		robust, err := doublyRobust(choices, weights, sum, v.from)
		if err != nil {
			return e, err
		}
		*v.of(&e.DoublyRobust) = robust
	}
	// A regression knows nothing of what a share can be.
	e.DoublyRobust.Violating = min(max(e.DoublyRobust.Violating, 0), 1)
	return e, nil
}

// batches is the number of stretches of a run that are taken as independent of
// each other.
const batches = 30

// deviation returns the standard deviation of the sum of weighted distances from
// the mean, over single choices or over batches of consecutive ones, whichever
// is more: choices that are near in time share what else went on in the host,
// the other queues included, and are not independent.
func deviation(choices []Choice, weights []float64, mean float64, value func(Choice) float64) float64 {
	single := 0.0
	var sums [batches]float64
	for i, c := range choices {
		d := weights[i] * (value(c) - mean)
		single += d * d
		sums[i*batches/len(choices)] += d
	}
	batched := 0.0
	for _, d := range sums {
		batched += d * d
	}
	return math.Sqrt(max(single, batched*batches/(batches-1)))
}

func sameChoice(a, b model.Settings) bool {
	if a.Mode() != b.Mode() {
		return false
	}
	if a.Mode() == model.ModeInterrupts {
		return true
	}
	ratio := float64(a.GROFlushTimeout) / float64(b.GROFlushTimeout)
	return math.Abs(math.Log(ratio)) < math.Log(1.125)
}

// doublyRobust is the mean of the outcome model at what the policy chooses,
// corrected by the weighted residuals of what was taken.
func doublyRobust(choices []Choice, weights []float64, sum float64, value func(Choice) float64) (float64, error) {
	const terms = 6
	xx := mat.NewSymDense(terms, nil)
	xy := mat.NewVecDense(terms, nil)
	for _, c := range choices {
		x := outcomeTerms(c.PacketRate, c.Taken)
		for i := range terms {
			xy.SetVec(i, xy.AtVec(i)+x[i]*value(c))
			for j := i; j < terms; j++ {
				xx.SetSym(i, j, xx.At(i, j)+x[i]*x[j])
			}
		}
	}
	for i := range terms {
		xx.SetSym(i, i, xx.At(i, i)+ridge*float64(len(choices)))
	}
	var cholesky mat.Cholesky
	if !cholesky.Factorize(xx) {
		return 0, errors.New("off-policy estimate: the outcome model has no solution")
	}
	var beta mat.VecDense
	if err := cholesky.SolveVecTo(&beta, xy); err != nil {
		return 0, fmt.Errorf("off-policy estimate: %w", err)
	}
	predict := func(rate float64, s model.Settings) float64 {
		x := outcomeTerms(rate, s)
		total := 0.0
		for i := range terms {
			total += beta.AtVec(i) * x[i]
		}
		return total
	}
	direct, correction := 0.0, 0.0
	for i, c := range choices {
		direct += predict(c.PacketRate, c.Target)
		correction += weights[i] * (value(c) - predict(c.PacketRate, c.Taken))
	}
	return direct/float64(len(choices)) + correction/sum, nil
}

// outcomeTerms are those of the regression: load, flush timeout, their product,
// the timeout's square, and whether interrupts are deferred at all.
func outcomeTerms(rate float64, s model.Settings) [6]float64 {
	load := math.Log(max(rate, 1)) / 10
	g, deferred := 0.0, 0.0
	if s.Mode() != model.ModeInterrupts {
		g, deferred = float64(s.GROFlushTimeout)/float64(100*time.Microsecond), 1
	}
	return [6]float64{1, load, g, g * load, g * g, deferred}
}
