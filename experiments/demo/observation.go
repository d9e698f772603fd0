package demo

import (
	"cmp"
	"maps"
	"math"
	"sync"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// observation keeps what a tuner's samples said during one turn. Its methods
// may be called from any goroutine.
type observation struct {
	mu      sync.Mutex
	samples []seen
	// found is what the queues were set to before the turn.
	found model.Config
}

// seen is what is kept of a sample. It shares nothing with it: a source may
// use its memory again.
type seen struct {
	at, span                     time.Duration
	softirq, thread, application uint64
	fires, lost                  uint64
	// polled and fired say that polls and timer were observed at all.
	polled, fired bool
	delay         *model.Histogram // nil where no delay was observed
	active        model.Config
}

func (o *observation) take(sample model.Sample, _ []tuner.Entry) {
	s := seen{at: sample.At, span: sample.Span, lost: sample.Lost, active: maps.Clone(sample.Active)}
	for i := range sample.Queues {
		q := &sample.Queues[i]
		s.polled = true
		s.softirq += q.Softirq.Polls
		s.thread += q.Thread.Polls
		s.application += q.Busy.Polls
		if q.Timer != nil {
			s.fired = true
			s.fires += q.Timer.Fires
		}
	}
	if sample.Latency != nil {
		delay := sample.Latency.Histogram
		s.delay = &delay
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.samples = append(o.samples, s)
}

// settings returns the last that were read back of the first queue.
func (o *observation) settings() (model.Settings, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.samples) - 1; i >= 0; i-- {
		if s, ok := firstOf(o.samples[i].active); ok {
			return s, true
		}
	}
	return model.Settings{}, false
}

// lastActive returns the last settings that were read back, of all queues.
func (o *observation) lastActive() model.Config {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.samples) - 1; i >= 0; i-- {
		if len(o.samples[i].active) > 0 {
			return o.samples[i].active
		}
	}
	return nil
}

// settingsAt returns what was read back by the first sample that ended at or
// after at, or else by the last.
func (o *observation) settingsAt(at time.Duration) (settings model.Settings, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.samples {
		if read, ok := firstOf(s.active); ok {
			settings, known = read, true
		}
		if s.at >= at && known {
			break
		}
	}
	return settings, known
}

func firstOf(config model.Config) (model.Settings, bool) {
	var first *model.Queue
	for q := range config {
		if first == nil || q.Compare(*first) < 0 {
			first = &q
		}
	}
	if first == nil {
		return model.Settings{}, false
	}
	return config[*first], true
}

// into adds to the row what the samples say of the span from start to end,
// both since boot.
func (o *observation) into(row *Row, start, end time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var softirq, thread, application, fires, lost uint64
	polled, fired := false, false
	var delay model.Histogram
	var flushSpan, flushSum float64
	before := o.found
	for _, s := range o.samples {
		middle := s.at - s.span/2
		if middle >= end {
			break
		}
		if middle < start {
			before = s.active
			continue
		}
		row.Observed += s.span
		lost += s.lost
		softirq, thread, application, fires = softirq+s.softirq, thread+s.thread, application+s.application, fires+s.fires
		polled, fired = polled || s.polled, fired || s.fired
		delay.Merge(s.delay)
		up, down := changes(before, s.active)
		row.Raised += up
		row.Lowered += down
		if settings, ok := firstOf(s.active); ok {
			if settings.Mode() != model.ModeInterrupts {
				flushSum += s.span.Seconds() * float64(settings.GROFlushTimeout)
			}
			flushSpan += s.span.Seconds()
		}
		before = s.active
	}
	if row.Observed == 0 {
		return
	}
	row.LostEvents = &lost
	if polled {
		row.SoftirqPolls, row.ThreadPolls, row.ApplicationPolls = &softirq, &thread, &application
	}
	if fired {
		row.TimerFires = &fires
	}
	if delay.Count() > 0 {
		row.DelayP50, row.DelayP90 = quantile(&delay, 0.5), quantile(&delay, objectiveQuantile)
	}
	if flushSpan > 0 {
		mean := time.Duration(math.Round(flushSum / flushSpan))
		row.MeanFlush = &mean
	}
}

func quantile(h *model.Histogram, q float64) *time.Duration {
	d := h.Quantile(q)
	return &d
}

// delayP90 returns the p90 of the delay that the tuner saw, nil for none.
func (o *observation) delayP90() *time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var delay model.Histogram
	for _, s := range o.samples {
		delay.Merge(s.delay)
	}
	if delay.Count() == 0 {
		return nil
	}
	return quantile(&delay, objectiveQuantile)
}

// changes counts the queues whose settings moved towards more deferral, and
// towards less. A queue that is missing on either side was not read back.
func changes(before, after model.Config) (up, down int) {
	for q, now := range after {
		then, ok := before[q]
		if !ok {
			continue
		}
		switch c := compareDeferral(then, now); {
		case c < 0:
			up++
		case c > 0:
			down++
		}
	}
	return up, down
}

// compareDeferral orders settings by how far they put off interrupts.
func compareDeferral(a, b model.Settings) int {
	rank := func(s model.Settings) int {
		switch s.Mode() {
		case model.ModeInterrupts:
			return 0
		case model.ModeDeferral:
			return 1
		default:
			return 2
		}
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if rank(a) == 0 {
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.GROFlushTimeout, b.GROFlushTimeout),
		cmp.Compare(a.DeferHardIRQs, b.DeferHardIRQs),
		cmp.Compare(a.IRQSuspendTimeout, b.IRQSuspendTimeout),
	)
}
