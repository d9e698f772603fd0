package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
	"autotune/probe/trace"
	"autotune/tuner"
)

// restoreWait bounds putting the originals back. The kernel answers within
// microseconds; only a wedged one takes longer.
const restoreWait = 30 * time.Second

// sessionOptions say what a session tunes and how.
type sessionOptions struct {
	namespace actuate.NamespaceRef
	ifaces    []string
	// apply writes; otherwise the session observes.
	apply    bool
	stateDir string
	bounds   model.Bounds
	// apps pick the applications that follow the settings; none is usual.
	apps []model.Selector

	policy model.Policy
	// memory, where not nil, is what the guards learned in earlier sessions
	// with this policy.
	memory    *tuner.Memory
	objective model.Objective
	interval  time.Duration
	// budget is the share of a CPU that the probes may take; zero is the
	// default, negative no limit.
	budget float64
	// uncounted leaves the counters of cycles and instructions alone.
	uncounted bool
	// contexts lists the applications' epoll contexts whatever the policy.
	contexts bool
	// everyHold journals a hold that repeats the one before too.
	everyHold bool
	// journal takes every decision; wrap, where not nil, is put around the
	// live source.
	journal tuner.Journal
	wrap    func(tuner.Source) tuner.Source
	// trace, where not empty, is the file to write a trace to; warn takes the
	// failures of that.
	trace string
	// rotation says when the trace goes on in another file.
	rotation trace.Rotation
	// detail is that of the histograms in the trace, and of what decides then.
	detail trace.Detail
	warn   io.Writer
}

// session is the loop with its two live ends: probes in front, the actuator
// behind.
type session struct {
	host   *actuate.Host
	source *probe.Source
	// actuator is the host, or what has applications follow it.
	actuator tuner.Actuator
	apps     *applications
	loop     *tuner.Loop
	apply    bool
	// trace is nil unless one is written.
	trace *runTrace
}

// openSession takes the interfaces over (with apply), loads the probes and
// joins both by the loop. Nothing is written to the kernel before run.
func openSession(ctx context.Context, o sessionOptions) (s *session, err error) {
	s = &session{apply: o.apply, apps: &applications{}}
	opened := s // a failure returns nil for s
	if err := s.canSteer(o); err != nil {
		return nil, errors.Join(err, s.apps.Close())
	}
	s.host, err = actuate.Open(ctx, actuate.Options{
		System:    actuate.Live{Applications: s.apps},
		Namespace: o.namespace,
		Ifaces:    o.ifaces,
		StateDir:  o.stateDir,
		Bounds:    o.bounds,
		ReadOnly:  !o.apply,
	})
	if err != nil {
		return nil, errors.Join(err, s.apps.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if o.apply {
		// The first write would come only with the first decision.
		if err := s.host.Privilege(); err != nil {
			return nil, cannotError(fmt.Errorf("%w; leave --apply out to observe", err))
		}
	}
	napis, err := s.host.NAPIs(ctx)
	if len(napis) == 0 && err != nil {
		return nil, err
	}
	if err := measurable(napis); err != nil {
		return nil, err
	}
	s.source, err = probe.Open(ctx, probe.Options{
		Interval:  o.interval,
		Inventory: s.host,
		Clocks:    s.host,
		Budget:    o.budget,
		Contexts:  len(o.apps) == 0 && (o.contexts || mayBusyPoll(o.policy) || suspended(napis)),

		NoCounters: o.uncounted,
	})
	if err != nil {
		return nil, err
	}
	var source tuner.Source = s.source
	serving := servingCPUs(napis)
	if s.host.Scope() == actuate.ScopeDevice {
		source = ledSource{source, s.host}
		serving = ledCPUs(serving, s.host.Leads())
	}
	s.actuator = s.host
	if len(o.apps) > 0 {
		steering := newSteering(s.host, o)
		s.actuator, source = steering, steeredSource{source, steering}
	}
	if o.wrap != nil {
		source = o.wrap(source)
	}
	options := tuner.Options{
		Source:    source,
		Policy:    o.policy,
		Memory:    o.memory,
		Journal:   o.journal,
		Objective: o.objective,
		Bounds:    o.bounds,
		CPUs:      serving,
	}
	if o.everyHold {
		options.HoldEvery = -1
	}
	if o.apply {
		options.Actuator = s.actuator
	}
	if o.trace != "" {
		if err := s.openTrace(o, napis, &options); err != nil {
			return nil, err
		}
	}
	if s.loop, err = tuner.New(options); err != nil {
		return nil, err
	}
	return s, nil
}

// openTrace begins the trace of the loop that options describe.
func (s *session) openTrace(o sessionOptions, napis []model.NAPI, options *tuner.Options) error {
	header, err := traceFacts{host: s.host, source: s.source, napis: napis, serving: options.CPUs, interval: o.interval}.header()
	if err != nil {
		return err
	}
	header.Histograms = o.detail
	if header.Run, err = tracedRun(*options, s.host.Originals()); err != nil {
		return err
	}
	s.trace, err = openRunTrace(o.trace, o.rotation, header, options, o.warn)
	if err != nil {
		return err
	}
	s.trace.watch.host = s.host
	return nil
}

// mayBusyPoll reports whether a policy can ask for suspension, which is
// granted only where it is known which applications prefer busy polling.
// Listing their epoll contexts costs more than anything else that is probed.
func mayBusyPoll(p model.Policy) bool {
	suspends, ok := p.(interface{ Suspends() bool })
	return ok && suspends.Suspends()
}

// suspended reports whether interrupts of a queue may be suspended as found:
// whoever goes back to that has to know the applications too.
func suspended(napis []model.NAPI) bool {
	return slices.ContainsFunc(napis, func(n model.NAPI) bool { return n.Settings.IRQSuspendTimeout > 0 })
}

// restore puts the originals back. It is called with the context that may just
// have ended, so it takes another.
func (s *session) restore(ctx context.Context) (actuate.Report, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWait)
	defer cancel()
	report, err := s.host.Restore(ctx)
	if err == nil && !report.Settled {
		err = fmt.Errorf("the originals are not all back:\n%sput them back later with: autotune restore --state %s", report, report.StateDir)
	}
	return report, err
}

func (s *session) close() error {
	var errs []error
	if s.trace != nil {
		// What could not be written was reported, or will be.
		_ = s.trace.writer.Close()
	}
	if s.source != nil {
		errs = append(errs, s.source.Close())
	}
	errs = append(errs, s.host.Close(), s.apps.Close())
	return errors.Join(errs...)
}
