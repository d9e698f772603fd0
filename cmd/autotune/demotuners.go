package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/experiments/demo"
	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

// demoTuners gives each contender of the demo a session of its own, with the
// probes, guards and actuator that run has, and with what it learned before.
type demoTuners struct {
	state string
	// warn takes what ails applications that are to follow.
	warn    io.Writer
	learned map[string]learned
}

// learned is what outlives a session.
type learned struct {
	policy model.Policy
	memory *tuner.Memory
}

func newDemoTuners(state string, warn io.Writer) *demoTuners {
	return &demoTuners{state: state, warn: warn, learned: map[string]learned{}}
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
	var apps []model.Selector
	if r.Steer {
		apps = []model.Selector{{Kind: model.SelectPID, Value: strconv.Itoa(r.ServerPID)}}
	}
	relay := &relay{observe: r.Observe}
	s, err := openSession(ctx, sessionOptions{
		namespace: actuate.ParseNamespace(r.Netns),
		ifaces:    []string{r.Ifname},
		apply:     true,
		stateDir:  d.state,
		bounds:    model.DefaultBounds(),
		apps:      apps,
		warn:      d.warn,
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
	t := &demoTuning{session: s, server: r.ServerPID}
	if r.Steer {
		if t.contexts, err = t.listContexts(ctx); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	loopCtx, cancel := context.WithCancel(ctx)
	t.cancel = cancel
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
	server  int
	// contexts are the server's epoll contexts before, where they are steered.
	contexts map[int]busypoll.Params
	cancel   context.CancelFunc
	done     sync.WaitGroup
	err      error
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
	errs = append(errs, err)
	if t.contexts != nil {
		errs = append(errs, t.verifyContexts(ctx))
	}
	return errors.Join(append(errs, t.session.close())...)
}

// listContexts returns the parameters of the server's epoll contexts, by
// descriptor.
func (t *demoTuning) listContexts(ctx context.Context) (map[int]busypoll.Params, error) {
	rows, err := t.session.apps.List(ctx, []int{t.server}, false)
	if err != nil {
		return nil, fmt.Errorf("list the epoll contexts of the server: %w", err)
	}
	contexts := map[int]busypoll.Params{}
	for _, d := range rows {
		if d.Kind == busypoll.KindEpoll && d.Params != nil {
			contexts[d.FD] = *d.Params
		}
	}
	if len(contexts) == 0 {
		return nil, cannotError(fmt.Errorf("no epoll context of the server, process %d, can be read", t.server))
	}
	return contexts, nil
}

// verifyContexts compares what the server's epoll contexts have now with what
// they had before: restoring them verifies its own writes alone.
func (t *demoTuning) verifyContexts(ctx context.Context) error {
	now, err := t.listContexts(ctx)
	if err != nil {
		return err
	}
	for fd, before := range t.contexts {
		if after, ok := now[fd]; ok && after != before {
			return fmt.Errorf("epoll context %d of process %d is left at %v and had %v", fd, t.server, after, before)
		}
	}
	return nil
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
