package sim

import (
	"math"
	"time"

	"autotune/model"
)

// step advances the lane by one action of its thread: a system call's part, a
// busy poll, one request, or a sleep until the next interrupt or limit.
func (l *lane) step(limit int64) {
	switch l.state {
	case threadCalling:
		l.reschedule(false)
		l.runThread(l.ns.epollWait)
		l.calledAt = l.now
		l.state = threadChecking
	case threadChecking:
		switch {
		case l.readyNow() > 0:
			l.takeEvents()
		case l.wait.Prefer || l.wait.BusyPoll > 0:
			l.spendThread(l.ns.busyEntry)
			l.busyUntil = l.now + int64(l.wait.BusyPoll)
			l.state = threadBusy
		default:
			l.sleep()
		}
	case threadBusy:
		l.busyPoll(limit)
	case threadAsleep:
		l.sleepUntil(limit)
	case threadProcessing:
		l.serve()
	}
}

// takeEvents returns from epoll_wait with what is ready. A context that
// prefers busy polling then suspends interrupts (ep_suspend_napi_irqs).
func (l *lane) takeEvents() {
	l.batch = min(l.readyNow(), l.wait.MaxEvents)
	l.events.wait(l.now, l.batch)
	l.count.waits[min(l.batch, model.WorkBuckets-1)]++
	l.count.waitCalls++
	l.count.waitEvents += uint64(l.batch)
	if l.batch == l.wait.MaxEvents {
		l.count.waitsFull++
	}
	if l.wait.Prefer && l.knobs.IRQSuspendTimeout > 0 {
		l.armTimer(l.now + int64(l.knobs.IRQSuspendTimeout))
		l.noteSuspension()
		l.spendThread(l.ns.timerArm + l.ns.suspend)
	}
	l.state = threadProcessing
	l.runThread(l.ns.epollEvent * int64(l.batch))
}

// sleep switches from the thread to idle, unless events came meanwhile.
func (l *lane) sleep() {
	l.runThread(l.ns.sleep)
	if l.readyNow() > 0 {
		l.state = threadChecking
		return
	}
	l.state = threadAsleep
	l.idle(l.now)
}

// idle makes the thread's core idle from the instant at on.
func (l *lane) idle(at int64) {
	l.count.idleExit += l.ns.idleEntry
	l.busyTotal += l.ns.idleEntry
	l.idleFrom = at + l.ns.idleEntry
}

// sleepUntil idles until the next interrupt, and wakes the thread when that
// brought an event.
func (l *lane) sleepUntil(limit int64) {
	wakeAt := int64(never)
	if l.wait.Timeout > 0 {
		wakeAt = l.calledAt + int64(l.wait.Timeout)
	}
	if l.ready.len() > 0 {
		// A softirq on another core has delivered meanwhile.
		l.wake(l.ready.at(l.ready.head).polled)
		return
	}
	at, cause := l.interruptBefore(min(limit, wakeAt))
	if cause == causeNone {
		l.now = max(l.now, min(limit, wakeAt))
		if wakeAt <= limit {
			l.count.waits[0]++
			l.count.waitCalls++
			l.events.wait(l.now, 0)
			l.runThread(l.ns.wake)
			l.state = threadCalling
		}
		return
	}
	idleSince := l.idleFrom
	if l.displaced {
		idleSince = l.softNow
	}
	start := idleSince
	if at > idleSince {
		start = at + l.idleExit(at-idleSince, cause)
	}
	if !l.displaced {
		start = max(start, l.now)
	}
	hardIRQ := l.count.hardIRQ
	scheduled := start
	if l.host.NIC.ScheduledBySender {
		scheduled = at
	}
	work, until := l.interrupt(cause, scheduled, start)
	l.count.softirqIdle += until - start
	l.count.hardIRQIdle += l.count.hardIRQ - hardIRQ
	l.softNow = until
	if l.displaced {
		l.disturb(start, until, work)
	} else {
		l.now = until
		if l.ready.len() == 0 {
			l.idle(until)
		}
	}
	if l.ready.len() > 0 {
		l.wake(l.ready.at(l.ready.head).polled)
	} else {
		l.now = max(l.now, at)
	}
}

// idleExit spends the time that a core idle for so long takes to leave its
// idle state for an interrupt, or for a thread without one, and returns it.
func (l *lane) idleExit(idle int64, cause interruptCause) int64 {
	exit := l.ns.idleExit
	if cause == causeRx || cause == causeTx {
		exit += l.ns.idleExitNIC
	}
	if l.ns.idleDeep > 0 && idle > 0 {
		exit += int64(float64(l.ns.idleDeep) * (1 - math.Exp(-float64(idle)/float64(l.cost.IdleDeepTime))))
	}
	l.count.idleExit += exit
	l.busyTotal += exit
	return exit
}

// wake runs the sleeping thread, for an event that became ready at the instant
// ready. On another core than the softirq's that core leaves idle first.
func (l *lane) wake(ready int64) {
	if !l.displaced || l.softNow <= ready {
		l.reschedule(true)
	}
	if l.displaced {
		l.now = max(l.now, ready) + l.idleExit(ready-l.idleFrom, causeNone)
	}
	l.sinceIdle = 0
	l.runThread(l.ns.wake)
	l.state = threadChecking
}

// busyPoll polls once from epoll_wait, passes over the empty polls until the
// next packet, and leaves when there are events or time is up.
func (l *lane) busyPoll(limit int64) {
	l.pass(l.disturbedNear(l.now))
	if l.softNow > l.now {
		// Another core's softirq has the NAPI.
		l.spendThread(l.softNow - l.now)
		if l.readyNow() > 0 {
			l.state = threadChecking
			return
		}
	}
	if l.host.Host.ThreadedNAPI && l.scheduled() {
		l.spendThread(max(l.ns.busyPoll, l.busyUntil-l.now))
		l.sleep()
		return
	}
	if l.timer <= l.now {
		// The hrtimer finds the NAPI taken and does nothing.
		l.timer = never
		l.count.timerFires++
		l.spendThread(l.ns.interrupt)
	}
	event, cause := l.event()
	work, until := l.poll(l.now, l.wait.Budget, l.rxArmed || l.txArmed, false)
	if event <= until {
		// An interrupt that was still armed finds the NAPI taken.
		l.raised(cause, event)
		until += l.ns.interrupt + l.ns.interruptNIC
	}
	if l.ready.len() == 0 && work == 0 && until < l.busyUntil && until < l.next {
		cost := max(l.busyCost, 1)
		gap := min(l.next, l.busyUntil, max(limit, until), l.timer) - until
		if n := (gap + cost - 1) / cost; n > 0 {
			l.events.emptyPolls(until, cost, n)
			until += n * cost
			l.count.busyPolls.Polls += uint64(n)
			l.count.busyPolls.Empty += uint64(n)
			l.count.work[0] += uint64(n)
			l.pollTime += n * cost
		}
	}
	l.spendThread(until - l.now)
	if l.ready.len() == 0 && l.now < l.busyUntil {
		return
	}
	l.stopBusyPoll()
	switch {
	case l.ready.len() > 0:
		l.state = threadChecking
	case l.wait.Timeout > 0 && l.now >= l.calledAt+int64(l.wait.Timeout):
		l.count.waits[0]++
		l.count.waitCalls++
		l.events.wait(l.now, 0)
		l.state = threadCalling
	default:
		if l.wait.Prefer && l.knobs.IRQSuspendTimeout > 0 {
			// napi_resume_irqs(): loop 2 takes over at once.
			l.softirqFromThread()
		}
		if l.ready.len() > 0 {
			l.state = threadChecking
			return
		}
		l.sleep()
	}
}

// scheduled reports whether the NAPI waits for its kernel thread, which has not
// run yet because the application's keeps the core. It is then not to be had
// for busy polling (NAPIF_STATE_SCHED in __napi_busy_loop()).
func (l *lane) scheduled() bool {
	_, cause := l.interruptBefore(l.now)
	return cause != causeNone
}

// stopBusyPoll is busy_poll_stop(): with prefer_busy_poll the hrtimer takes
// the NAPI over; one more poll is made in any case.
func (l *lane) stopBusyPoll() {
	skipSchedule := false
	if l.wait.Prefer {
		l.deferCount = l.knobs.DeferHardIRQs
		if l.deferCount > 0 && l.flush > 0 {
			skipSchedule = true
			// The hrtimer is pinned to the core that it is armed on, and with
			// it the softirq.
			l.displaced = false
			l.moveNAPI(l.threadAway && l.host.Scheduling.CatchUp > 0, l.now)
		}
	}
	work, until := l.poll(l.now, l.wait.Budget, false, false)
	full := work == l.wait.Budget
	switch {
	case !full:
		until = l.complete(until, work)
	case skipSchedule:
		l.armTimer(l.now + l.flush)
		until += l.ns.timerArm
	}
	l.spendThread(until - l.now)
	if full && !skipSchedule {
		l.softirqFromThread()
	}
}

// softirqFromThread runs the NET_RX softirq as local_bh_enable() does.
func (l *lane) softirqFromThread() {
	_, until := l.softirq(l.now+l.ns.raise, false)
	l.count.softirq += until - l.now
	l.busyTotal += until - l.now
	l.now = until
}

// serve reads one request, works on it and sends the response.
func (l *lane) serve() {
	if l.batch == 0 {
		l.state = threadCalling
		return
	}
	l.batch--
	d := l.ready.pop()
	k := &l.ns
	work := k.requestSystem + k.requestUser
	switch shape := l.cost.ServiceShape; {
	case l.cost.ExponentialService:
		work = k.requestSystem + int64(float64(k.requestUser)*l.random.exponential())
	case len(shape) > 0:
		work = int64(float64(work) * shape[l.random.below(uint32(len(shape)))])
	}
	work += int64(k.reuse[min(l.rxCount-d.sequence, uint64(len(k.reuse)-1))])
	work += int64(k.cold[min(l.sinceIdle, len(k.cold)-1)])
	if l.displaced && d.softirq {
		work += l.distance
	}
	l.sinceIdle++
	read := l.now
	l.runThread(work)
	l.respond(d, read)
}

// respond sends the response to d, which the thread read at read, and plays
// the client's part: the latency it sees, its acknowledgement, and its next
// request.
func (l *lane) respond(d delivered, read int64) {
	client := &l.host.Client
	c := &l.count
	if l.sampled(d.conn) {
		c.socketWait.Add(time.Duration(read-d.polled), 1)
		c.service.Add(time.Duration(l.now-read), 1)
		c.delay.Add(time.Duration(l.now-d.visible), 1)
		l.events.request(d.polled, read, l.now)
	}
	c.served++
	l.txCount++
	l.sent(l.now)

	trip := int64(client.RoundTrip)
	if jitter := float64(client.Jitter) + float64(client.JitterLoad)*l.loadMps; jitter > 0 {
		trip += int64(jitter * l.random.exponential())
	}
	share := l.bumpShare()
	for share > 0 && l.random.float() <= share {
		trip += int64(client.Bump)
		if client.BumpJitter > 0 {
			trip += int64(float64(client.BumpJitter) * (2*l.random.float() - 1))
		}
	}
	c.latency.add(l.now - d.sent + trip)
	if l.atClient && l.sampled(d.conn) {
		c.client.Add(time.Duration(l.now-d.sent+trip), 1)
	}

	back := l.now + trip
	if client.ACKShare >= 1 || l.random.float() <= client.ACKShare {
		l.flight.push(packet{at: back, conn: d.conn, kind: packetACK})
	}
	conn := &l.conns[d.conn]
	conn.retries = 0
	switch {
	case l.closed:
		c.due++
		c.sent++
		l.flight.push(packet{at: back + int64(client.Think), conn: d.conn})
	case conn.backlog > 0:
		conn.backlog--
		c.sent++
		l.flight.push(packet{at: back, conn: d.conn})
	default:
		conn.outstanding = false
	}
	l.updateNext()
}

// runThread spends d of the thread's time, and more where interrupts get in
// its way: those of its own NAPI, or, when it runs on another queue's core,
// those of that queue.
func (l *lane) runThread(d int64) {
	if l.host.Host.ThreadedNAPI {
		if l.timer > l.now && l.timer <= l.now+d {
			d += l.ns.interrupt + l.ns.interruptTimer
			l.timerPaid = true
		}
		l.spendThread(d)
		return
	}
	end := l.now + d
	for {
		at, cause := l.interruptBefore(end)
		if cause == causeNone {
			break
		}
		if l.displaced {
			start := max(at, l.softNow)
			work, until := l.interrupt(cause, start, start)
			l.softNow = until
			l.disturb(start, until, work)
			end = l.disturbed(end)
			continue
		}
		at = max(at, l.now)
		l.spendThread(at - l.now)
		work, until := l.interrupt(cause, at, at)
		until += l.ns.softirqCold
		l.count.softirq += l.ns.softirqCold
		l.busyTotal += l.ns.softirqCold
		l.now, l.softNow = until, until
		end += until - at + l.ns.interference + l.ns.interferencePacket*int64(work)
	}
	if l.displaced {
		end = l.disturbed(end)
	} else {
		end = l.disturbedNear(end)
	}
	l.pass(end)
}

// pass lets the time until end go by, which is the thread's but for what was
// stolen of it.
func (l *lane) pass(end int64) {
	l.spendThread(end - l.now - l.stolen)
	l.now += l.stolen
	l.stolen = 0
}

func (l *lane) spendThread(d int64) {
	l.now += d
	l.count.thread += d
	l.busyTotal += d
}

// bumpShare is the share of responses that the client sees late.
func (l *lane) bumpShare() float64 {
	return min(0.5, l.host.Client.BumpShare+l.host.Client.BumpShareLoad*l.loadMps)
}
