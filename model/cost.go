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
// A queue's cost is the time of its NAPI thread; its part, by the time of its
// polls in softirq, of that NET_RX time and of the time of ksoftirqd; its part,
// by polls in softirq or thread, of that interrupt time; and its part, by
// packets, of the time of the applications that it serves. Packets alone would
// charge the polls of a timer that finds none to the queues that have packets
// to show. An application whose
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

	weights, softirq := softirqWeights(s)
	interrupt := 0.0
	for i := range s.Queues {
		interrupt += interruptWeight(&s.Queues[i])
	}
	inSoftirq, inInterrupt := shared(s.CPUs)
	for i := range s.Queues {
		q := &s.Queues[i]
		if q.ThreadTime != nil {
			add(q.Queue, *q.ThreadTime)
		}
		if inSoftirq != nil && weights[i] > 0 {
			add(q.Queue, part(*inSoftirq, weights[i], softirq))
		}
		if w := interruptWeight(q); inInterrupt != nil && w > 0 {
			add(q.Queue, part(*inInterrupt, w, interrupt))
		}
	}
	byNAPI := make(map[uint32]int, len(s.Queues))
	for i := range s.Queues {
		byNAPI[s.Queues[i].NAPIID] = i
	}
	for i := range s.Apps {
		app := &s.Apps[i]
		served := app.served(byNAPI)
		if len(served) == 0 {
			for j := range s.Queues {
				served = append(served, j)
			}
		}
		weights, total := applicationWeights(s, app, served)
		for k, j := range served {
			if weights[k] > 0 {
				add(s.Queues[j].Queue, part(app.CPU, weights[k], total))
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

// softirqWeights returns what each queue has of the softirq time, and their sum:
// the time of its polls, or where that of a queue is not known, polls and packets,
// since one that finds nothing takes about as long as a packet more.
func softirqWeights(s *Sample) (weights []float64, sum float64) {
	known := true
	for i := range s.Queues {
		q := &s.Queues[i]
		known = known && (none(q.Softirq) || q.SoftirqTime != nil && *q.SoftirqTime > 0)
	}
	weights = make([]float64, len(s.Queues))
	for i := range s.Queues {
		q := &s.Queues[i]
		switch {
		case none(q.Softirq):
			continue
		case known:
			weights[i] = float64(*q.SoftirqTime)
		default:
			weights[i] = float64(q.Softirq.Polls + q.Softirq.Packets)
		}
		sum += weights[i]
	}
	return weights, sum
}

// leastOnCPUs is the share of an application's CPU time that CPUs must have been
// busy for beside the receive path, if it is to be told apart by them: ticks miss
// some of it.
const leastOnCPUs = 0.7

// applicationWeights returns what each of the queues that an application serves
// has of its time, and their sum: how busy their CPUs were beside the receive
// path, where each queue was polled on a CPU of its own and these CPUs had the
// time for the application; packets otherwise. By packets what a queue saves its
// thread of the application is spread over all queues, while what it costs its
// softirq is the queue's alone, and deferral seems dearer than suspension.
func applicationWeights(s *Sample, app *AppSample, served []int) (weights []float64, sum float64) {
	weights = make([]float64, len(served))
	if len(served) > 1 {
		seen := make(map[int]bool, len(served))
		for k, j := range served {
			q := &s.Queues[j]
			if len(q.CPUs) != 1 || seen[q.CPUs[0]] {
				sum = 0
				break
			}
			seen[q.CPUs[0]] = true
			weights[k] = float64(beside(s.CPUs, q))
			sum += weights[k]
		}
		if sum > 0 && sum >= leastOnCPUs*float64(app.CPU) {
			return weights, sum
		}
	}
	sum = 0
	for k, j := range served {
		weights[k] = float64(s.Queues[j].Polls().Packets)
		sum += weights[k]
	}
	return weights, sum
}

// beside returns the time that the queue's only CPU was busy with other than
// what no task but the kernel's own is charged with.
func beside(cpus []CPUSample, q *QueueSample) time.Duration {
	for i := range cpus {
		c := &cpus[i]
		if c.CPU != q.CPUs[0] {
			continue
		}
		left := c.Busy
		for _, d := range []*time.Duration{c.NetRXIdle, c.HardIRQIdle, c.Ksoftirqd, q.ThreadTime} {
			if d != nil {
				left -= max(0, *d)
			}
		}
		return max(0, left)
	}
	return 0
}

// interruptWeight is the number of polls that a device's or the timer's interrupt
// may have started; packets, where a source does not count polls.
func interruptWeight(q *QueueSample) float64 {
	started := q.Softirq.Plus(q.Thread)
	if started.Polls == 0 {
		return float64(started.Packets)
	}
	return float64(started.Polls)
}

func none(c PollCounts) bool { return c.Polls == 0 && c.Packets == 0 }

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
