package sim

// accept takes the next packet off the wire into the receive ring. An
// open-loop arrival on a connection with a request outstanding stays with the
// client, which sends it when the response is there.
func (l *lane) accept() {
	var p packet
	if l.open <= l.flight.first() {
		p.at = l.open
		p.conn = l.arrive.connection(&l.random, len(l.conns))
		if l.arrive.single {
			p.conn = l.free(p.conn)
		}
		l.drawOpen(p.at)
		conn := &l.conns[p.conn]
		l.count.due++
		if conn.outstanding {
			conn.backlog++
			l.updateNext()
			return
		}
		conn.outstanding = true
		l.count.sent++
	} else {
		p = l.flight.pop()
	}
	l.updateNext()
	l.count.arrived++
	if l.ring.len() >= l.host.NIC.Ring {
		l.drop(p)
		return
	}
	if l.ring.len() == 0 {
		l.rxFirst = p.at
	}
	l.rxLast = p.at
	l.ring.push(p)
}

// mostTried is how many connections are looked at for one that is free.
const mostTried = 64

// free returns a connection without a request outstanding, from first on; first
// where none of the next is. A request that was seen to arrive came on such a
// one.
func (l *lane) free(first int32) int32 {
	n := int32(len(l.conns))
	for i := range min(n, mostTried) {
		if c := (first + i) % n; !l.conns[c].outstanding {
			return c
		}
	}
	return first
}

func (l *lane) drop(p packet) {
	l.count.dropped++
	if p.kind != packetRequest {
		return
	}
	conn := &l.conns[p.conn]
	l.flight.push(packet{at: p.at + int64(l.host.Client.Retry)<<min(conn.retries, 6), conn: p.conn})
	conn.retries++
	l.count.retried++
	l.updateNext()
}

// sent puts a packet that the thread sent at the instant at into the transmit
// ring, which completes in order.
func (l *lane) sent(at int64) {
	at += int64(l.host.NIC.TxDelay) + l.txLag
	if jitter := l.host.NIC.TxJitter; jitter > 0 {
		at += int64(float64(jitter) * l.random.exponential())
	}
	l.txLast = max(at, l.txLast)
	l.tx.push(l.txLast)
}

// interruptCause is what interrupts a core.
type interruptCause uint8

const (
	causeNone interruptCause = iota
	causeTimer
	causeRx
	causeTx
)

// interruptBefore returns the first interrupt at or before limit. Nothing is
// consumed but arrivals up to that instant.
func (l *lane) interruptBefore(limit int64) (int64, interruptCause) {
	if !l.rxArmed && !l.txArmed {
		if l.timer <= limit {
			return l.timer, causeTimer
		}
		return 0, causeNone
	}
	bound := min(limit, l.timer)
	for {
		at, cause := l.event()
		if l.next >= at || l.next > bound {
			switch {
			case at <= bound:
				return at, cause
			case l.timer <= limit:
				return l.timer, causeTimer
			}
			return 0, causeNone
		}
		l.accept()
	}
}

// event returns when the device will next interrupt for what has arrived and
// was sent, and for which of its two completion queues. Each is armed on its
// own, and its event disarms it. The time of transmit moderation runs from the
// last event, and anew when the queue is armed: so a poll that nobody was
// interrupted for puts the next interrupt off.
func (l *lane) event() (at int64, cause interruptCause) {
	at = never
	if n := l.ring.len(); n > 0 && l.rxArmed {
		from := l.rxFirst
		if l.host.NIC.RestartTimer {
			from = l.rxLast
		}
		at, cause = from+l.rxTime, causeRx
		if n >= l.rxPackets {
			at = min(at, l.rxLast)
		}
	}
	if n := l.tx.len(); n > 0 && l.txArmed {
		t := max(*l.tx.at(l.tx.head), max(l.txEventAt, l.armedAt)+l.txTime)
		if n >= l.txPackets {
			t = min(t, *l.tx.at(l.tx.head + uint64(l.txPackets-1)))
		}
		if t < at {
			at, cause = t, causeTx
		}
	}
	if cause != causeNone {
		at = max(at, l.armedAt)
	}
	return at, cause
}

// raised counts an event of the device at the instant at.
func (l *lane) raised(cause interruptCause, at int64) {
	l.count.irqs++
	l.irqAt = at
	if cause == causeRx {
		l.rxEvents++
		l.rxArmed = false
		return
	}
	l.txEvents++
	l.txEventAt = at
	l.txArmed = false
}

// moderate gives DIM the counters, as drivers do before arming the interrupt.
func (l *lane) moderate(now int64) {
	nic := &l.host.NIC
	rxNoise, txNoise := nic.RateNoise, nic.TxRateNoise
	if l.closed {
		rxNoise, txNoise = 0, 0
	}
	if nic.AdaptiveRx {
		if l.rxApplyAt <= now {
			p := rxCQEProfiles[l.rxDIM.profile]
			l.rxTime, l.rxPackets = p.time, p.packets
			l.rxApplyAt = never
			l.rxDIM.applied()
		}
		if l.rxDIM.update(dimSample{at: now, packets: l.rxCount, bytes: l.rxBytes, events: l.rxEvents}, rxNoise, &l.random) {
			l.rxApplyAt = now + int64(nic.ApplyDelay)
		}
	}
	if nic.AdaptiveTx {
		if l.txApplyAt <= now {
			p := txEQEProfiles[l.txDIM.profile]
			l.txTime, l.txPackets = p.time, p.packets
			l.txApplyAt = never
			l.txDIM.applied()
		}
		if l.txDIM.update(dimSample{at: now, packets: l.txCount, bytes: l.txCount * 200, events: l.txEvents}, txNoise, &l.random) {
			l.txApplyAt = now + int64(nic.ApplyDelay)
		}
	}
}
