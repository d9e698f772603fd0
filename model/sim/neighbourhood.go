package sim

// neighbourhood is what a thread meets on another queue's core. That queue's
// softirqs are there only while its NAPI is where its interrupt is; they are
// taken to be as this queue's own are then.
type neighbourhood struct {
	// homeShare is the share of time that a NAPI is where its interrupt is, and
	// ownShare that of it with its own thread there.
	homeShare, ownShare float64
	// quiet is whether the core has none of another queue's softirqs. A NAPI
	// whose thread is on such a core has more to do.
	quiet bool
	// at is which of softirqs the thread meets: those of a queue whose thread is
	// on a core with softirqs, or on a quiet one.
	at       int
	softirqs [2]softirqMeans
	from     int64
}

// homePeriod is the time constant of homeShare, in ns.
const homePeriod = 200e6

// age takes a span in which the NAPI was where its interrupt is, or was not, and
// its thread with it.
func (n *neighbourhood) age(home, own bool, span int64) {
	weight := min(1, float64(span)/homePeriod)
	n.homeShare += (share(home) - n.homeShare) * weight
	n.ownShare += (share(home && own) - n.ownShare) * weight
}

func share(all bool) float64 {
	if all {
		return 1
	}
	return 0
}

// busy returns the chance that a thread on another queue's core meets its
// softirqs there: no two threads are on one core, so that those with their own
// threads do not count.
func (n *neighbourhood) busy() float64 {
	if n.ownShare >= 1 {
		return 1
	}
	return (n.homeShare - n.ownShare) / (1 - n.ownShare)
}

// move draws what there is on the core that the thread has moved to.
func (n *neighbourhood) move(now int64, home bool, r *random) {
	n.current(now, home)
	n.quiet, n.at = false, 0
	if n.homeShare < 1 {
		busy := n.busy()
		n.quiet = r.float() > busy
		if r.float() > busy {
			n.at = 1
		}
	}
}

// current returns the means that a softirq at the instant now belongs to. Their
// clock goes while the NAPI is where its interrupt is; home tells whether it has
// been.
func (n *neighbourhood) current(now int64, home bool) *softirqMeans {
	m := &n.softirqs[0]
	if n.quiet {
		m = &n.softirqs[1]
	}
	if home {
		m.clock += now - n.from
	}
	n.from = now
	return m
}

// softirqMeans are moving averages of softirqs: how far apart they begin, how
// long they take and how many packets they bring.
type softirqMeans struct {
	clock, last, every, length int64
	work                       float64
}

func (m *softirqMeans) note(length int64, work int) {
	m.every += (m.clock - m.last - m.every) >> 4
	m.last = m.clock
	m.length += (length - m.length) >> 4
	m.work += (float64(work) - m.work) / 16
}

// moveNAPI notes that the NAPI is on the thread's core and not its interrupt's,
// or back at that, from the instant at on.
func (l *lane) moveNAPI(away bool, at int64) {
	l.near.current(at, !l.napiAway)
	l.napiAway = away
}

// disturbedNear returns by when work that was to end at end does, where a thread
// that is away with its NAPI meets the softirqs of the queue whose core it is on.
func (l *lane) disturbedNear(end int64) int64 {
	m := &l.near.softirqs[l.near.at]
	if !l.napiAway || l.displaced || l.near.quiet || m.length == 0 {
		return end
	}
	// A queue that had none for long will have few.
	every := max(m.every, (m.clock-m.last)/4)
	if l.foreignAt == never {
		l.foreignAt = l.now + int64(l.random.float()*float64(every))
	}
	taken := int64(float64(m.length) * l.others)
	meets := l.ns.interference + l.ns.interferencePacket*int64(m.work)
	for l.foreignAt <= end {
		l.stolen += taken
		end += taken + meets
		l.foreignAt = max(l.foreignAt, l.now) + max(every, taken+taken/8+meets+1)
	}
	return end
}
