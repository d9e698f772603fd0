package sim

import (
	"time"

	"autotune/model"
)

// interrupt handles one interrupt at the instant at, with its softirq, for which
// the NAPI was scheduled at the instant scheduled. It returns the packets that
// were received and when it ended.
func (l *lane) interrupt(cause interruptCause, scheduled, at int64) (work int, until int64) {
	t := at + l.ns.interrupt
	if cause != causeTimer {
		l.moveNAPI(false, at)
	}
	switch cause {
	case causeTimer:
		l.timer = never
		l.count.timerFires++
		l.noteTimer(at)
		if !l.timerPaid {
			t += l.ns.interruptTimer
		}
	case causeRx, causeTx:
		t += l.ns.interruptNIC
		l.count.hardIRQ += l.ns.interruptNIC
		l.raised(cause, at)
		l.irqAt = scheduled
	default: // causeNone interrupts nothing
	}
	work, until = l.softirq(t, cause == causeRx || cause == causeTx)
	l.count.softirq += until - at
	l.busyTotal += until - at
	if !l.napiAway {
		l.near.current(at, true).note(until-at, work)
	}
	return work, until
}

// softirq polls the NAPI in the NET_RX softirq, from the instant t, until it
// completes. What the first poll finds could not be known before the interrupt
// that called for it, if one did. It returns the packets that were received and
// when it ended.
func (l *lane) softirq(t int64, interrupted bool) (total int, until int64) {
	const weight = 64
	run, began := 0, t
	for {
		other, cause := l.event()
		var work int
		work, t = l.poll(t, weight, interrupted, true)
		interrupted = false
		total += work
		if other <= t {
			// The other completion queue calls for the NAPI, which runs: it is
			// noted (NAPIF_STATE_MISSED), and polled once more.
			l.raised(cause, other)
			t += l.ns.interruptNIC
			l.count.hardIRQ += l.ns.interruptNIC
			if work < weight {
				continue
			}
		}
		if work < weight {
			return total, l.complete(t, work)
		}
		// net_rx_action() yields after netdev_budget packets or two jiffies;
		// the softirq is raised again at once.
		run += work
		if run >= 300 || t-began > int64(8*time.Millisecond) {
			l.count.squeezed++
			run, began = 0, t
		}
	}
}

// deliveryBatch is gro_normal_batch: the stack takes packets from a poll in
// batches of so many, and the rest at its end.
const deliveryBatch = 8

// poll runs the driver's poll function from the instant t: transmit
// completions, then up to budget packets. It returns the packets received, as
// the driver reports them, and when it ended.
func (l *lane) poll(t int64, budget int, interrupted, softirq bool) (work int, until int64) {
	k := &l.ns
	began := t
	c := &l.count.busyPolls
	if softirq {
		t += k.poll
		c = &l.count.softirqPolls
	} else {
		t += l.pollCost(t)
	}
	for l.tx.len() > 0 && *l.tx.at(l.tx.head) <= t {
		l.tx.pop()
		t += k.tx
	}
	for l.next <= t {
		l.accept()
	}
	from := l.ready.tail
	stack := int64(0) // for the packets that it has not been handed yet
	for work < budget {
		if l.ring.len() == 0 {
			for l.next <= t {
				l.accept()
			}
			if l.ring.len() == 0 {
				break
			}
		}
		p := l.ring.pop()
		work++
		l.rxCount++
		if p.kind == packetACK {
			t += k.ack
			stack += k.ackStack
			l.rxBytes += uint64(l.host.NIC.ACKBytes)
		} else {
			t += k.data
			stack += k.dataStack
			l.rxBytes += uint64(l.host.NIC.RequestBytes)
			visible := p.at
			if interrupted {
				visible = max(visible, l.irqAt)
			}
			l.ready.push(delivered{sent: p.at, visible: visible, conn: p.conn, sequence: l.rxCount, softirq: softirq})
		}
		if work%deliveryBatch == 0 {
			t += stack
			stack = 0
			l.deliver(from, t)
			from = l.ready.tail
		}
	}
	t += stack
	l.deliver(from, t)
	if l.ring.len() > 0 {
		l.rxFirst = l.ring.at(l.ring.head).at
	}
	if away := softirq && l.napiAway || !softirq && l.threadAway; away && work == budget && l.host.NIC.AffinityBound {
		work--
		c.Packets++
	}
	c.add(work, budget)
	l.count.work[min(work, model.WorkBuckets-1)]++
	if softirq {
		l.count.softirqPoll += t - began
	}
	l.notePoll(t, work, budget, softirq)
	l.events.poll(t, work, l.loop(softirq))
	return work, t
}

// pollCost returns what a busy poll takes at the instant t, with as many cores
// busy polling as this one was in the millisecond before.
func (l *lane) pollCost(t int64) int64 {
	const period = int64(time.Millisecond)
	if span := t - l.pollFrom; span >= period {
		share := min(1, float64(l.pollTime)/float64(span))
		l.busyCost = int64(float64(l.ns.busyPoll) / (1 - l.cost.BusyPollContention*share))
		l.pollFrom, l.pollTime = t, 0
	}
	return l.busyCost
}

// deliver makes the requests from a position on ready at t.
func (l *lane) deliver(from uint64, t int64) {
	for i := from; i < l.ready.tail; i++ {
		d := l.ready.at(i)
		d.polled = t
		if l.sampled(d.conn) {
			l.count.ringWait.Add(time.Duration(t-d.visible), 1)
		}
	}
}

// readyNow counts the requests that the thread can see now. While a softirq
// runs on another core, some of what it delivers is still to come.
func (l *lane) readyNow() int {
	n := l.ready.len()
	if !l.displaced || n == 0 || l.ready.at(l.ready.tail-1).polled <= l.now {
		return n
	}
	for n > 0 && l.ready.at(l.ready.head+uint64(n-1)).polled > l.now {
		n--
	}
	return n
}

// complete is napi_complete_done() and what drivers do on its return: keep the
// interrupt masked and arm the hrtimer, or arm the interrupt. It returns when it
// ended, packets being delivered before the timer is armed.
func (l *lane) complete(t int64, work int) int64 {
	if work > 0 {
		l.deferCount = l.knobs.DeferHardIRQs
	}
	if l.deferCount > 0 {
		l.deferCount--
		if l.flush > 0 {
			l.armTimer(t + l.flush)
			return t + l.ns.timerArm
		}
	}
	l.count.arms++
	l.rxArmed, l.txArmed = true, true
	l.armedAt = t
	l.moderate(t)
	return t
}

func (l *lane) armTimer(at int64) {
	l.timer, l.timerPaid = at, false
	l.loops.safety = false
	l.count.timerArms++
}
