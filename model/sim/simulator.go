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
	// Latency chooses what Sample.Latency holds, and what each queue's Delay
	// is: the loop decides for a queue by its own.
	Latency LatencySource
	// Selected tells that the application may be steered: samples say so, and
	// Apply sets how its epoll contexts busy poll. Otherwise the application
	// keeps to Case.Wait, and Apply refuses to change that.
	Selected bool
	// SampleEvery is the share of connections whose delays are seen, as one in
	// so many; zero is 1, all of them. Counts are never sampled.
	SampleEvery uint32
	// Events has [Simulator.Events] return single events.
	Events bool
	// Noise multiplies the random error of a window's measurements; zero is 1,
	// what the simulated events come to. It is at
	// most 100.
	Noise float64
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
	noise []noise
	end   time.Duration
	total counters
	span  time.Duration
	// last is the window before, and lastSpan its length.
	last     counters
	lastSpan time.Duration
	// events are those of the last window.
	events []model.Events
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
	case o.Noise != 0 && !(o.Noise >= 1 && o.Noise <= maxNoise):
		return nil, fmt.Errorf("simulate: noise %v: must be in 1 to %d", o.Noise, maxNoise)
	}
	o.SampleEvery = max(o.SampleEvery, 1)
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
		l := newLane(o.Preset, o.Case, n, newArrivals(o.Load, q, before), stream)
		l.sampleEvery = int32(min(o.SampleEvery, math.MaxInt32))
		l.atClient = o.Latency == LatencyClient
		if o.Events {
			l.events = new(laneEvents)
		}
		s.lanes = append(s.lanes, l)
		s.noise = append(s.noise, newNoise(o.Noise, o.Seed, i))
		before += q.Fraction
	}
	s.over = make([]overrun, len(s.lanes))
	if o.Warmup > 0 {
		s.advance(context.Background(), o.Warmup)
		for i, l := range s.lanes {
			l.count = counters{}
			l.events.reset()
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
	if h.HeaviestShare > 0 && h.Queues > 1 {
		heavy := int(math.Round(h.HeaviestShare * float64(h.Connections)))
		heavy = min(max(heavy, 1), h.Connections-(h.Queues-1))
		rest := h
		rest.Queues, rest.Connections, rest.HeaviestShare = h.Queues-1, h.Connections-heavy, 0
		return append(shareConnections(rest), heavy)
	}
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

// advance moves every lane to until, unless ctx ends before.
func (s *Simulator) advance(ctx context.Context, until time.Duration) {
	s.end = until
	workers := min(s.options.Workers, len(s.lanes))
	if workers <= 1 {
		for _, l := range s.lanes {
			l.advance(ctx, int64(until))
		}
		return
	}
	var wait sync.WaitGroup
	work := make(chan *lane)
	for range workers {
		wait.Go(func() {
			for l := range work {
				l.advance(ctx, int64(until))
			}
		})
	}
	for i := len(s.lanes) - 1; i >= 0; i-- { // the busiest first
		work <- s.lanes[i]
	}
	close(work)
	wait.Wait()
}

// stepsPerLook is how many steps, of about a microsecond of CPU each, a lane takes
// before it looks whether its context has ended.
const stepsPerLook = 1 << 16

func (l *lane) advance(ctx context.Context, until int64) {
	for n := 1; l.now < until; n++ {
		if n%stepsPerLook == 0 && ctx.Err() != nil {
			return
		}
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
	s.advance(ctx, start+window)
	if err := ctx.Err(); err != nil {
		return model.Sample{}, err
	}
	s.span += window
	if s.options.Events {
		s.events = s.collectEvents(start, start+window)
	}
	return s.collect(window), nil
}

// Result returns the totals of all windows so far.
func (s *Simulator) Result() Result {
	return newResult(s.options, &s.total, s.span, len(s.lanes))
}

// Window returns what the last window came to: the truth, of which its sample
// is a measurement.
func (s *Simulator) Window() Result {
	return newResult(s.options, &s.last, s.lastSpan, len(s.lanes))
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
	if err := ctx.Err(); err != nil {
		return Result{}, err
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
