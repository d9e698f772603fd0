package probe

import (
	"errors"
	"fmt"
	"time"

	"autotune/bpf"
	"autotune/model"
)

// queue is one followed queue: the NAPI behind it, the slot that it is counted
// in, and the baseline of the window under way.
type queue struct {
	napi   model.NAPI
	slot   int
	counts bpf.ReceiveNapiCounts
	delays bpf.ReceiveNapiDelays
	// polls are by CPU.
	polls []uint32
	// clocked is whether the window under way has a clock for the device's
	// time stamps.
	clocked bool
	// thread is the NAPI thread's CPU time; nil without a baseline.
	thread *time.Duration
	// interrupts are those of its line by CPU; nil without a baseline.
	interrupts map[int]uint32
}

func samePID(a, b *uint32) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// sample returns what happened since the baseline, and makes r the next one.
// One socket in sockets was followed.
func (q *queue) sample(r *reading, k kernel, sockets uint32) model.QueueSample {
	counts, delays := &r.counts[q.slot], &r.delays[q.slot]
	var work [model.WorkBuckets]uint64
	var polls [loops]model.PollCounts
	for i := range polls {
		polls[i] = loopGrowth(&q.counts, counts, i, &work)
	}
	s := model.QueueSample{
		Queue:       q.napi.Queue,
		NAPIID:      q.napi.ID,
		Softirq:     polls[loopSoftirq].Plus(polls[loopSoftirq+loopTimer]),
		Thread:      polls[loopThread].Plus(polls[loopThread+loopTimer]),
		Busy:        polls[loopApplication],
		Netpoll:     growth(q.counts.Netpoll, counts.Netpoll),
		Unmasked:    growth(q.counts.Unmasked, counts.Unmasked),
		RingWait:    histogramGrowth(&q.delays.RingWait, &delays.RingWait),
		SampleEvery: sockets,
		Work:        work,
		CPUs:        pollers(q.polls, r.polls[q.slot]),
	}
	if k.observes(signalSoftirqTimes) {
		s.SoftirqTime = projected(
			grown(q.counts.SoftirqTime, counts.SoftirqTime), grown(q.counts.SoftirqTimed, counts.SoftirqTimed), s.Softirq.Polls)
	}
	if k.observes(signalTimers) {
		s.Timer = &model.TimerCounts{
			Arms:  grown(q.counts.Arms, counts.Arms),
			Fires: grown(q.counts.Fires, counts.Fires),
		}
		s.TimerSoftirq, s.TimerThread = &polls[loopSoftirq+loopTimer], &polls[loopThread+loopTimer]
		s.Takeovers = takeoverGrowth(&q.counts, counts)
		s.Suspension = &model.Suspension{
			Started: grown(q.counts.Suspended, counts.Suspended),
			Resumed: grown(q.counts.Resumed, counts.Resumed),
			Expired: grown(q.counts.Expired, counts.Expired),
			Flushed: grown(q.counts.Flushed, counts.Flushed),
			Length:  *histogramGrowth(&q.delays.Suspension, &delays.Suspension),
		}
	}
	if k.observes(signalSocketReads) {
		s.SocketWait = histogramGrowth(&q.delays.SocketWait, &delays.SocketWait)
		s.Delay = histogramGrowth(&q.delays.Delay, &delays.Delay)
		if k.observes(signalSocketSends) {
			s.Service = histogramGrowth(&q.delays.Service, &delays.Service)
		}
	}
	q.addStamps(&s, delays)
	q.baseline(r)
	return s
}

// baseline starts a window at r.
func (q *queue) baseline(r *reading) {
	q.counts, q.delays = r.counts[q.slot], r.delays[q.slot]
	q.polls = append(q.polls[:0], r.polls[q.slot]...)
}

// pollers returns the CPUs that ran at least one in 16 of the polls between two
// readings; nil when there was none.
func pollers(last, now []uint32) []int {
	var all uint64
	grown := func(cpu int) uint64 {
		if cpu >= len(last) {
			return 0
		}
		return uint64(now[cpu] - last[cpu])
	}
	for cpu := range now {
		all += grown(cpu)
	}
	var cpus []int
	for cpu := range now {
		if n := grown(cpu); n > 0 && 16*n >= all {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// threadTime returns the CPU time of the NAPI thread since the call before;
// nil when there is no thread, or no baseline yet.
func (q *queue) threadTime(procfs string) (*time.Duration, error) {
	if q.napi.PID == nil {
		q.thread = nil
		return nil, nil
	}
	pid := int(*q.napi.PID)
	now, err := taskTime(procfs, pid, pid)
	if err != nil {
		q.thread = nil
		if errors.Is(err, errNoTask) {
			return nil, nil
		}
		return nil, fmt.Errorf("NAPI thread of queue %v: %w", q.napi.Queue, err)
	}
	last := q.thread
	q.thread = &now
	if last == nil {
		return nil, nil
	}
	spent := max(0, now-*last)
	return &spent, nil
}

// interruptGrowth returns how often the line of the instance has interrupted
// since the call before; nil when it is not known, or there is no baseline.
func (q *queue) interruptGrowth(sysfs, procfs string) (*uint64, error) {
	if q.napi.IRQ == nil {
		q.interrupts = nil
		return nil, nil
	}
	now, err := readInterrupts(sysfs, procfs, *q.napi.IRQ)
	if err != nil {
		q.interrupts = nil
		if gone(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("queue %v: %w", q.napi.Queue, err)
	}
	last := q.interrupts
	q.interrupts = now
	return interruptsBetween(last, now), nil
}

// The values of enum starter in bpf/state.h.
const (
	starterInterrupt   = 1
	starterTimer       = 2
	starterApplication = 3
)

func takeoverGrowth(last, now *bpf.ReceiveNapiCounts) *model.Takeovers {
	between := func(from, to int) uint64 {
		i := from<<2 | to
		return grown(last.Takeovers[i], now.Takeovers[i])
	}
	return &model.Takeovers{
		InterruptToTimer:       between(starterInterrupt, starterTimer),
		InterruptToApplication: between(starterInterrupt, starterApplication),
		TimerToInterrupt:       between(starterTimer, starterInterrupt),
		TimerToApplication:     between(starterTimer, starterApplication),
		ApplicationToInterrupt: between(starterApplication, starterInterrupt),
		ApplicationToTimer:     between(starterApplication, starterTimer),
	}
}

// histogramGrowth subtracts counters of 32 bits, which wrap.
func histogramGrowth(last, now *bpf.ReceiveHistogram) *model.Histogram {
	var h model.Histogram
	for i := range h.Counts {
		h.Counts[i] = uint64(now.Counts[i] - last.Counts[i])
	}
	return &h
}

func growth(last, now uint64) *uint64 {
	n := grown(last, now)
	return &n
}

// projected returns the time of all events from that of those timed; nil when
// there were events and none was timed.
func projected(spent, timed, all uint64) *time.Duration {
	var d time.Duration
	switch {
	case timed > 0:
		d = time.Duration(float64(spent) * float64(all) / float64(timed))
	case all > 0:
		return nil
	}
	return &d
}
