package compare

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
)

// bare lets a policy decide without guards: what it proposes is written,
// clamped to the hard bounds. Windows are merged until the quantile has enough
// delays, as the loop does.
type bare struct {
	policy    model.Policy
	host      *sim.Simulator
	objective model.Objective
	need      uint64
	ordered   bool
	queues    map[model.Queue]*bareQueue
}

type bareQueue struct {
	window   model.Window
	previous float64
	outcome  model.Outcome
}

const (
	bareAbove   = 20
	bareWindows = 10
)

func newBare(p model.Policy, host *sim.Simulator, o model.Objective) *bare {
	b := &bare{
		policy: p, host: host, objective: o, queues: map[model.Queue]*bareQueue{},
		need: uint64(math.Ceil(bareAbove / (1 - o.Quantile) * (1 - 1e-9))),
	}
	if p, ok := p.(interface{ NeedsEvidence() bool }); ok {
		b.ordered = !p.NeedsEvidence()
	}
	return b
}

// Step implements [stepper].
func (b *bare) Step(ctx context.Context, s model.Sample) error {
	costs := model.Costs(&s)
	desired := model.Config{}
	for i := range s.Queues {
		sample := &s.Queues[i]
		q := b.queues[sample.Queue]
		if q == nil {
			q = &bareQueue{}
			b.queues[sample.Queue] = q
		}
		part := model.WindowPart{At: s.At, Span: s.Span, Queue: sample, Delay: sample.Delay, Utilisation: math.NaN()}
		if c, ok := costs[sample.Queue]; ok {
			part.Cost = &c
		}
		if i < len(s.CPUs) {
			part.Utilisation = max(0, min(1, float64(s.CPUs[i].Busy)/float64(max(s.Span, time.Nanosecond))))
		}
		q.window.Add(part)
		if !b.ordered && q.window.DelaySamples() < b.need && q.window.Windows() < bareWindows {
			continue
		}
		active := s.Active[sample.Queue]
		f := q.window.Features(sample.Queue, active, b.objective, q.previous)
		f.Suspension = model.SuspensionReadiness(s.Apps, sample.NAPIID)
		f.Outcome = q.outcome
		q.previous = q.window.Rate()
		q.window, q.outcome = model.Window{}, model.Outcome{}
		d := b.policy.Decide(f)
		if d.Purpose == model.PurposeHold || d.Purpose == "" {
			continue
		}
		to, _ := model.DefaultBounds().Clamp(d.Settings)
		if to == active {
			continue
		}
		desired[sample.Queue] = to
		q.outcome = model.Outcome{Verdict: model.VerdictApplied, From: active, To: to, Purpose: d.Purpose}
	}
	if len(desired) == 0 {
		return nil
	}
	_, err := b.host.Apply(ctx, desired)
	var refused *model.QueueError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// seeded gives a policy that draws at random another stream for each seed,
// unless the spec has one.
func seeded(spec string, seed uint64) string {
	name, parameters, has := strings.Cut(spec, ":")
	for _, k := range policy.Kinds() {
		if k.Name != name || !strings.Contains(k.Usage, "seed=") {
			continue
		}
		if strings.HasPrefix(parameters, "seed=") || strings.Contains(parameters, ",seed=") {
			return spec
		}
		text := "seed=" + strconv.FormatUint(seed, 10)
		if has {
			return spec + "," + text
		}
		return spec + ":" + text
	}
	return spec
}
