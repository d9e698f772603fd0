package placement

import (
	"fmt"
	"slices"
	"strings"

	"autotune/model"
)

// Finding is what is to be said about one queue or thread.
type Finding struct {
	// Subject is what it is about, for example "eth0 queue 1".
	Subject string `json:"subject"`
	// Aligned tells that nothing has to move.
	Aligned bool   `json:"aligned"`
	Detail  string `json:"detail"`
	// Consequence is empty where Aligned; Remedy says what aligning would do,
	// or why it cannot.
	Consequence string `json:"consequence"`
	Remedy      string `json:"remedy"`
	// Moves are what aligning would do; none where it can do nothing.
	Moves []Move `json:"moves"`
}

// Judge says of each queue whether its packets are polled where they are read,
// and what would have to move. The NAPI goes to the application and not the
// other way round: a thread of an application is at most narrowed to some of
// the CPUs that it may run on already.
//
//   - A queue whose only worker is known is polled on one CPU of that worker,
//     and the worker is narrowed to that CPU.
//   - Workers that share a queue are narrowed to the node that polls it.
//   - A NAPI thread that was made anew goes where the one before it was.
//   - Receive packet steering is turned off: it hands what was polled here to
//     other CPUs.
//
// Queues are given CPUs so that as few as possible share one.
func Judge(f Facts) []Finding {
	j := judge{facts: f, claimed: map[int]int{}, shared: map[uint32]bool{}}
	for i := range f.Queues {
		// Those that stay where they are come first.
		if polled := f.Queues[i].polledOn(); len(polled) == 1 {
			j.claimed[polled[0]]++
		}
	}
	var out []Finding
	for i := range f.Queues {
		out = append(out, j.queue(&f.Queues[i]))
	}
	return out
}

type judge struct {
	facts Facts
	// claimed counts the queues that each CPU polls.
	claimed map[int]int
	// shared are the interrupts that went to a queue already: one that serves
	// several follows the first.
	shared map[uint32]bool
}

func (j *judge) queue(q *Queue) Finding {
	f := Finding{Subject: fmt.Sprintf("%s queue %d", q.Ifname, q.Queue.Index), Moves: []Move{}}
	workers := j.workers(q)
	var details, consequences, remedies []string
	say := func(consequence, remedy string) {
		consequences, remedies = append(consequences, consequence), append(remedies, remedy)
	}
	polled := q.polledOn()
	switch {
	case polled == nil && q.IRQ == nil && q.Thread == nil:
		details = append(details, "which CPU polls it is not known: no NAPI thread, and the driver reports no interrupt")
	case q.Thread != nil:
		details = append(details, fmt.Sprintf("polled by thread %d on CPU %s", q.Thread.TID, model.FormatCPUList(polled)))
	default:
		details = append(details, fmt.Sprintf("polled where interrupt %d goes, CPU %s", q.IRQ.Number, model.FormatCPUList(polled)))
	}
	for _, w := range workers {
		details = append(details, fmt.Sprintf("read by %s (pid %d, thread %d) on CPU %s", w.Comm, w.PID, w.TID, model.FormatCPUList(w.CPUs)))
	}
	target, why := j.target(q, workers)
	if target != nil {
		f.Moves = append(f.Moves, j.moveNAPI(q, target, why, say)...)
	}
	if len(polled) > 0 || target != nil {
		at := target
		if at == nil {
			at = polled
		}
		f.Moves = append(f.Moves, j.moveWorkers(workers, at, say)...)
	}
	if q.RPS != nil && *q.RPS != "" {
		details = append(details, "packets are steered to CPU "+*q.RPS)
		say("what is polled on one CPU is processed on another, with an interrupt between them", "receive packet steering is turned off")
		f.Moves = append(f.Moves, Move{Item: Item{Kind: KindRPS, Queue: q.Queue}, From: *q.RPS, To: "", Why: "what is polled on one CPU would be processed on another"})
	}
	f.Detail = strings.Join(details, "; ")
	f.Consequence, f.Remedy = strings.Join(consequences, "; "), strings.Join(remedies, "; ")
	f.Aligned = len(consequences) == 0
	return f
}

// workers returns the threads that wait for sockets of this queue only.
func (j *judge) workers(q *Queue) []Worker {
	var out []Worker
	for _, w := range j.facts.Workers {
		if len(w.NAPIIDs) == 1 && w.NAPIIDs[0] == q.NAPIID {
			out = append(out, w)
		}
	}
	return out
}

// target returns the CPUs that the queue is to be polled on, and why; nil where
// it is to stay.
func (j *judge) target(q *Queue, workers []Worker) (cpus []int, why string) {
	polled := q.polledOn()
	movable := q.Thread != nil || q.IRQ != nil && j.facts.Balancer == 0
	if len(workers) == 1 {
		w := workers[0]
		shared := intersect(polled, w.CPUs)
		if before := intersect(q.Before, w.CPUs); len(before) > 0 {
			shared = before
		}
		reason := fmt.Sprintf("%s (thread %d) reads there", w.Comm, w.TID)
		switch {
		case len(polled) == 1 && len(shared) == 1:
			return shared, reason
		case !movable:
			return nil, ""
		case len(shared) > 0:
			return j.least(shared, polled), reason
		case len(w.CPUs) > 0:
			return j.least(w.CPUs, polled), reason
		}
	}
	if movable && q.Thread != nil && len(q.Before) > 0 {
		return q.Before, "the thread was made anew, and the one before it was there"
	}
	return nil, ""
}

// least returns the CPU of cpus that polls the fewest queues, the lowest of
// those, and claims it for a queue that was polled elsewhere.
func (j *judge) least(cpus, polled []int) []int {
	if len(polled) == 1 {
		j.claimed[polled[0]]--
	}
	best := cpus[0]
	for _, cpu := range cpus {
		if j.claimed[cpu] < j.claimed[best] {
			best = cpu
		}
	}
	j.claimed[best]++
	return []int{best}
}

// moveNAPI brings what polls the queue to the target.
func (j *judge) moveNAPI(q *Queue, target []int, why string, say func(consequence, remedy string)) []Move {
	var moves []Move
	to := model.FormatCPUList(target)
	if t := q.Thread; t != nil && !slices.Equal(t.CPUs, target) {
		moves = append(moves, Move{
			Item: Item{Kind: KindNAPIThread, Queue: q.Queue, TID: t.TID, Started: t.Started},
			From: model.FormatCPUList(t.CPUs), To: to, Why: why,
		})
		say("its thread may poll elsewhere than where packets are read", fmt.Sprintf("NAPI thread %d goes to CPU %s", t.TID, to))
	}
	irq := q.IRQ
	if irq == nil || j.shared[irq.Number] {
		return moves
	}
	j.shared[irq.Number] = true
	delivered := irq.Effective
	if len(delivered) == 0 {
		delivered = irq.Affinity
	}
	switch {
	case slices.Equal(delivered, target) && slices.Equal(irq.Affinity, target):
	case j.facts.Balancer != 0 && slices.Equal(delivered, target):
	case j.facts.Balancer != 0:
		say(fmt.Sprintf("interrupt %d goes to CPU %s, not to %s", irq.Number, model.FormatCPUList(delivered), to),
			fmt.Sprintf("it is irqbalance's (pid %d), which would move it back: stop it, or ban the interrupt (--banirq=%d)", j.facts.Balancer, irq.Number))
	default:
		moves = append(moves, Move{
			Item: Item{Kind: KindIRQ, IRQ: irq.Number},
			From: model.FormatCPUList(irq.Affinity), To: to, Why: why,
		})
		say("its interrupt goes elsewhere than where packets are read", fmt.Sprintf("interrupt %d goes to CPU %s", irq.Number, to))
	}
	return moves
}

// moveWorkers narrows threads to where the queue is polled.
func (j *judge) moveWorkers(workers []Worker, at []int, say func(consequence, remedy string)) []Move {
	var moves []Move
	for _, w := range workers {
		want := intersect(w.CPUs, at)
		reason := "its packets are polled there"
		if len(workers) > 1 || len(at) > 1 || len(want) == 0 {
			want = intersect(w.CPUs, j.sameNode(at))
			reason = "its packets are polled on this node"
		}
		name := fmt.Sprintf("%s (thread %d)", w.Comm, w.TID)
		switch {
		case slices.Equal(want, w.CPUs):
		case len(want) == 0:
			say(name+" may run on no CPU of the node that polls its packets",
				"it is not moved beyond the CPUs that it was given: widen them, or move what polls")
		case w.Fixed:
			say(name+" may run elsewhere than where its packets are polled", "its process was not selected, so it is left alone")
		default:
			moves = append(moves, Move{
				Item: Item{Kind: KindThread, TID: w.TID, Started: w.Started},
				From: model.FormatCPUList(w.CPUs), To: model.FormatCPUList(want), Why: reason,
			})
			say(name+" may run elsewhere than where its packets are polled", fmt.Sprintf("thread %d goes to CPU %s", w.TID, model.FormatCPUList(want)))
		}
	}
	return moves
}

// sameNode returns all CPUs of the nodes of these.
func (j *judge) sameNode(cpus []int) []int {
	if len(j.facts.Nodes) == 0 {
		// All of one node: whatever is allowed is.
		return slices.Sorted(slices.Values(j.every()))
	}
	var out []int
	for cpu, node := range j.facts.Nodes {
		if slices.ContainsFunc(cpus, func(c int) bool { return j.facts.Nodes[c] == node }) {
			out = append(out, cpu)
		}
	}
	slices.Sort(out)
	return out
}

// every returns all CPUs that anything may run on.
func (j *judge) every() []int {
	var out []int
	for i := range j.facts.Queues {
		out = append(out, j.facts.Queues[i].polledOn()...)
	}
	for _, w := range j.facts.Workers {
		out = append(out, w.CPUs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intersect returns the elements of a that are in b, in a's order.
func intersect(a, b []int) []int {
	var out []int
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}
