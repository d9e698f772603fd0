package tuner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"autotune/model"
)

// ErrNoQueue is wrapped by the error that ends a run when no queue is left to
// tune. That error is a [*LostError].
var ErrNoQueue = errors.New("no queue is left to tune")

// LostError names every queue of a run and why it dropped out.
type LostError struct {
	Queues []error
}

func (e *LostError) Error() string {
	parts := make([]string, len(e.Queues))
	for i, err := range e.Queues {
		parts[i] = err.Error()
	}
	return fmt.Sprintf("%v: %s", ErrNoQueue, strings.Join(parts, "; "))
}

// Unwrap returns ErrNoQueue and the error of each queue.
func (e *LostError) Unwrap() []error { return append([]error{ErrNoQueue}, e.Queues...) }

// Loop decides for a set of queues, window by window. It is not safe for
// concurrent use.
type Loop struct {
	options Options
	need    uint64
	ordered bool
	serving map[model.Queue]map[int]bool
	queues  map[model.Queue]*queueState
	order   []*queueState
	all     bool
	granted int
	// guards in the order of the package documentation, outermost first.
	guards []guard
}

// New returns a loop. It checks the options, and touches neither source nor
// actuator.
func New(o Options) (*Loop, error) {
	switch {
	case o.Policy == nil:
		return nil, errors.New("tuner: a policy must be set")
	case o.Objective.SLO <= 0:
		return nil, fmt.Errorf("tuner: an SLO of %v cannot be met; it must be positive", o.Objective.SLO)
	case !(o.Objective.Quantile > 0 && o.Objective.Quantile < 1):
		return nil, fmt.Errorf("tuner: the SLO quantile %v is not between 0 and 1", o.Objective.Quantile)
	case o.Bounds.MaxFlush < 0 || o.Bounds.MaxSuspend < 0:
		return nil, fmt.Errorf("tuner: negative bounds: flush %v, suspend %v", o.Bounds.MaxFlush, o.Bounds.MaxSuspend)
	case o.SLO.Confirm < 0:
		return nil, fmt.Errorf("tuner: %d windows cannot confirm a breach of the SLO", o.SLO.Confirm)
	}
	l := &Loop{
		options: o.withDefaults(),
		serving: make(map[model.Queue]map[int]bool, len(o.CPUs)),
		queues:  make(map[model.Queue]*queueState),
		all:     len(o.Queues) == 0,
		guards: []guard{
			evidenceGuard{}, ownershipGuard{}, readinessGuard{}, boundsGuard{}, stepLimitGuard{},
			cooldownGuard{}, trialGuard{}, tripwireGuard{}, breakerGuard{}, sloGuard{},
		},
	}
	if l.options.Memory == nil {
		l.options.Memory = NewMemory()
	}
	l.options.Trial.Windows = min(l.options.Trial.Windows, maxReference)
	l.need = uint64(math.Ceil(float64(l.options.Evidence.Above) / (1 - o.Objective.Quantile) * (1 - 1e-9)))
	if p, ok := o.Policy.(interface{ NeedsEvidence() bool }); ok {
		l.ordered = !p.NeedsEvidence()
	}
	for q, cpus := range o.CPUs {
		l.serving[q] = make(map[int]bool, len(cpus))
		for _, c := range cpus {
			l.serving[q][c] = true
		}
	}
	for _, q := range o.Queues {
		l.add(q)
	}
	return l, nil
}

func (l *Loop) add(q model.Queue) {
	if l.queues[q] != nil {
		return
	}
	s := &queueState{queue: q, knowledge: l.options.Memory.of(q)}
	l.queues[q] = s
	i, _ := slices.BinarySearchFunc(l.order, q, func(s *queueState, q model.Queue) int { return s.queue.Compare(q) })
	l.order = slices.Insert(l.order, i, s)
}

// Run steps through the source until it ends: io.EOF gives nil, the end of ctx
// its error, and a failure of the source, the actuator or the journal as a
// whole that failure. It ends with a [*LostError] when no queue is left. It
// never restores settings: whoever made the actuator does.
func (l *Loop) Run(ctx context.Context) error {
	if l.options.Source == nil {
		return errors.New("tuner: a source must be set to run")
	}
	for {
		s, err := l.options.Source.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read sample: %w", err)
		}
		if err := l.Step(ctx, s); err != nil {
			return err
		}
	}
}

// Step decides upon one sample, for every queue, and applies what follows. Its
// errors are those of [Loop.Run].
func (l *Loop) Step(ctx context.Context, s model.Sample) error {
	if l.all {
		for q := range s.Active {
			l.add(q)
		}
	}
	turns := l.begin(&s)
	desired := make(model.Config)
	rulings := make(map[model.Queue]ruling, len(turns))
	for _, t := range l.fair(turns) {
		if t.skip {
			rulings[t.q.queue] = *t.asked
			continue
		}
		t.look()
		r := l.chain(t, 0)
		if r.moves() && r.settings == t.active {
			// A guard changed the move into none.
			r.verdict = model.VerdictHeld
			r.trial = trialNone
		}
		if r.moves() {
			if err := l.options.Bounds.Check(r.settings); err != nil {
				// Going back may lead outside the bounds, where the originals
				// were.
				r = t.deny(r, model.VerdictRefused, "bounds", err.Error())
			}
		}
		if r.moves() && l.options.Actuator != nil {
			desired[t.q.queue] = r.settings
		}
		if r.trial == trialBegin && r.purpose != model.PurposeSafety {
			l.granted++
		}
		rulings[t.q.queue] = r
	}
	var readback model.Config
	var failed map[model.Queue]*model.QueueError
	var fatal error
	if len(desired) > 0 {
		var err error
		readback, err = l.options.Actuator.Apply(ctx, desired)
		failed, fatal = split(err)
	}
	for _, t := range turns {
		r := l.settle(t, rulings[t.q.queue], readback, failed, fatal)
		for _, e := range t.entries {
			if err := l.record(e); err != nil {
				return err
			}
		}
		if err := l.recordThinned(t, r); err != nil {
			return err
		}
	}
	if fatal != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("apply settings: %w", fatal)
	}
	return l.remaining()
}

// chain passes a turn through the guards from the i-th on.
func (l *Loop) chain(t *turn, i int) ruling {
	if i == len(l.guards) {
		return t.ask()
	}
	t.seen.asked = max(t.seen.asked, i+1)
	var inner ruling
	reached := false
	r := l.guards[i].rule(t, func() ruling {
		reached, inner = true, l.chain(t, i+1)
		return inner
	})
	t.seen.verdicts[i] = verdictOf(r, inner, reached)
	t.seen.breaches = t.q.breaches
	return r
}

// fair returns the turns in the order in which they may claim a trial: who had
// one the longest ago is first.
func (l *Loop) fair(turns []*turn) []*turn {
	out := slices.Clone(turns)
	slices.SortStableFunc(out, func(a, b *turn) int { return a.q.trialLast - b.q.trialLast })
	return out
}

// onTrial counts the queues whose trial seeks cost or knowledge.
func (l *Loop) onTrial() int {
	return l.granted
}

// begin makes the turns of the queues that can be decided upon.
func (l *Loop) begin(s *model.Sample) []*turn {
	byQueue := make(map[model.Queue]*model.QueueSample, len(s.Queues))
	for i := range s.Queues {
		byQueue[s.Queues[i].Queue] = &s.Queues[i]
	}
	costs := model.Costs(s)
	l.granted = 0
	turns := make([]*turn, 0, len(l.order))
	for _, q := range l.order {
		q.turns++
		if q.trial != nil && q.trial.purpose != model.PurposeSafety {
			l.granted++
		}
		t := &turn{loop: l, q: q, sample: s, queue: byQueue[q.queue], ordered: l.ordered}
		turns = append(turns, t)
		active, ok := s.Active[q.queue]
		if !ok {
			l.missing(t)
			continue
		}
		t.active = active
		l.observe(t, costs)
		l.adopt(t)
	}
	return turns
}

// missing handles a queue without a read-back.
func (l *Loop) missing(t *turn) {
	q, s := t.q, t.sample
	t.active = q.expected
	reason := s.Absent[q.queue]
	if reason == "" {
		reason = "no read-back"
	}
	if !q.absent {
		q.absent, q.absentSince = true, s.At
		q.dropTrial()
	}
	why := fmt.Sprintf("absent: %s", reason)
	// A link that is down comes back, however long it takes.
	down := strings.Contains(reason, model.ErrLinkDown.Error())
	if gone := s.At - q.absentSince; gone >= l.options.Absence && q.lost == nil && !down {
		q.lost = &model.QueueError{Queue: q.queue, Op: "read back", Err: fmt.Errorf("%s for %v: %w", reason, gone, model.ErrGone)}
		why = q.lost.Error()
	}
	r := t.hold("loop", why)
	r.verdict = model.VerdictFailed
	t.asked = &r
	t.skip = true
}

// adopt takes over a queue that is new, or whose NAPI was made again.
func (l *Loop) adopt(t *turn) {
	q := t.q
	id := q.napiID
	if now := t.sample.NAPIIDs[q.queue]; now != 0 {
		id = now
	} else if t.queue != nil && t.queue.NAPIID != 0 {
		id = t.queue.NAPIID
	}
	renewed := q.adopted && (q.absent || id != q.napiID && q.napiID != 0)
	was := q.napiID
	q.napiID = id
	switch {
	case !q.adopted:
		q.adopted, q.absent = true, false
		q.original, q.expected = t.active, t.active
		q.judgedAt, q.unjudged = t.sample.At, 0
	case renewed:
		why := fmt.Sprintf("the queue is back as NAPI %d (was %d) and reads %v", id, was, t.active)
		// The kernel made or kept the values, not another writer.
		q.wrote = q.wrote && t.active == q.expected
		q.expected = t.active
		q.absent = false
		if !errors.Is(q.lost, model.ErrReadOnly) {
			q.lost = nil
			q.yield.held = false
		}
		q.failures, q.retryAt = 0, 0
		q.maybe, q.retry = nil, nil
		q.restart(t)
		r := t.hold("loop", why)
		t.asked, t.skip = &r, true
		return
	case l.options.Actuator == nil:
		if t.active != q.expected {
			q.expected = t.active
			q.restart(t)
		}
	}
	if q.maybe != nil {
		// A write failed without telling what became of it.
		if t.active == *q.maybe {
			q.expected = t.active
			q.wrote = true
		}
		q.maybe = nil
	}
	switch {
	case errors.Is(q.lost, model.ErrReadOnly), q.lost != nil && !q.yield.held:
		r := t.hold("loop", q.lost.Error())
		r.verdict = model.VerdictFailed
		t.asked, t.skip = &r, true
	case q.turns < q.retryAt:
		r := t.hold("loop", fmt.Sprintf("the kernel refused %s; trying again in %s", model.Count(q.failures, "time"), model.Count(q.retryAt-q.turns, "window")))
		t.asked, t.skip = &r, true
	}
}

// observe condenses what the sample tells of the queue.
func (l *Loop) observe(t *turn, costs map[model.Queue]time.Duration) {
	q, s := t.q, t.sample
	part := model.WindowPart{At: s.At, Span: s.Span, Queue: t.queue, Utilisation: l.utilisation(s, q.queue, t.queue)}
	if c, ok := costs[q.queue]; ok {
		part.Cost = &c
	}
	switch {
	case t.queue != nil && t.queue.Delay != nil:
		part.Delay = t.queue.Delay
	case s.Latency != nil:
		part.Delay = &s.Latency.Histogram
	}
	var single model.Window
	single.Add(part)
	t.raw = single.Features(q.queue, t.active, l.options.Objective, q.prevRate)
	t.raw.Suspension = t.suspension()
	t.rawPackets = single.Packets()
	_, _, stolen := l.stolen(s, q.queue)
	if !stolen && s.Lost == 0 {
		t.judgeOthers(part)
	}
	stolen = stolen || t.taken > 0
	switch {
	case l.ordered:
		q.window = single
	case s.Lost > 0 || stolen:
	case q.settle > 0:
		q.settle--
		t.settling = true
		q.window = model.Window{}
		q.prevRate = t.raw.PacketRate
	default:
		const countable = 100
		if have := q.window.Rate(); q.window.Packets() >= countable && t.rawPackets >= countable &&
			math.Abs(math.Log(t.raw.PacketRate/have)) > math.Log(1.5) {
			// Two loads in one window would describe neither.
			q.prevRate = have
			q.window = model.Window{}
		}
		q.window.Add(part)
	}
	t.merged = q.window.Features(q.queue, t.active, l.options.Objective, q.prevRate)
	t.merged.Suspension = t.raw.Suspension
	if t.settling || q.window.Windows() == 0 {
		t.merged = t.raw
	}
	q.unjudged++
	if l.ordered || t.settling || s.Lost > 0 || stolen || q.window.DelaySamples() < l.need {
		return
	}
	t.enough = true
	q.judgedAt, q.unjudged = s.At, 0
	if q.expected != t.active && q.adopted {
		return
	}
	q.note(t.active, measureOf(&t.merged, q.window.Packets()))
	if q.trial != nil {
		return
	}
	similar := 0
	var ms []measure
	for _, m := range q.reference {
		if t.similar(m.rate) {
			similar++
			ms = append(ms, m)
		}
	}
	if similar >= min(l.options.Trial.Reference, maxReference/2) && !breaching(ms, l.options.Objective.SLO) {
		q.confirm(t.active, t.merged.PacketRate)
	}
}

// servedBy returns which CPUs served a queue, and whether that is known: those
// that polled it in the span, which interrupts and threads may leave for others
// at any time, or else those that the run began with.
func (l *Loop) servedBy(q model.Queue, qs *model.QueueSample) (serving map[int]bool, known bool) {
	if qs == nil || len(qs.CPUs) == 0 {
		serving, known = l.serving[q]
		return serving, known
	}
	serving = make(map[int]bool, len(qs.CPUs))
	for _, cpu := range qs.CPUs {
		serving[cpu] = true
	}
	return serving, true
}

// utilisation returns the busiest share of the CPUs that serve the queue.
func (l *Loop) utilisation(s *model.Sample, q model.Queue, qs *model.QueueSample) float64 {
	serving, listed := l.servedBy(q, qs)
	softirq := qs != nil && qs.Softirq.Packets > 0
	best := math.NaN()
	for i := range s.CPUs {
		c := &s.CPUs[i]
		if listed && !serving[c.CPU] {
			continue
		}
		if !listed && (!softirq || c.NetRX == nil || *c.NetRX < s.Span/100) {
			continue
		}
		span := s.Span - c.Steal
		if span <= 0 {
			continue
		}
		u := max(0, min(1, float64(c.Busy)/float64(span)))
		if math.IsNaN(best) || u > best {
			best = u
		}
	}
	return best
}

// remaining returns a [*LostError] when every queue has dropped out.
func (l *Loop) remaining() error {
	if len(l.order) == 0 {
		return nil
	}
	lost := make([]error, 0, len(l.order))
	for _, q := range l.order {
		if q.lost == nil {
			return nil
		}
		lost = append(lost, q.lost)
	}
	return &LostError{Queues: lost}
}
