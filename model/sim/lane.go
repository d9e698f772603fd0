package sim

import (
	"math"

	"autotune/model"
)

// never is later than any simulated instant.
const never = math.MaxInt64 / 4

// threadState is where the application thread of a lane is.
type threadState uint8

const (
	threadCalling    threadState = iota // about to call epoll_wait
	threadChecking                      // in epoll_wait, looking for ready events
	threadBusy                          // in epoll_wait, busy polling
	threadAsleep                        // in epoll_wait, asleep
	threadProcessing                    // serving the events of its last call
)

// delivered is a request in its socket, ready to be read.
type delivered struct {
	sent     int64 // arrival at the NIC
	visible  int64 // arrival as the host can know it: not before its interrupt
	polled   int64 // end of the poll that delivered it
	sequence uint64
	conn     int32
	softirq  bool
}

// connection is a client's side of one connection.
type connection struct {
	backlog     uint32 // requests due while one is outstanding
	outstanding bool
	retries     uint8
}

// lane is one receive queue with its NAPI instance, core, application thread
// and connections. Its clock is the core's: work advances it, and everything
// that could interrupt the work is looked at before.
type lane struct {
	now  int64
	cost *CostModel
	ns   costs
	host *Preset
	// own is how the application waits by itself, wait what is in force.
	own   Wait
	wait  Wait
	knobs model.Settings
	flush int64
	// sampleEvery is one in how many connections has its delays measured.
	sampleEvery int32
	// atClient has the client's latencies of those measured too.
	atClient bool

	random  random
	arrive  arrivals
	open    int64 // next open-loop arrival at the NIC
	flight  flight
	next    int64 // earliest of open and flight
	conns   []connection
	closed  bool
	loadMps float64 // host's offered load now, million requests/s

	ring  fifo[packet]
	ready fifo[delivered]

	// NIC moderation.
	rxArmed, txArmed     bool
	armedAt              int64
	irqAt                int64 // last interrupt, bounds what the host can know of waits
	rxTime               int64
	rxPackets            int
	rxFirst              int64
	rxLast               int64
	txTime               int64
	txPackets            int
	tx                   fifo[int64] // instants at which sent packets complete
	txLast               int64
	txEventAt            int64 // last interrupt for transmit completions
	rxDIM, txDIM         dim
	rxApplyAt, txApplyAt int64
	rxCount, rxBytes     uint64
	txCount              uint64
	rxEvents, txEvents   uint64

	// NAPI.
	timer int64
	// timerPaid tells that the thread, which it interrupted, has paid for the
	// hrtimer's interrupt, while the NAPI's own waits for the core.
	timerPaid  bool
	deferCount uint32
	loops      loops

	// Thread.
	state     threadState
	batch     int // events of the current call not yet served
	calledAt  int64
	busyUntil int64
	// What a busy poll takes now, and the time in empty ones since pollFrom.
	busyCost, pollTime, pollFrom int64
	idleFrom                     int64 // when the thread went to sleep, or its core back to idle
	sinceIdle                    int   // requests served since the core was idle
	// displaced is whether the thread runs on another core than its NAPI's
	// softirq, which then has a clock of its own.
	displaced bool
	// threadAway is whether the thread runs on another core than the NAPI's
	// interrupt, napiAway whether the NAPI's hrtimer and softirq do, since a
	// thread has armed it there.
	threadAway, napiAway bool
	near                 neighbourhood
	distance             int64 // what a request costs more then
	softNow              int64
	// The next interrupt of the queue on whose core the thread runs, the time
	// that such interrupts took from the present piece of work, and how far
	// apart they are.
	foreignAt, foreignFor     int64
	foreignWork               int
	others                    float64 // load of the mean queue relative to this one's
	foreignCount              int64
	foreignLast, foreignEvery int64
	stolen                    int64
	txLag                     int64
	utilisation               float64
	epochFrom                 int64
	epochBusy                 int64
	busyTotal                 int64 // CPU time spent, idle exits included

	// events takes single events where they are wanted; nil takes none.
	events *laneEvents

	count counters
}

func newLane(p *Preset, c Case, connections int, arrive arrivals, stream random) *lane {
	l := &lane{
		cost: &p.Cost, ns: newCosts(&p.Cost), host: p, own: c.Wait.withDefaults(), sampleEvery: 1,
		random: stream, arrive: arrive, conns: make([]connection, connections),
		timer: never, foreignAt: never, rxApplyAt: never, txApplyAt: never,
		rxTime: int64(p.NIC.RxTime), rxPackets: p.NIC.RxPackets,
		txTime: int64(p.NIC.TxTime), txPackets: p.NIC.TxPackets,
		rxArmed: true, txArmed: true, closed: arrive.closed,
	}
	l.rxDIM.profile, l.txDIM.profile = dimStartProfile, dimStartProfile
	if p.NIC.AdaptiveRx {
		l.rxTime, l.rxPackets = rxCQEProfiles[dimStartProfile].time, rxCQEProfiles[dimStartProfile].packets
	}
	if p.NIC.AdaptiveTx {
		l.txTime, l.txPackets = txEQEProfiles[dimStartProfile].time, txEQEProfiles[dimStartProfile].packets
	}
	l.busyCost = l.ns.busyPoll
	l.near.homeShare = 1
	l.loops.suspendedAt = never
	mean := float64(p.Host.Connections) / float64(p.Host.Queues)
	l.others = mean / float64(connections)
	l.set(c.NAPI)
	l.open = never
	if l.closed {
		spread := float64(p.Client.RoundTrip+p.Client.Think) + 1e6
		for i := range l.conns {
			l.conns[i].outstanding = true
			l.flight.push(packet{at: int64(spread * l.random.float()), conn: int32(i)})
		}
		l.count.sent += uint64(len(l.conns))
	} else {
		l.drawOpen(0)
	}
	l.updateNext()
	return l
}

// set changes the NAPI's knobs, which take effect as the kernel reads them:
// the next time that a timer is armed. Busy polling follows the settings where
// they say something of it, and is the application's own choice otherwise.
func (l *lane) set(s model.Settings) {
	l.knobs = s
	l.flush = int64(s.GROFlushTimeout)
	l.wait = l.own
	if b := s.BusyPoll; b != (model.BusyPoll{}) {
		l.wait.BusyPoll, l.wait.Budget, l.wait.Prefer = b.Span, int(b.Budget), b.Prefer
		l.wait = l.wait.withDefaults()
	}
}

// sampled reports whether the connection's delays are measured.
func (l *lane) sampled(conn int32) bool { return l.sampleEvery == 1 || conn%l.sampleEvery == 0 }

func (l *lane) drawOpen(from int64) {
	l.open, l.loadMps = l.arrive.next(from, &l.random)
}

func (l *lane) updateNext() { l.next = min(l.open, l.flight.first()) }
