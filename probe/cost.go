package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// costLost is what is missing where the kernel keeps no account.
const costLost = "the cost of the probes, so that it is not kept within its budget"

// cost implements [kernel]. The account is kept (BPF_ENABLE_STATS, which needs
// CAP_SYS_ADMIN) only while wait runs: it reads the clock twice per run of every
// program on the host.
func (p *programs) cost(wait func() error) (time.Duration, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, fmt.Errorf("enable the account of BPF programs: %w", honest(err))
	}
	before, err := p.runTime()
	began := time.Now()
	if err == nil {
		err = wait()
	}
	span := time.Since(began)
	after, afterErr := p.runTime()
	if err := errors.Join(err, afterErr, stats.Close()); err != nil {
		return 0, err
	}
	return time.Duration(float64(after-before) / span.Seconds()), nil
}

// runTime sums what the programs took while the account was kept.
func (p *programs) runTime() (time.Duration, error) {
	var sum time.Duration
	for _, a := range p.attached {
		stats, err := a.program.Stats()
		if err != nil {
			return 0, fmt.Errorf("read the statistics of %s: %w", a.name, err)
		}
		sum += stats.Runtime
	}
	return sum, nil
}

// measureCost measures at the beginning of a window, where that is due, and
// returns the cost over all CPUs; nil when it did not measure.
func (s *Source) measureCost(ctx context.Context) (*time.Duration, error) {
	if !s.throttle.due(s.at) {
		return nil, nil
	}
	now, err := s.clock()
	if err != nil {
		return nil, err
	}
	// Whoever asks late gets the window at once.
	if now-s.at > s.interval/2 {
		return nil, nil
	}
	cost, err := s.kernel.cost(func() error {
		slice := time.NewTimer(min(s.interval/8, maxMeasured))
		defer slice.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-slice.C:
			return nil
		}
	})
	switch {
	case err == nil:
		return &cost, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	s.throttle.budget = 0
	s.missing = append(s.missing, Missing{Name: signalCost, Lost: costLost, Err: err})
	return nil, nil
}

// adjustSampling samples less, or more again, by what the window cost.
func (s *Source) adjustSampling(cost *time.Duration) error {
	if cost == nil {
		return nil
	}
	before := s.throttle.level
	s.throttle.note(s.at, time.Duration(float64(*cost)*busiest(s.last.events, s.now.events)))
	if s.throttle.level == before {
		return nil
	}
	s.pollMask = s.throttle.pollMask()
	return s.kernel.timePolls(s.pollMask)
}
