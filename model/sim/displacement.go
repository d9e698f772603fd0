package sim

import (
	"math"
	"time"
)

// reschedule decides anew whether the thread runs away from its NAPI's core:
// once an epoch while it keeps running, ten times as often when it wakes, as
// the scheduler then chooses a core anyway.
func (l *lane) reschedule(woken bool) {
	s := &l.host.Scheduling
	if s.Probability == 0 || s.Epoch == 0 {
		return
	}
	epoch := int64(s.Epoch)
	switch {
	case woken:
		epoch /= 10
	case s.Hold > 0 && (l.napiAway && !l.displaced || l.flush > 0 && l.loops.starter == starterApplication):
		epoch = int64(s.Hold)
	}
	span := l.now - l.epochFrom
	if span < epoch {
		return
	}
	l.near.age(!l.napiAway, !l.displaced, span)
	utilisation := min(1, float64(l.busyTotal-l.epochBusy)/float64(span))
	l.utilisation += (utilisation - l.utilisation) * min(1, float64(span)/float64(s.Epoch))
	l.displace(l.random.float() <= s.Probability*math.Pow(l.utilisation, s.Exponent))
	l.epochFrom, l.epochBusy = l.now, l.busyTotal
	if !woken {
		l.catchUp(span)
	}
}

// catchUp has the NAPI follow a thread that busy polls elsewhere, if the thread
// gets ahead of the softirq in a span: what is left of the hrtimer's work is done
// by the thread's next busy poll.
func (l *lane) catchUp(span int64) {
	mean := float64(l.host.Scheduling.CatchUp)
	if mean == 0 || !l.displaced || l.napiAway || l.wait.BusyPoll == 0 || l.timer == never {
		return
	}
	if l.random.float()*mean < float64(span) {
		l.timer = never
		l.moveNAPI(true, l.now)
	}
}

// displace moves the thread to another core than its interrupt's, or back to
// that. Where its NAPI is it waits for what runs there. A thread that is away
// with its NAPI stays with it.
func (l *lane) displace(away bool) {
	l.threadAway = away
	displaced := away
	if l.napiAway {
		displaced = l.displaced || !away
	}
	if l.displaced && !displaced && l.softNow > l.now {
		l.now = l.softNow
	}
	if !l.displaced {
		l.softNow, l.foreignAt, l.foreignLast = l.now, never, l.now
	}
	l.displaced = displaced
	l.near.move(l.now, !l.napiAway, &l.random)
	// Packets leave through the queue of the core that sends them (XPS). The
	// completions that a NAPI sees are then those of the thread displaced to
	// its core: as many, at unrelated times.
	l.txLag = 0
	if away {
		l.txLag = int64(l.random.float() * float64(foreignLag))
		l.distance = l.ns.displacedNear
		if l.random.float() <= l.host.Scheduling.Far*math.Pow(l.utilisation, l.host.Scheduling.FarExponent) {
			l.distance = l.ns.displaced
		}
	}
}

// foreignLag is the longest time between what one queue's thread does and the
// same happening on another queue: beyond the period of any moderation.
const foreignLag = 200 * time.Microsecond

// disturb remembers an interrupt of this queue as one that the thread meets on
// the core that it was displaced to, where another queue of the same kind is
// served: at an unrelated time, and as long as its share of the load makes it.
// One that is still to come grows.
func (l *lane) disturb(start, until int64, work int) {
	if l.near.quiet {
		return
	}
	taken := int64(float64(until-start) * l.others)
	work = int(float64(work)*l.others + 0.5)
	l.foreignEvery += (start - l.foreignLast - l.foreignEvery) >> 3
	l.foreignLast = start
	if l.foreignAt != never && l.foreignAt > start {
		l.foreignFor += taken
		l.foreignWork += work
		l.foreignCount++
		return
	}
	l.foreignAt = start + int64(l.random.float()*float64(max(l.foreignEvery, 0)))
	l.foreignFor = taken
	l.foreignWork = work
	l.foreignCount = 1
}

// disturbed returns by when work that was to end at end does, the foreign
// interrupt in its way considered.
func (l *lane) disturbed(end int64) int64 {
	if l.foreignAt > end {
		return end
	}
	if l.foreignAt+l.foreignFor > l.now {
		taken := l.foreignAt + l.foreignFor - max(l.foreignAt, l.now)
		l.stolen += taken
		end += taken + l.ns.interference*l.foreignCount + l.ns.interferencePacket*int64(l.foreignWork)
	}
	l.foreignAt = never
	return end
}
