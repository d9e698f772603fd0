package tuner

import (
	"time"

	"autotune/model"
)

// maxReference is the number of measurements kept to compare moves with.
const maxReference = 16

// maxKnown bounds the settings of which measurements are kept.
const maxKnown = 64

// queueState is what the loop knows of one queue.
type queueState struct {
	*knowledge
	queue  model.Queue
	napiID uint32
	// adopted tells that original and expected are set.
	adopted            bool
	original, expected model.Settings
	// wrote tells that the loop has changed the queue.
	wrote bool

	window model.Window
	settle int
	// madeFor is the load that the last move was made for.
	madeFor  float64
	prevRate float64
	// judgedAt is when a window last bore a decision, or the queue was taken;
	// unjudged counts the windows since.
	judgedAt time.Duration
	unjudged int
	outcome  model.Outcome

	trial *trial
	// trialEnd is the turn in which the last trial ended against its move or
	// without a verdict, trialLast that in which the last one began.
	trialEnd, trialLast int
	reference           []measure
	// credit counts the forecasts that held, promise is the one for the next
	// window, and audit the granted move that is watched.
	credit  int
	promise *promise
	audit   *audit
	// retry is what to go back to, after going back failed; maybe is what a
	// failed write may have left.
	retry, maybe *model.Settings
	breaches     int
	spikes       spikes
	// others is what else the CPU does.
	others  others
	atLimit bool
	yield   yield

	// lost is why the queue has dropped out; nil while it is tuned.
	lost        error
	absentSince time.Duration
	absent      bool
	failures    int
	retryAt     int

	last held
}

// held identifies the hold that was journalled last.
type held struct {
	valid   bool
	guard   string
	verdict model.Verdict
	from    model.Settings
	// proposed is what an order asks for; zero for a hold.
	proposed model.Settings
	// why an order was refused; empty otherwise, since what a guard says of a
	// hold has its measurements.
	why     string
	purpose model.Purpose
	at      time.Duration
}

// record is what was seen of one setting.
type record struct {
	measures []measure
	// loads are the half octaves of load at which it held.
	loads map[int]bool
	turn  int
}

// restart forgets what belongs to the settings before.
func (q *queueState) restart(t *turn) {
	q.dropTrial()
	q.promise, q.audit = nil, nil
	q.judgedAt, q.unjudged = t.sample.At, 0
	q.reference = q.reference[:0]
	q.breaches = 0
	q.spikes.late = 0
	q.settle, q.madeFor = max(0, t.loop.options.Trial.Settle), 0
	q.restartWindow(t)
}

func (q *queueState) restartWindow(t *turn) {
	q.window = model.Window{}
	if t != nil && t.rawPackets > 0 {
		q.prevRate = t.raw.PacketRate
	}
}

// dropTrial ends a trial without a verdict.
func (q *queueState) dropTrial() {
	if q.trial == nil {
		return
	}
	q.endTrial(model.VerdictAborted, "trial", q.expected)
}

func (q *queueState) endTrial(v model.Verdict, guard string, at model.Settings) {
	tr := q.trial
	q.trial = nil
	q.trialEnd = q.turns
	if v == model.VerdictKept {
		q.trialEnd = 0
	}
	q.outcome = model.Outcome{Verdict: v, Guard: guard, From: tr.anchor, To: at, Purpose: tr.purpose, CostChange: tr.costChange}
}

// note keeps a measurement of the active setting.
func (q *queueState) note(s model.Settings, m measure) {
	r := q.remember(s)
	if len(r.measures) >= maxReference {
		r.measures = append(r.measures[:0], r.measures[1:]...)
	}
	r.measures = append(r.measures, m)
	if q.trial != nil {
		return
	}
	if len(q.reference) >= maxReference/2 {
		q.reference = append(q.reference[:0], q.reference[1:]...)
	}
	q.reference = append(q.reference, m)
}

func (q *queueState) remember(s model.Settings) *record {
	r, ok := q.known[s]
	if !ok {
		if len(q.known) >= maxKnown {
			q.forget()
		}
		r = &record{loads: make(map[int]bool)}
		q.known[s] = r
	}
	r.turn = q.turns
	return r
}

// forget drops the setting that was seen the longest ago.
func (q *queueState) forget() {
	var oldest model.Settings
	var from *record
	for s, r := range q.known {
		if from == nil || r.turn < from.turn || r.turn == from.turn && less(s, oldest) {
			oldest, from = s, r
		}
	}
	delete(q.known, oldest)
}

func less(a, b model.Settings) bool {
	switch {
	case a.GROFlushTimeout != b.GROFlushTimeout:
		return a.GROFlushTimeout < b.GROFlushTimeout
	case a.IRQSuspendTimeout != b.IRQSuspendTimeout:
		return a.IRQSuspendTimeout < b.IRQSuspendTimeout
	case a.BusyPoll.Span != b.BusyPoll.Span:
		return a.BusyPoll.Span < b.BusyPoll.Span
	case a.BusyPoll.Budget != b.BusyPoll.Budget:
		return a.BusyPoll.Budget < b.BusyPoll.Budget
	case a.BusyPoll.Prefer != b.BusyPoll.Prefer:
		return b.BusyPoll.Prefer
	}
	return a.DeferHardIRQs < b.DeferHardIRQs
}

// confirm notes that a setting held at a load.
func (q *queueState) confirm(s model.Settings, rate float64) {
	q.remember(s).loads[loadIndex(rate)] = true
}

// held reports whether a setting held before: the original always, any other
// where it was confirmed at a load within half an octave.
func (q *queueState) held(s model.Settings, rate float64) bool {
	if s == q.original {
		return true
	}
	r, ok := q.known[s]
	if !ok {
		return false
	}
	i := loadIndex(rate)
	return r.loads[i] || r.loads[i-1] || r.loads[i+1]
}
