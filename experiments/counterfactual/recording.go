package counterfactual

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

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
	// Each is the length of a window: that of the first sample.
	Each time.Duration
	// Latency names where the delays are from.
	Latency string

	windows  []window
	packets  [][]float32
	regimes  map[regimeKey]*regime
	threaded bool
	waits    map[model.Queue]sim.Wait

	requests, polled float64
	disturbed        int
	service          model.Histogram
}

// window is what the whole host did in one window.
type window struct {
	span     time.Duration
	active   []model.Settings
	requests float64
	cost     time.Duration
	costed   bool
	delay    *model.Histogram
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
	rows     []row
}

// row is one window of a regime. What was not observed is NaN.
type row struct {
	packetRate, requestRate, pollRate float64
	p50, p90, service                 float64 // nanoseconds
	receiving, other                  float64 // CPU nanoseconds per packet
	waits                             float64 // returns of epoll_wait per packet
}

// middle returns the median of a value over the windows in which it was
// observed; NaN where it never was.
func (g *regime) middle(of func(*row) float64) float64 {
	var values []float64
	for i := range g.rows {
		if v := of(&g.rows[i]); !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return median(values)
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
		r.Each = s.Span
		r.regimes = make(map[regimeKey]*regime)
		r.waits = make(map[model.Queue]sim.Wait)
	}
	spoilt := disturbed(s)
	if spoilt {
		r.disturbed++
	}
	if s.Latency != nil && r.Latency == "" {
		r.Latency = s.Latency.Source
	}
	costs := model.Costs(s)
	w := window{span: s.Span, delay: &model.Histogram{}}
	for i := range s.Queues {
		q := &s.Queues[i]
		at := r.position(q.Queue)
		for len(w.active) <= at {
			w.active = append(w.active, model.Settings{})
		}
		w.active[at] = s.Active[q.Queue]
		polls := q.Polls()
		r.set(at, float32(float64(polls.Packets)/s.Span.Seconds()))
		if q.Thread.Packets > q.Softirq.Packets {
			r.threaded = true
		}
		if wait, ok := waitOf(s.Apps, q.NAPIID); ok {
			r.waits[q.Queue] = wait
		}
		if spoilt {
			continue
		}
		requests := 0.0
		if q.Delay != nil {
			requests = float64(q.Delay.Count()) * float64(max(q.SampleEvery, 1))
			w.delay.Merge(q.Delay)
		}
		if q.Service != nil {
			r.service.Merge(q.Service)
		}
		r.requests += requests
		r.polled += float64(polls.Packets)
		w.requests += requests
		cost, costed := costs[q.Queue]
		if costed {
			w.cost += cost
			w.costed = true
		}
		r.regime(s, q).add(s, q, requests, cost, costed)
	}
	r.windows = append(r.windows, w)
}

// position returns the index of a queue, new or not.
func (r *Recording) position(q model.Queue) int {
	if i := slices.Index(r.Queues, q); i >= 0 {
		return i
	}
	r.Queues = append(r.Queues, q)
	r.packets = append(r.packets, nil)
	return len(r.Queues) - 1
}

// set notes the packet rate of a queue in the window that is being added.
func (r *Recording) set(queue int, rate float32) {
	for len(r.packets[queue]) < len(r.windows) {
		r.packets[queue] = append(r.packets[queue], 0)
	}
	r.packets[queue] = append(r.packets[queue], rate)
}

func (r *Recording) regime(s *model.Sample, q *model.QueueSample) *regime {
	rate := float64(q.Polls().Packets) / s.Span.Seconds()
	key := regimeKey{settings: s.Active[q.Queue], load: loadIndex(rate)}
	g, ok := r.regimes[key]
	if !ok {
		g = &regime{key: key}
		r.regimes[key] = g
	}
	return g
}

func (g *regime) add(s *model.Sample, q *model.QueueSample, requests float64, cost time.Duration, costed bool) {
	polls := q.Polls()
	packets, seconds := float64(polls.Packets), s.Span.Seconds()
	g.requests += requests
	unknown := math.NaN()
	w := row{
		packetRate: packets / seconds, requestRate: requests / seconds, pollRate: float64(polls.Polls) / seconds,
		p50: unknown, p90: unknown, service: unknown, receiving: unknown, other: unknown, waits: unknown,
	}
	if q.Delay != nil && q.Delay.Count() > 0 {
		w.p50, w.p90 = float64(q.Delay.Quantile(0.5)), float64(q.Delay.Quantile(0.9))
	}
	if q.Service != nil && q.Service.Count() > 0 {
		w.service = float64(q.Service.Quantile(0.5))
	}
	if costed && packets > 0 {
		// What the NAPI itself took is told apart where a thread runs it.
		receiving := time.Duration(0)
		if q.ThreadTime != nil {
			receiving = min(*q.ThreadTime, cost)
			w.receiving = float64(receiving) / packets
		}
		w.other = float64(cost-receiving) / packets
	}
	// The waits of an application are not told apart by queue.
	if len(s.Queues) == 1 && packets > 0 {
		for i := range s.Apps {
			if waits := s.Apps[i].Waits; waits != nil {
				w.waits = 0
				for _, n := range waits[1:] {
					w.waits += float64(n) / packets
				}
			}
		}
	}
	g.rows = append(g.rows, w)
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

// PacketsPerRequest is how many packets came per request, NaN where no request
// was observed.
func (r *Recording) PacketsPerRequest() float64 { return r.polled / r.requests }

// Check returns an error that wraps [ErrNothingMeasured] where nothing can be
// predicted from the recording.
func (r *Recording) Check() error {
	costed := slices.ContainsFunc(r.windows, func(w window) bool { return w.costed })
	switch {
	case len(r.windows) == 0:
		return fmt.Errorf("%w anything: it has no samples", ErrNothingMeasured)
	case r.polled == 0:
		return fmt.Errorf("%w what load there was: no packet was polled", ErrNothingMeasured)
	case r.requests == 0:
		return fmt.Errorf("%w how long requests took: no delay was observed; record with the socket tracepoints", ErrNothingMeasured)
	case !costed:
		return fmt.Errorf("%w what requests cost: no CPU time was observed", ErrNothingMeasured)
	}
	return nil
}

// Load returns the arrivals of windows [from, to) in requests per second of each
// queue: packets are counted exactly, requests only for the sockets that were
// followed, so packets divided by the packets per request of the whole
// recording.
func (r *Recording) Load(from, to int) sim.Windows {
	w := sim.Windows{Each: r.Each, PerSecond: make([][]float64, len(r.Queues))}
	per := r.PacketsPerRequest()
	for i, rates := range r.packets {
		out := make([]float64, to-from)
		for j := range out {
			if from+j < len(rates) {
				out[j] = float64(rates[from+j]) / per
			}
		}
		w.PerSecond[i] = out
	}
	return w
}

// Measured is what the windows of some stretches came to together.
func (r *Recording) Measured(blocks [][2]int, o model.Objective) Outcome {
	t := newTally(o)
	for _, b := range blocks {
		for _, w := range r.windows[b[0]:b[1]] {
			t.add(w.delay, w.requests, w.cost, w.costed, w.span)
		}
	}
	return t.outcome()
}
