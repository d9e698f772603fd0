package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"autotune/actuate"
	"autotune/experiments/demo"
	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

// demoTuners gives each contender of the demo a session of its own, with the
// probes, guards and actuator that run has, and with what it learned before.
type demoTuners struct {
	state   string
	learned map[string]learned
}

// learned is what outlives a session.
type learned struct {
	policy model.Policy
	memory *tuner.Memory
}

func newDemoTuners(state string) *demoTuners {
	return &demoTuners{state: state, learned: map[string]learned{}}
}

// Start implements [demo.Tuners].
func (d *demoTuners) Start(ctx context.Context, r demo.TuningRequest) (demo.Tuning, error) {
	mind, ok := d.learned[r.Contender]
	if !ok {
		spec := r.Spec
		if spec == "" {
			spec = "base"
		}
		decide, err := policy.Parse(spec)
		if err != nil {
			return nil, err
		}
		mind = learned{policy: decide, memory: tuner.NewMemory()}
		d.learned[r.Contender] = mind
	}
	relay := &relay{observe: r.Observe}
	s, err := openSession(ctx, sessionOptions{
		namespace: actuate.ParseNamespace(r.Netns),
		ifaces:    []string{r.Ifname},
		apply:     true,
		stateDir:  d.state,
		bounds:    model.DefaultBounds(),
		policy:    mind.policy,
		memory:    mind.memory,
		objective: r.Objective,
		interval:  r.Window,
		// Short windows need every delay; what the probes cost, every
		// contender pays.
		budget:  -1,
		journal: relay,
		wrap:    func(source tuner.Source) tuner.Source { relay.source = source; return relay },
	})
	if err != nil {
		return nil, err
	}
	loopCtx, cancel := context.WithCancel(ctx)
	t := &demoTuning{session: s, cancel: cancel}
	t.done.Go(func() {
		err := s.loop.Run(loopCtx)
		relay.flush()
		if loopCtx.Err() == nil {
			t.err = err
		}
	})
	return t, nil
}

type demoTuning struct {
	session *session
	cancel  context.CancelFunc
	done    sync.WaitGroup
	err     error
}

// Stop implements [demo.Tuning].
func (t *demoTuning) Stop(ctx context.Context) error {
	t.cancel()
	t.done.Wait()
	var errs []error
	if t.err != nil {
		errs = append(errs, fmt.Errorf("tuning ended early: %w", t.err))
	}
	_, err := t.session.restore(ctx)
	return errors.Join(append(errs, err, t.session.close())...)
}

// relay pairs each sample with the decisions that followed from it. It stands
// in front of the source and among the journals, which the loop uses in turn.
type relay struct {
	source  tuner.Source
	observe func(model.Sample, []tuner.Entry)

	sample  *model.Sample
	entries []tuner.Entry
}

// Next implements [tuner.Source].
func (r *relay) Next(ctx context.Context) (model.Sample, error) {
	r.flush()
	sample, err := r.source.Next(ctx)
	if err == nil {
		r.sample = &sample
	}
	return sample, err
}

// Record implements [tuner.Journal].
func (r *relay) Record(e tuner.Entry) error {
	r.entries = append(r.entries, e)
	return nil
}

func (r *relay) flush() {
	if r.sample == nil {
		return
	}
	r.observe(*r.sample, r.entries)
	r.sample, r.entries = nil, nil
}
