package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"autotune/model"
	"autotune/model/bayes"
)

// greyboxVersion is that of the form of [Greybox.Save].
const greyboxVersion = 1

// greyboxState is the stored form. Coefficients are those of greyboxphysics.go:
// a change of their meaning is a new version.
type greyboxState struct {
	Policy  string              `json:"policy"`
	Version int                 `json:"version"`
	Queues  []greyboxQueueState `json:"queues"`
}

// greyboxQueueState is what one queue learned. Lists by mode are in the order
// suspension, deferral, interrupts.
type greyboxQueueState struct {
	Queue model.Queue    `json:"queue"`
	Cost  []greyboxGroup `json:"cost"`
	Delay []greyboxGroup `json:"delay"`
	// CostNoise and DelayNoise are the relative errors of a window, squared.
	CostNoise   float64         `json:"cost_noise_variance"`
	DelayNoise  float64         `json:"delay_noise_variance"`
	Margin      float64         `json:"margin"`
	Full        float64         `json:"utilisation_factor"`
	HeldTimeout []time.Duration `json:"held_flush_timeout_ns"`
}

// greyboxGroup is the evidence of one mode: the upper triangle of the sum of
// x x'/v row by row, and the sum of x y/v.
type greyboxGroup struct {
	Information []float64 `json:"information"`
	Weighted    []float64 `json:"weighted"`
}

// Save implements [Learner]. The order is that of the queues; those of a model
// that was loaded and that were not met are kept.
func (p *Greybox) Save(w io.Writer) error {
	s := greyboxState{Policy: "greybox", Version: greyboxVersion, Queues: []greyboxQueueState{}}
	for _, known := range []map[model.Queue]*greyboxQueue{p.queues, p.loaded} {
		for _, q := range known {
			s.Queues = append(s.Queues, greyboxQueueState{
				Queue: q.queue, Cost: groupsOf(q.cost), Delay: groupsOf(q.delay),
				CostNoise: q.costNoise.variance, DelayNoise: q.delayNoise.variance,
				Margin: q.margin, Full: q.full, HeldTimeout: q.held[:],
			})
		}
	}
	slices.SortFunc(s.Queues, func(a, b greyboxQueueState) int { return a.Queue.Compare(b.Queue) })
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode model: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write model: %w", err)
	}
	return nil
}

func groupsOf(r *bayes.Regression) []greyboxGroup {
	var out []greyboxGroup
	for _, e := range r.Data() {
		information, weighted := e.Values()
		out = append(out, greyboxGroup{information, weighted})
	}
	return out
}

const (
	// loadedWeight is what an earlier run counts for, where its queues are not
	// this run's; loadedCost and loadedDelay are by how much its scales may be
	// off, as presetScale and presetDelay.
	loadedWeight = 0.5
	loadedCost   = 0.1
	loadedDelay  = 10
)

// Load implements [Learner]. A queue that the model knows goes on where it was;
// all others begin with what its queues have in common.
func (p *Greybox) Load(r io.Reader) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), ErrBadModel)
	}
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	var s greyboxState
	if err := decoder.Decode(&s); err != nil {
		return bad("read model: %w", err)
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return bad("read model: more follows after its end")
	}
	switch {
	case s.Policy != "greybox":
		return bad("the model is of policy %q, not greybox", s.Policy)
	case s.Version != greyboxVersion:
		return bad("the model is of version %d; this program reads version %d", s.Version, greyboxVersion)
	}
	costs, delays := bayes.NewEvidence(costLen), bayes.NewEvidence(delayLen)
	queues := make([]*greyboxQueue, 0, len(s.Queues))
	for i := range s.Queues {
		q, err := s.Queues[i].queue(p.priors)
		if err != nil {
			return bad("queue %v of the model: %w", s.Queues[i].Queue, err)
		}
		if slices.ContainsFunc(queues, func(other *greyboxQueue) bool { return other.queue == q.queue }) {
			return bad("queue %v is in the model twice", q.queue)
		}
		q.add(costs, delays)
		queues = append(queues, q)
	}
	if len(queues) == 0 {
		return nil
	}
	priors, err := p.priors.updated(costs, delays, loadedWeight/float64(len(queues)), map[int]float64{costScale: loadedCost}, map[int]float64{delayScale: loadedDelay})
	if err != nil {
		return bad("use the model: %w", err)
	}
	p.priors = priors
	for _, q := range queues {
		p.loaded[q.queue] = q
	}
	return nil
}

// queue returns the stored queue, or what is wrong with it.
func (s *greyboxQueueState) queue(priors greyboxPriors) (*greyboxQueue, error) {
	cost, err := evidenceOf(s.Cost, costLen)
	if err != nil {
		return nil, fmt.Errorf("cost: %w", err)
	}
	delay, err := evidenceOf(s.Delay, delayLen)
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	switch {
	case !(s.CostNoise > 0 && s.CostNoise < 100), !(s.DelayNoise > 0 && s.DelayNoise < 100):
		return nil, fmt.Errorf("noise variances %v and %v are not between 0 and 100", s.CostNoise, s.DelayNoise)
	case s.Margin < greyboxMarginLow || s.Margin > greyboxMarginHigh:
		return nil, fmt.Errorf("margin %v is not from %v to %v", s.Margin, greyboxMarginLow, greyboxMarginHigh)
	case s.Full < 0 || s.Full > 20:
		return nil, fmt.Errorf("utilisation factor %v is not from 0 to 20", s.Full)
	case len(s.HeldTimeout) != int(greyboxModes):
		return nil, fmt.Errorf("%d held timeouts, want %d", len(s.HeldTimeout), greyboxModes)
	}
	q := newGreyboxQueue(s.Queue, priors)
	q.cost = bayes.Resume(priors.cost, greyboxForget, cost)
	q.delay = bayes.Resume(priors.delay, greyboxForget, delay)
	q.costNoise.variance, q.delayNoise.variance = s.CostNoise, s.DelayNoise
	q.margin, q.full = s.Margin, s.Full
	for i, h := range s.HeldTimeout {
		if h < 0 || h > time.Second {
			return nil, fmt.Errorf("held timeout %v is not from 0 to 1s", h)
		}
		q.held[i] = h
	}
	return q, nil
}

func evidenceOf(groups []greyboxGroup, n int) ([]*bayes.Evidence, error) {
	if len(groups) != int(greyboxModes) {
		return nil, fmt.Errorf("%d modes, want %d", len(groups), greyboxModes)
	}
	out := make([]*bayes.Evidence, len(groups))
	for i, g := range groups {
		e, ok := bayes.EvidenceOf(g.Information, g.Weighted)
		if !ok || e.Len() != n {
			return nil, fmt.Errorf("mode %v has %d and %d numbers, want %d and %d", greyboxMode(i), len(g.Information), len(g.Weighted), n*(n+1)/2, n)
		}
		if !e.Valid() {
			return nil, fmt.Errorf("the information of mode %v is not that of any data", greyboxMode(i))
		}
		out[i] = e
	}
	return out, nil
}
