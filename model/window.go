package model

import (
	"math"
	"time"
)

// Window merges what consecutive samples tell of one queue, until there is
// enough to decide upon. The zero value is empty.
type Window struct {
	at, span time.Duration
	windows  int

	softirq, thread, busy PollCounts
	timer                 TimerCounts
	hasTimer              bool
	cost                  time.Duration
	hasCost               bool
	delay                 *Histogram
	// utilisation is the sum, weighted by span, where it is known.
	utilisation     float64
	utilisationSpan time.Duration
}

// WindowPart is what one sample adds to a [Window].
type WindowPart struct {
	At, Span time.Duration
	// Queue is nil when the sample tells nothing of the queue.
	Queue *QueueSample
	// Delay is the distribution that the objective is judged by; nil when not
	// observed.
	Delay *Histogram
	// Cost is the queue's CPU time; nil when not known.
	Cost *time.Duration
	// Utilisation is NaN when not known.
	Utilisation float64
}

// Add merges a part. A cost or timer counts that one part lacks are not known
// for the whole window either; delays are merged as far as they were observed.
func (w *Window) Add(p WindowPart) {
	first := w.windows == 0
	w.at = p.At
	w.span += max(0, p.Span)
	w.windows++
	if q := p.Queue; q != nil {
		w.softirq = w.softirq.Plus(q.Softirq)
		w.thread = w.thread.Plus(q.Thread)
		w.busy = w.busy.Plus(q.Busy)
	}
	if q := p.Queue; q != nil && q.Timer != nil && (first || w.hasTimer) {
		w.timer.Arms += q.Timer.Arms
		w.timer.Fires += q.Timer.Fires
		w.hasTimer = true
	} else {
		w.hasTimer = false
	}
	if p.Cost != nil && (first || w.hasCost) {
		w.cost += *p.Cost
		w.hasCost = true
	} else {
		w.hasCost = false
	}
	if p.Delay != nil {
		if w.delay == nil {
			w.delay = &Histogram{}
		}
		w.delay.Merge(p.Delay)
	}
	if p.Span > 0 && !math.IsNaN(p.Utilisation) && !math.IsInf(p.Utilisation, 0) {
		w.utilisation += p.Utilisation * p.Span.Seconds()
		w.utilisationSpan += p.Span
	}
}

// Windows returns the number of parts merged.
func (w *Window) Windows() int { return w.windows }

// Packets returns the packets polled by all loops.
func (w *Window) Packets() uint64 {
	return w.softirq.Plus(w.thread).Plus(w.busy).Packets
}

// DelaySamples returns the number of delays merged.
func (w *Window) DelaySamples() uint64 { return w.delay.Count() }

// Rate returns the packets per second; zero for an empty window.
func (w *Window) Rate() float64 {
	if w.span <= 0 {
		return 0
	}
	return float64(w.Packets()) / w.span.Seconds()
}

// Features condenses the window. previousRate is the packet rate of the window
// before, zero or less when there was none. The histogram of the result is the
// window's own and must not be changed.
func (w *Window) Features(queue Queue, active Settings, objective Objective, previousRate float64) Features {
	polls := w.softirq.Plus(w.thread).Plus(w.busy)
	f := Features{
		Queue:          queue,
		At:             w.at,
		Span:           w.span,
		Windows:        w.windows,
		Active:         active,
		PacketRate:     w.Rate(),
		Utilisation:    math.NaN(),
		PacketsPerPoll: ratio(polls.Packets, polls.Polls-min(polls.Empty, polls.Polls)),
		EmptyShare:     ratio(polls.Empty, polls.Polls),
		FiresPerPacket: math.NaN(),
		Delay:          w.delay,
		Objective:      objective,
	}
	if previousRate > 0 {
		f.RateChange = f.PacketRate/previousRate - 1
	}
	if w.utilisationSpan > 0 {
		f.Utilisation = w.utilisation / w.utilisationSpan.Seconds()
	}
	if w.hasTimer {
		f.FiresPerPacket = ratio(w.timer.Fires, polls.Packets)
	}
	if polls.Packets > 0 {
		f.SoftirqShare = ratio(w.softirq.Packets, polls.Packets)
		f.ThreadShare = ratio(w.thread.Packets, polls.Packets)
		f.BusyShare = ratio(w.busy.Packets, polls.Packets)
		if w.hasCost {
			f.CostPerPacket = time.Duration(float64(w.cost) / float64(polls.Packets))
		}
	}
	if w.delay != nil {
		f.Quantile = w.delay.Quantile(objective.Quantile)
		f.Median = w.delay.Quantile(0.5)
	}
	return f
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}
