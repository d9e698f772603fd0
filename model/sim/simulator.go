package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

	"autotune/model"
)

// Options says what to simulate.
type Options struct {
	// Preset is the machine; nil is the shipped epyc7662-cx5.
	Preset *Preset
	// Case is what the host is set to at the start.
	Case Case
	// Load is what clients offer.
	Load Load
	// Seed names the run: equal seeds give equal samples.
	Seed uint64
	// Window is the length of a sample; zero is 1 s.
	Window time.Duration
	// Duration is when Next returns io.EOF; zero is never.
	Duration time.Duration
	// Warmup is simulated before the first sample and not part of any; zero is
	// none.
	Warmup time.Duration
	// Workers is the number of goroutines; zero is one per usable CPU. It does
	// not change any result.
	Workers int
	// Latency chooses what Sample.Latency holds.
	Latency LatencySource
}

// LatencySource is where a sample's latency is from.
type LatencySource uint8

const (
	// LatencyServer is the server-side delay, all that a live host knows.
	LatencyServer LatencySource = iota
	// LatencyClient is what clients see, which only an active prober would
	// know.
	LatencyClient
)

// Simulator is a simulated host. It implements the loop's Source and Actuator.
// It must not be used from two goroutines at once.
type Simulator struct {
	options Options
	lanes   []*lane
	// over is by how much of each lane's busy time the last window was
	// overrun.
	over  []overrun
	end   time.Duration
	total counters
	span  time.Duration
}

type overrun struct{ softirq, softirqIdle, thread, idleExit int64 }

// New returns a simulator at its start, warm-up done.
func New(o Options) (*Simulator, error) {
	if o.Preset == nil {
		p, err := LoadPreset(DefaultPreset)
		if err != nil {
			return nil, err
		}
		o.Preset = p
	}
	if err := o.Preset.Check(); err != nil {
		return nil, fmt.Errorf("preset %s: %w", o.Preset.Name, err)
	}
	switch {
	case o.Load == nil:
		return nil, errors.New("simulate: no load given")
	case o.Window < 0 || o.Duration < 0 || o.Warmup < 0:
		return nil, errors.New("simulate: window, duration and warm-up must not be negative")
	}
	if o.Window == 0 {
		o.Window = time.Second
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	s := &Simulator{options: o}
	shares := shareConnections(o.Preset.Host)
	before := 0.0
	for i, n := range shares {
		q := QueueShare{Index: i, Fraction: float64(n) / float64(o.Preset.Host.Connections)}
		stream := newRandom(o.Seed, 'q', uint64(i))
		s.lanes = append(s.lanes, newLane(o.Preset, o.Case, n, newArrivals(o.Load, q, before), stream))
		before += q.Fraction
	}
	s.over = make([]overrun, len(s.lanes))
	if o.Warmup > 0 {
		s.advance(o.Warmup)
		for i, l := range s.lanes {
			l.count = counters{}
			s.over[i] = overrun{}
		}
	}
	return s, nil
}

// shareConnections spreads the connections over the queues. The numbers are
// the expected order statistics of a normal distribution (Blom's
// approximation) with the host's imbalance, so that every seed has the same
// imbalance: on a real host it follows from a fixed hash.
func shareConnections(h Host) []int {
	shares := make([]int, h.Queues)
	left := h.Connections
	for i := range shares {
		p := (float64(i+1) - 0.375) / (float64(h.Queues) + 0.25)
		z := math.Sqrt2 * math.Erfinv(2*p-1)
		n := int(math.Round(float64(h.Connections) / float64(h.Queues) * (1 + h.Imbalance*z)))
		shares[i] = max(1, n)
		left -= shares[i]
	}
	for i := 0; left != 0; i = (i + 1) % len(shares) {
		step := 1
		if left < 0 {
			step = -1
		}
		if shares[i]+step >= 1 {
			shares[i] += step
			left -= step
		}
	}
	return shares
}

// advance moves every lane to until.
func (s *Simulator) advance(until time.Duration) {
	s.end = until
	workers := min(s.options.Workers, len(s.lanes))
	if workers <= 1 {
		for _, l := range s.lanes {
			l.advance(int64(until))
		}
		return
	}
	var wait sync.WaitGroup
	work := make(chan *lane)
	for range workers {
		wait.Go(func() {
			for l := range work {
				l.advance(int64(until))
			}
		})
	}
	for i := len(s.lanes) - 1; i >= 0; i-- { // the busiest first
		work <- s.lanes[i]
	}
	close(work)
	wait.Wait()
}

func (l *lane) advance(until int64) {
	for l.now < until {
		l.step(until)
	}
}

// Next simulates one window and returns what a live probe would have seen of
// it, or io.EOF once the duration is over.
func (s *Simulator) Next(ctx context.Context) (model.Sample, error) {
	if err := ctx.Err(); err != nil {
		return model.Sample{}, err
	}
	start := s.end
	window := s.options.Window
	if d := s.options.Duration; d > 0 {
		window = min(window, s.options.Warmup+d-start)
		if window <= 0 {
			return model.Sample{}, io.EOF
		}
	}
	s.advance(start + window)
	s.span += window
	return s.collect(window), nil
}

// collect turns the lanes' counters into a sample, adds them to the totals and
// clears them.
func (s *Simulator) collect(window time.Duration) model.Sample {
	out := model.Sample{
		At: s.end, Span: window,
		Queues:  make([]model.QueueSample, len(s.lanes)),
		CPUs:    make([]model.CPUSample, len(s.lanes)),
		Active:  make(model.Config, len(s.lanes)),
		Latency: &model.Latency{Source: "server-side delay"},
	}
	app := model.AppSample{PID: 1, Comm: "server", Waits: new([model.WorkBuckets]uint64)}
	if s.options.Latency == LatencyClient {
		out.Latency.Source = "simulated client"
	}
	for i, l := range s.lanes {
		c := &l.count
		s.settle(i, l)
		q := SimulatedQueue(i)
		softirqNAPI, busy := c.softirqPolls.PollCounts, c.busyPolls.PollCounts
		out.Queues[i] = model.QueueSample{
			Queue: q, NAPIID: napiID(i), Softirq: softirqNAPI, Busy: busy, Work: c.work,
			Timer:    &model.TimerCounts{Arms: c.timerArms, Fires: c.timerFires},
			RingWait: copyOf(c.ringWait), SocketWait: copyOf(c.socketWait),
			Service: copyOf(c.service), Delay: copyOf(c.delay), SampleEvery: 1,
		}
		if l.host.Host.ThreadedNAPI {
			spent := time.Duration(c.softirq)
			out.Queues[i].Thread, out.Queues[i].Softirq = softirqNAPI, model.PollCounts{}
			out.Queues[i].ThreadTime = &spent
		}
		netRX, netRXIdle := time.Duration(c.softirq), time.Duration(c.softirqIdle)
		out.CPUs[i] = model.CPUSample{
			CPU: i, NetRX: &netRX, NetRXIdle: &netRXIdle,
			Busy: time.Duration(c.softirq + c.thread), Squeezed: c.squeezed,
		}
		app.CPU += time.Duration(c.thread + c.softirq - c.softirqIdle)
		for n, count := range c.waits {
			app.Waits[n] += count
		}
		app.Contexts = append(app.Contexts, model.EpollContext{
			FD: 3 + i, BusyPoll: l.wait.BusyPoll, Budget: uint16(l.wait.Budget), Prefer: l.wait.Prefer,
			NAPIIDs: []uint32{napiID(i)},
		})
		out.Active[q] = l.knobs
		switch s.options.Latency {
		case LatencyServer:
			out.Latency.Histogram.Merge(&c.delay)
		case LatencyClient:
			c.latency.into(&out.Latency.Histogram)
		}
		s.total.merge(c)
		*c = counters{}
		c.softirq, c.softirqIdle = s.over[i].softirq, s.over[i].softirqIdle
		c.thread, c.idleExit = s.over[i].thread, s.over[i].idleExit
	}
	out.Apps = []model.AppSample{app}
	return out
}

// settle moves the time by which lane i has overrun the window, an action
// being indivisible, to the next one.
func (s *Simulator) settle(i int, l *lane) {
	over := l.now - int64(s.end)
	s.over[i] = overrun{}
	if over <= 0 {
		return
	}
	c := &l.count
	take := func(from, to *int64) {
		n := min(over, *from)
		*from -= n
		*to += n
		over -= n
	}
	take(&c.thread, &s.over[i].thread)
	idle := c.softirqIdle
	before := c.softirq
	take(&c.softirq, &s.over[i].softirq)
	if taken := before - c.softirq; taken > 0 && idle > c.softirq {
		s.over[i].softirqIdle = idle - c.softirq
		c.softirqIdle = c.softirq
	}
	take(&c.idleExit, &s.over[i].idleExit)
}

func copyOf(h model.Histogram) *model.Histogram { return &h }

// SimulatedQueue returns the identity of the i-th simulated queue: it is in
// network namespace 1, on the device with index 2.
func SimulatedQueue(i int) model.Queue { return model.Queue{Netns: 1, Ifindex: 2, Index: i} }

func napiID(i int) uint32 { return uint32(8193 + i) }

// Apply sets queues to what config says, from the next action on, and returns
// the settings of every queue that config names. It refuses what the kernel
// refuses.
func (s *Simulator) Apply(ctx context.Context, config model.Config) (model.Config, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kernel := model.Bounds{MaxDefer: model.MaxDeferHardIRQs, MaxFlush: math.MaxInt64, MaxSuspend: math.MaxInt64}
	out := make(model.Config, len(config))
	var failed []error
	for q, settings := range config {
		if q != SimulatedQueue(q.Index) || q.Index < 0 || q.Index >= len(s.lanes) {
			failed = append(failed, &model.QueueError{Queue: q, Op: "napi-set", Err: model.ErrGone})
			continue
		}
		l := s.lanes[q.Index]
		if err := kernel.Check(settings); err != nil {
			failed = append(failed, &model.QueueError{Queue: q, Op: "napi-set", Err: err})
		} else {
			l.set(settings)
		}
		out[q] = l.knobs
	}
	return out, errors.Join(failed...)
}

// SetWait changes how the application waits, as EPIOCSPARAMS does, from its
// next call on.
func (s *Simulator) SetWait(w Wait) {
	for _, l := range s.lanes {
		l.wait = w.withDefaults()
	}
}

// Result returns the totals of all windows so far.
func (s *Simulator) Result() Result {
	return newResult(s.options, &s.total, s.span, len(s.lanes))
}

// Run simulates the options' duration, which must be set, and returns the
// totals.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Duration <= 0 {
		return Result{}, errors.New("simulate: no duration given")
	}
	if o.Window == 0 {
		o.Window = o.Duration
	}
	s, err := New(o)
	if err != nil {
		return Result{}, err
	}
	for {
		_, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return s.Result(), nil
		}
		if err != nil {
			return Result{}, err
		}
	}
}
