package tuner_test

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"autotune/model"
)

// plant is a stochastic stand-in for a threaded veth NAPI whose thread shares
// a CPU with the server. Its costs were fitted to measurements, in ticks of
// 10 ms over 4 s of server and NAPI thread: at 5K requests/s 70 with plain
// interrupts, 179 with flush 50 us and 99 with 200 us; at 40K 344, 332 and
// 235. Between them it assumes that a timer fires once per flush timeout plus
// the work, and costs 20.5 us; what it says of 10 to 30 us is therefore an
// extrapolation.
type plant struct {
	random *rand.Rand
	queue  model.Queue
	active model.Settings
	// load gives the packets per second at a time since the start.
	load   func(time.Duration) float64
	window time.Duration
	now    time.Duration
	end    time.Duration
	noise  plantNoise

	// spent, idle and packets are totals by load: expected CPU seconds under
	// the settings used, under plain interrupts, and packets.
	spent, idle, packets map[float64]float64
	over, windows        map[float64]int
	slo                  time.Duration
	// perRequest is the packets for each request; the load is in requests.
	perRequest float64
	quantile   float64
	// gathered is the packets that a poll finds at 40K, 1 if zero.
	gathered float64
	// fireCost is what a timer's fire takes at 5K and 40K requests/s.
	fireCost [2]float64
	changes  []change
	// stalled counts the windows that the host held up; taken is for how many
	// more others take the CPU.
	stalled, taken int
	writes         int
}

type change struct {
	at   time.Duration
	load float64
	from model.Settings
	to   model.Settings
}

// plantNoise is what the host does to windows: shares of windows and sizes.
type plantNoise struct {
	cost     float64 // standard deviation of the cost, as a share
	outliers float64 // windows whose cost is off by 10 to 20%
	gaps     float64 // windows in which 3% of the packets wait for 5 ms
	stolen   float64 // windows of which the hypervisor takes 30 ms
	stalls   float64 // windows in which 20% of the packets wait for 5 ms
	held     float64 // windows in which 3 to 30% of the packets wait for 1 ms
	taken    float64 // windows in which others begin to take the CPU, for 2 to 6
	delay    float64 // standard deviation of all delays of a window, as a share
	tick     bool    // busy time comes in ticks of 10 ms
}

func hostNoise() plantNoise {
	return plantNoise{cost: 0.04, outliers: 0.08, gaps: 0.05, stolen: 0.02}
}

func newPlant(seed uint64, window, end time.Duration, load func(time.Duration) float64) *plant {
	return &plant{
		random: rand.New(rand.NewPCG(seed, 7)),
		queue:  model.Queue{Netns: 4026531840, Ifindex: 2},
		load:   load, window: window, end: end, noise: hostNoise(),
		spent: map[float64]float64{}, idle: map[float64]float64{}, packets: map[float64]float64{},
		over: map[float64]int{}, windows: map[float64]int{},
		slo: 450 * time.Microsecond, quantile: 0.9, perRequest: 1, fireCost: [2]float64{fireCost, fireCost},
	}
}

const fireCost = 20.5e-6

// busy returns the share of the CPU that a load takes under settings, and the
// time between polls.
func (p *plant) busy(rate float64, s model.Settings) (share, period float64) {
	// Per packet, from 35 us when each comes alone to 21.5 us at 40K.
	if s.Mode() == model.ModeInterrupts {
		return min(1, rate*interpolate(rate, 35e-6, 21.5e-6)), 0
	}
	g := s.GROFlushTimeout.Seconds()
	perPacket := interpolate(rate, 30.8e-6, 13.1e-6)
	if rate > 10_000 {
		perPacket += 0.6e-6 * math.Max(0, 1-g/200e-6)
	}
	fire := interpolate(rate, p.fireCost[0], p.fireCost[1])
	period = g + fire
	return min(1, rate*perPacket+fire/period), period
}

func interpolate(rate, at5K, at40K float64) float64 {
	x := min(1, max(0, math.Log(rate/5000)/math.Log(8)))
	return at5K + x*(at40K-at5K)
}

func (p *plant) Next(context.Context) (model.Sample, error) {
	if p.now >= p.end {
		return model.Sample{}, io.EOF
	}
	// A window may hold a change of load: ten parts.
	var packets, cpu, share float64
	delay := &model.Histogram{}
	gap := p.random.Float64() < p.noise.gaps
	stall := p.noise.stalls > 0 && p.random.Float64() < p.noise.stalls
	held := 0.0
	if p.noise.held > 0 && p.random.Float64() < p.noise.held {
		held = 0.03 + 0.27*p.random.Float64()
	}
	if p.taken > 0 {
		p.taken--
	} else if p.noise.taken > 0 && p.random.Float64() < p.noise.taken {
		p.taken = 2 + p.random.IntN(5)
	}
	spoilt := stall || held > 0 || p.taken > 0
	if spoilt {
		p.stalled++
	}
	slow := 1.0
	if p.noise.delay > 0 {
		slow = math.Exp(p.noise.delay * p.random.NormFloat64())
	}
	for i := range 10 {
		at := p.now + p.window*time.Duration(i)/10
		rate := p.load(at)
		span := p.window.Seconds() / 10
		u, period := p.busy(rate, p.active)
		base, _ := p.busy(rate, model.Settings{})
		p.spent[rate] += u * span
		p.idle[rate] += base * span
		n := rate*span + math.Sqrt(rate*span)*p.random.NormFloat64()
		requests := math.Round(max(0, n))
		n = math.Round(requests * p.perRequest)
		p.packets[rate] += n
		packets += n
		cpu += u * span
		share += u / 10
		median := interpolate(rate, 30e-6, 70e-6)
		if u > 0.95 {
			median *= 4
		}
		// A tenth of the packets stands for all: sockets are sampled.
		for range int(requests / 4) {
			d := median*math.Exp(0.5*p.random.NormFloat64()) + period*p.random.Float64()
			if gap && p.random.Float64() < 0.03 {
				d += 5e-3 * p.random.Float64()
			}
			if stall && p.random.Float64() < 0.2 {
				d += 5e-3 * p.random.Float64()
			}
			if held > 0 && p.random.Float64() < held {
				d += 1e-3 * p.random.ExpFloat64()
			}
			if p.taken > 0 {
				d += 2e-3 * p.random.ExpFloat64()
			}
			d *= slow
			delay.Add(time.Duration(d*1e9), 1)
		}
	}
	noisy := cpu * math.Exp(p.noise.cost*p.random.NormFloat64())
	if p.random.Float64() < p.noise.outliers {
		off := 0.1 + 0.1*p.random.Float64()
		if p.random.IntN(2) == 0 {
			off = -off
		}
		noisy *= 1 + off
	}
	busy := time.Duration(min(1, share) * float64(p.window))
	if p.taken > 0 {
		busy = p.window
		noisy *= 0.85
	}
	if tick := 10 * time.Millisecond; p.noise.tick {
		busy = min(p.window, (busy + time.Duration(p.random.Float64()*float64(tick))).Truncate(tick))
	}
	var steal time.Duration
	if p.random.Float64() < p.noise.stolen {
		steal = 30 * time.Millisecond
	}
	polls := packets / interpolate(packets/p.window.Seconds(), 1, max(1, p.gathered))
	rate := p.load(p.now)
	p.windows[rate]++
	if !spoilt && delay.Quantile(p.quantile) > p.slo {
		p.over[rate]++
	}
	p.now += p.window
	thread := time.Duration(noisy * 0.45 * 1e9)
	return model.Sample{
		At: p.now, Span: p.window,
		Queues: []model.QueueSample{{
			Queue: p.queue, NAPIID: 8193,
			Thread:     model.PollCounts{Polls: uint64(polls), Packets: uint64(packets)},
			ThreadTime: &thread, Delay: delay,
		}},
		CPUs:   []model.CPUSample{{CPU: 1, Busy: busy, Steal: steal}},
		Apps:   []model.AppSample{{PID: 100, Comm: "server", CPU: time.Duration(noisy * 0.55 * 1e9)}},
		Active: model.Config{p.queue: p.active},
	}, nil
}

func (p *plant) Apply(_ context.Context, c model.Config) (model.Config, error) {
	for _, s := range c {
		if s != p.active {
			p.changes = append(p.changes, change{at: p.now, load: p.load(p.now), from: p.active, to: s})
		}
		p.active = s
		p.writes++
	}
	return model.Config{p.queue: p.active}, nil
}

// ratio returns the expected CPU at a load relative to plain interrupts.
func (p *plant) ratio(load float64) float64 { return p.spent[load] / p.idle[load] }

const (
	lowLoad  = 5_000
	highLoad = 40_000
)

// lowHighLow alternates loads in rounds of three phases.
func lowHighLow(phase time.Duration) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at/phase%3 == 1 {
			return highLoad
		}
		return lowLoad
	}
}
