package counterfactual

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"autotune/experiments/stats"
	"autotune/model"
	"autotune/model/sim"
)

// ErrNothingMeasured is wrapped where a recording lacks what a prediction
// rests on: it names what.
var ErrNothingMeasured = errors.New("the recording does not tell")

// Recording is what a trace measured of a host, gathered window by window. The
// zero value is empty.
type Recording struct {
	// Queues are the recorded queues, in the order of the first sample.
	Queues []model.Queue
	// Latency names where the delays are from.
	Latency string

	windows []window
	// spans counts windows by length, in whole milliseconds.
	spans   map[time.Duration]int
	tracks  []track
	regimes map[regimeKey]*regime
	random  *rand.Rand

	// packets are those of the queues and windows in which delays were
	// observed, which requests belong to; polled are all.
	requests, packets, polled float64
	threaded, softirq         float64
	disturbed, unserved       int
	service                   model.Histogram

	// last is the window that events belongs to, which are rebuilt from when
	// the next one comes.
	last   observed
	events []model.Events
	// eventWindows had single events, brokenEvents of them of no use.
	eventWindows, brokenEvents int
	// stride is one in how many of them have their arrivals kept, arrivals the
	// room that these take.
	stride, arrivals int
	// concurrent is how many requests of a queue were under way at once.
	concurrent int
	services   services
	// dispersed tells of neighbouring windows of one queue.
	dispersed dispersions
}

// track is what is kept of one queue.
type track struct {
	rates  rates
	active history
	wait   sim.Wait
	waits  bool // whether wait is known
	polled float64
	// before is the packets of the last window that was not disturbed.
	before                float64
	beforeEnd, beforeSpan time.Duration
	// patterns ascend by window.
	patterns []pattern
}

// window is what the whole host did in one window.
type window struct {
	span     time.Duration
	cost     time.Duration
	requests float32
	costed   bool
	delay    packed
}

// regimeKey is one setting of one queue at one load, which is counted in half
// octaves of packets per second.
type regimeKey struct {
	settings model.Settings
	load     int
}

// regime gathers what was measured in the windows of one key. Its values are
// medians over windows: a host that is held up for a while, as a virtual machine
// is, then spoils a window and not the regime.
type regime struct {
	key      regimeKey
	requests float64
	seen     int
	rows     []row // at most mostRows of those seen
}

// row is one window of a regime. What was not observed is NaN.
type row struct {
	packetRate, pollRate float32
	p50, p90, service    float32 // nanoseconds
	receiving, other     float32 // CPU nanoseconds per packet
	// perPoll is the packets of a poll that had any, and aPackets those of the
	// poll of a packet.
	perPoll, aPackets float32
	waits             float32 // returns of epoll_wait per packet
}

// middle returns the median of a value over the windows in which it was
// observed; NaN where it never was.
func (g *regime) middle(of func(*row) float32) float64 {
	var values []float64
	for i := range g.rows {
		if v := float64(of(&g.rows[i])); !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return stats.Median(values)
}

// mostStolen is the share of a window that the hypervisor may take from a CPU
// before the window teaches nothing.
const mostStolen = 0.02

// disturbed reports that the window is not what the host does when left alone:
// probes lost events, or the hypervisor took the CPU.
func disturbed(s *model.Sample) bool {
	for i := range s.CPUs {
		if float64(s.CPUs[i].Steal) > mostStolen*float64(s.Span)+float64(10*time.Millisecond) {
			return true
		}
	}
	return s.Lost > 0
}

// Add takes the next sample. Samples that are disturbed count for the load, and
// for nothing else.
func (r *Recording) Add(s *model.Sample) {
	if s.Span <= 0 {
		return
	}
	if r.regimes == nil {
		r.regimes = make(map[regimeKey]*regime)
		r.spans = make(map[time.Duration]int)
		r.random = rand.New(rand.NewPCG(1, 0x5eed))
	}
	r.settle()
	r.spans[s.Span.Round(time.Millisecond)]++
	spoilt := disturbed(s)
	if spoilt {
		r.disturbed++
	}
	if s.Latency != nil && r.Latency == "" {
		r.Latency = s.Latency.Source
	}
	if len(s.Apps) == 0 {
		r.unserved++
	}
	costs := model.Costs(s)
	w := window{span: s.Span}
	r.last = observed{window: len(r.windows), from: s.At - s.Span, to: s.At, spoilt: spoilt, queues: r.last.queues[:0]}
	var delay model.Histogram
	for i := range s.Queues {
		q := &s.Queues[i]
		number, track := r.track(q.Queue)
		// How applications wait is known from their contexts.
		active := s.Active[q.Queue]
		active.BusyPoll = model.BusyPoll{}
		changed := track.active.set(len(r.windows), active)
		polls := q.Polls()
		track.rates.set(len(r.windows), float64(polls.Packets)/s.Span.Seconds())
		track.polled += float64(polls.Packets)
		r.threaded += float64(q.Thread.Packets)
		r.softirq += float64(q.Softirq.Packets)
		if wait, ok := waitOf(s.Apps, q.NAPIID); ok {
			track.wait, track.waits = wait, true
		}
		if spoilt {
			continue
		}
		seen := observedQueue{queue: q.Queue, track: number, every: q.SampleEvery, settings: active, ringWait: q.RingWait}
		track.disperse(s, float64(polls.Packets), &r.dispersed, r.random)
		requests := 0.0
		if q.Delay != nil {
			requests = float64(q.Delay.Count()) * float64(max(q.SampleEvery, 1))
			delay.Merge(q.Delay)
			r.packets += float64(polls.Packets)
		}
		if q.Service != nil {
			r.service.Merge(q.Service)
		}
		r.requests += requests
		r.polled += float64(polls.Packets)
		w.requests += float32(requests)
		cost, costed := costs[q.Queue]
		if costed {
			w.cost += cost
			w.costed = true
		}
		// In the window that a change lies in, two settings had a part.
		if !changed {
			seen.regime = r.regime(s, q, active)
			seen.regime.add(s, q, requests, cost, costed, r.random)
		}
		r.last.queues = append(r.last.queues, seen)
	}
	w.delay = pack(&delay)
	r.windows = append(r.windows, w)
}

// track returns the number of a queue and what is kept of it, new or not, which
// holds until the next call.
func (r *Recording) track(q model.Queue) (int, *track) {
	i := slices.Index(r.Queues, q)
	if i < 0 {
		i = len(r.Queues)
		r.Queues = append(r.Queues, q)
		r.tracks = append(r.tracks, track{})
	}
	return i, &r.tracks[i]
}

// Each returns the length of a window: the one that most have, to the
// millisecond.
func (r *Recording) Each() time.Duration {
	var each time.Duration
	for span, n := range r.spans {
		if m := r.spans[each]; span > 0 && (n > m || n == m && span < each) {
			each = span
		}
	}
	return max(each, time.Millisecond)
}

// Wait returns how the applications of the busiest queue that it is known of
// wait for events, and whether it is known of any.
func (r *Recording) Wait() (wait sim.Wait, known bool) {
	most := 0.0
	for i := range r.tracks {
		if t := &r.tracks[i]; t.waits && (!known || t.polled > most) {
			wait, known, most = t.wait, true, t.polled
		}
	}
	return wait, known
}

// Unserved is the number of windows in which no application was observed: their
// CPU time lacks that of applications.
func (r *Recording) Unserved() int { return r.unserved }

func (r *Recording) regime(s *model.Sample, q *model.QueueSample, active model.Settings) *regime {
	rate := float64(q.Polls().Packets) / s.Span.Seconds()
	key := regimeKey{settings: active, load: loadIndex(rate)}
	g, ok := r.regimes[key]
	if !ok {
		g = &regime{key: key}
		r.regimes[key] = g
	}
	return g
}

func (g *regime) add(s *model.Sample, q *model.QueueSample, requests float64, cost time.Duration, costed bool, random *rand.Rand) {
	polls := q.Polls()
	packets, seconds := float64(polls.Packets), s.Span.Seconds()
	g.requests += requests
	unknown := float32(math.NaN())
	w := row{
		packetRate: float32(packets / seconds), pollRate: float32(float64(polls.Polls) / seconds),
		p50: unknown, p90: unknown, service: unknown, receiving: unknown, other: unknown, waits: unknown,
	}
	w.perPoll, w.aPackets = workOf(&q.Work)
	if q.Delay != nil && q.Delay.Count() > 0 {
		w.p50, w.p90 = float32(q.Delay.Quantile(0.5)), float32(q.Delay.Quantile(0.9))
	}
	if q.Service != nil && q.Service.Count() > 0 {
		w.service = float32(q.Service.Quantile(0.5))
	}
	if costed && packets > 0 {
		// What the NAPI itself took is told apart where a thread runs it.
		receiving := time.Duration(0)
		if q.ThreadTime != nil {
			receiving = min(*q.ThreadTime, cost)
			w.receiving = float32(float64(receiving) / packets)
		}
		// Without the applications the rest is not what a simulated host's is.
		if len(s.Apps) > 0 {
			w.other = float32(float64(cost-receiving) / packets)
		}
	}
	// The waits of an application are not told apart by queue.
	if len(s.Queues) == 1 && packets > 0 {
		if waits, ok := waitsOf(s.Apps, q.NAPIID); ok {
			w.waits = float32(waits / packets)
		}
	}
	g.keep(w, random)
}

// waitsOf counts the returns of epoll_wait with events of the applications that
// have contexts on a NAPI instance, or of all where none is known to.
func waitsOf(apps []model.AppSample, napiID uint32) (returns float64, ok bool) {
	listed := slices.ContainsFunc(apps, func(a model.AppSample) bool { return on(&a, napiID) })
	for i := range apps {
		if apps[i].Waits == nil || listed && !on(&apps[i], napiID) {
			continue
		}
		ok = true
		for _, n := range apps[i].Waits[1:] {
			returns += float64(n)
		}
	}
	return returns, ok
}

// on reports whether the application has an epoll context on a NAPI instance.
func on(a *model.AppSample, napiID uint32) bool {
	return slices.ContainsFunc(a.Contexts, func(c model.EpollContext) bool { return slices.Contains(c.NAPIIDs, napiID) })
}

// loadIndex counts half octaves of packets per second.
func loadIndex(rate float64) int {
	if rate < 1 {
		return 0
	}
	return int(math.Round(2 * math.Log2(rate)))
}

// waitOf returns how the application on a NAPI instance waits for events.
func waitOf(apps []model.AppSample, napiID uint32) (sim.Wait, bool) {
	for i := range apps {
		for j := range apps[i].Contexts {
			c := &apps[i].Contexts[j]
			if !c.Opaque && slices.Contains(c.NAPIIDs, napiID) {
				return sim.Wait{BusyPoll: c.BusyPoll, Budget: int(c.Budget), Prefer: c.Prefer}, true
			}
		}
	}
	return sim.Wait{}, false
}

// Windows returns the number of windows, and how many of them were disturbed.
func (r *Recording) Windows() (all, disturbed int) { return len(r.windows), r.disturbed }

// RequestsPerWindow is how many requests came in a window, of all queues. It is
// not a number where [Recording.Check] fails.
func (r *Recording) RequestsPerWindow() float64 {
	return r.polled / r.PacketsPerRequest() / float64(len(r.windows))
}

// PacketsPerRequest is how many packets came per request, of the queues whose
// delays were observed. It is not finite where no request was.
func (r *Recording) PacketsPerRequest() float64 { return r.packets / r.requests }

// Check returns an error that wraps [ErrNothingMeasured] where nothing can be
// predicted from the recording.
func (r *Recording) Check() error {
	if err := r.CheckLoad(); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.windows, func(w window) bool { return w.costed }) {
		return fmt.Errorf("%w what requests cost: no CPU time was observed", ErrNothingMeasured)
	}
	return nil
}

// Load returns the arrivals of windows [from, to) in requests per second of each
// queue: packets are counted exactly, requests only for the sockets that were
// followed, so packets divided by the packets per request of the whole
// recording. Where single events were recorded, arrivals are those, and elsewhere
// those of a window that is alike.
func (r *Recording) Load(from, to int) sim.Windows { return r.load(from, to, Bursts{}) }

// load is [Recording.Load] where requests come in bursts in windows whose single
// arrivals are not known. So many came there as were counted.
func (r *Recording) load(from, to int, b Bursts) sim.Windows {
	r.settle()
	w := sim.Windows{Each: r.Each(), PerSecond: make([][]float64, len(r.Queues))}
	per := r.PacketsPerRequest()
	for i := range r.tracks {
		out := make([]float64, to-from)
		for j := range out {
			out[j] = r.tracks[i].rates.at(from+j) / per
		}
		w.PerSecond[i] = out
	}
	if r.arrivals > 0 || !b.AtRandom() {
		w.Singles = func(queue, window int) ([]time.Duration, bool) {
			if queue >= len(w.PerSecond) || window >= to-from {
				return nil, false
			}
			return r.singles(queue, from+window, w.PerSecond[queue][window], b)
		}
	}
	return w
}

// Measured is what the windows of some stretches came to together.
func (r *Recording) Measured(blocks [][2]int, o model.Objective) Outcome {
	t := newTally(o)
	var delay model.Histogram
	for _, b := range blocks {
		for _, w := range r.windows[b[0]:b[1]] {
			w.delay.unpack(&delay)
			t.add(&delay, float64(w.requests), w.cost, w.costed, w.span)
		}
	}
	return t.outcome()
}
