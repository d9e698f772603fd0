package model

import (
	"slices"
	"time"
)

// Costs apportions the CPU time of a sample to its queues. No time is counted
// twice: task time already holds the interrupts that interrupted it (where
// IRQ_TIME_ACCOUNTING is off), so that of NET_RX and of device interrupts only
// the part that no task is charged with is added.
//
// A queue's cost is the time of its NAPI thread; its part, by packets polled in
// softirq, of that NET_RX time and of the time of ksoftirqd; its part, by
// packets polled in softirq or thread, of that interrupt time; and its part, by
// packets, of the time of the applications that it serves. An application whose
// epoll contexts were listed is served by the queues of their NAPI instances,
// any other by all queues.
//
// Ksoftirqd and device interrupts serve more than the receive path, and all of
// their time counts: what is not of the queues is the same before and after a
// move.
//
// A queue of which no part was observed is missing from the result, and so is
// one whose thread polled and has no known time. All are missing when the time
// of an application is not known: which queues it serves is not known either,
// and a cost without it would be too low.
func Costs(s *Sample) map[Queue]time.Duration {
	out := make(map[Queue]time.Duration, len(s.Queues))
	if s.AppsUnknown > 0 {
		return out
	}
	add := func(q Queue, d time.Duration) { out[q] += max(0, d) }

	var softirq, interrupt float64
	for i := range s.Queues {
		q := &s.Queues[i]
		softirq += float64(q.Softirq.Packets)
		interrupt += float64(q.Softirq.Packets + q.Thread.Packets)
	}
	inSoftirq, inInterrupt := shared(s.CPUs)
	for i := range s.Queues {
		q := &s.Queues[i]
		if q.ThreadTime != nil {
			add(q.Queue, *q.ThreadTime)
		}
		if n := q.Softirq.Packets; inSoftirq != nil && n > 0 {
			add(q.Queue, part(*inSoftirq, float64(n), softirq))
		}
		if n := q.Softirq.Packets + q.Thread.Packets; inInterrupt != nil && n > 0 {
			add(q.Queue, part(*inInterrupt, float64(n), interrupt))
		}
	}
	byNAPI := make(map[uint32]int, len(s.Queues))
	var all float64
	for i := range s.Queues {
		byNAPI[s.Queues[i].NAPIID] = i
		all += float64(s.Queues[i].Polls().Packets)
	}
	for i := range s.Apps {
		app := &s.Apps[i]
		served := app.served(byNAPI)
		if len(served) == 0 {
			for j := range s.Queues {
				if n := s.Queues[j].Polls().Packets; n > 0 {
					add(s.Queues[j].Queue, part(app.CPU, float64(n), all))
				}
			}
			continue
		}
		var total float64
		for _, j := range served {
			total += float64(s.Queues[j].Polls().Packets)
		}
		for _, j := range served {
			if n := s.Queues[j].Polls().Packets; n > 0 {
				add(s.Queues[j].Queue, part(app.CPU, float64(n), total))
			}
		}
	}
	for i := range s.Queues {
		if q := &s.Queues[i]; q.ThreadTime == nil && q.Thread.Polls > 0 {
			delete(out, q.Queue)
		}
	}
	return out
}

// shared returns the time of softirqs and of device interrupts that belongs to
// no task but ksoftirqd; nil is what no CPU observed.
func shared(cpus []CPUSample) (softirq, interrupt *time.Duration) {
	sum := func(total **time.Duration, d *time.Duration) {
		if d == nil {
			return
		}
		if *total == nil {
			*total = new(time.Duration)
		}
		**total += max(0, *d)
	}
	for i := range cpus {
		c := &cpus[i]
		sum(&softirq, c.NetRXIdle)
		sum(&softirq, c.Ksoftirqd)
		sum(&interrupt, c.HardIRQIdle)
	}
	return softirq, interrupt
}

func part(d time.Duration, n, total float64) time.Duration {
	if total <= 0 {
		return 0
	}
	return time.Duration(float64(d) * (n / total))
}

// served returns the positions of the queues that the application's contexts
// watch.
func (a *AppSample) served(byNAPI map[uint32]int) []int {
	var out []int
	for i := range a.Contexts {
		for _, id := range a.Contexts[i].NAPIIDs {
			if j, ok := byNAPI[id]; ok && id != 0 && !slices.Contains(out, j) {
				out = append(out, j)
			}
		}
	}
	return out
}
