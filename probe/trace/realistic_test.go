package trace

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"autotune/model"
)

// realistic draws samples as a busy host gives them: every count is a draw, so
// that nothing compresses better than it would in the field.
type realistic struct {
	rand   *rand.Rand
	queues int
	at     time.Duration
	// packets is the mean packet rate per queue, every the share of requests
	// that are followed, as one in so many.
	packets float64
	every   int
	// all fills in what a kernel where every probe works tells too.
	all bool
	// shapes are what many requests look like, made when they are needed.
	shapes *shapes
}

// shapes are the histograms of shapeRequests requests, of which each bucket of a
// busy queue's is a draw.
type shapes struct{ ring, socket, service, delay model.Histogram }

const (
	shapeRequests = 1 << 17
	// manyPackets per second are drawn by bucket and not one by one.
	manyPackets = 10000
)

func newRealistic(seed uint64, queues int) *realistic {
	return &realistic{rand: rand.New(rand.NewPCG(seed, 1)), queues: queues, at: 90 * time.Hour, packets: 5000, every: 16}
}

func (r *realistic) lognormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*r.rand.NormFloat64())
}

func (r *realistic) next() model.Sample {
	span := time.Second + time.Duration(r.rand.IntN(200000))
	r.at += span
	s := model.Sample{
		At: r.at, Span: span,
		Active:  model.Config{},
		NAPIIDs: map[model.Queue]uint32{},
		Absent:  map[model.Queue]string{},
		Latency: &model.Latency{Source: "server-side delay"},
	}
	for i := range r.queues {
		q := r.queue(i)
		s.Latency.Histogram.Merge(q.Delay)
		s.Queues = append(s.Queues, q)
		s.NAPIIDs[q.Queue] = q.NAPIID
		s.Active[q.Queue] = model.Settings{
			DeferHardIRQs:   100,
			GROFlushTimeout: time.Duration(20+4*r.rand.IntN(8)) * time.Microsecond,
		}
		netRX := time.Duration(r.lognormal(60e6, 0.5))
		idle := time.Duration(float64(netRX) * r.rand.Float64())
		s.CPUs = append(s.CPUs, model.CPUSample{
			CPU: i, NetRX: &netRX, NetRXIdle: &idle,
			Busy:     time.Duration(r.lognormal(400e6, 0.3)).Round(10 * time.Millisecond),
			Squeezed: uint64(r.rand.IntN(3)),
		})
	}
	for i := range 4 {
		app := model.AppSample{
			PID: 4100 + i, Comm: "memcached", CPU: time.Duration(r.lognormal(8e9, 0.2)),
			Waits: new([model.WorkBuckets]uint64),
		}
		for range 20000 {
			app.Waits[min(model.WorkBuckets-1, int(r.rand.ExpFloat64()*3))]++
		}
		for fd := range r.queues / 4 {
			app.Contexts = append(app.Contexts, model.EpollContext{
				FD: 30 + fd, Budget: 64, Prefer: true,
				NAPIIDs: []uint32{uint32(8193 + i*r.queues/4 + fd)},
			})
		}
		s.Apps = append(s.Apps, app)
	}
	if r.all {
		r.complete(&s)
	}
	return s
}

// complete adds what [probe.Source] reports where every probe works.
func (r *realistic) complete(s *model.Sample) {
	some := func(median float64) uint64 { return uint64(r.lognormal(median, 0.4)) }
	cost := time.Duration(some(4e6))
	s.Probe = &model.ProbeSample{Cost: &cost, Budget: 10 * time.Millisecond, PollEvery: 1}
	for i := range s.Queues {
		q := &s.Queues[i]
		part := func(n uint64) uint64 { return uint64(float64(n) * r.rand.Float64()) }
		q.TimerSoftirq = &model.PollCounts{Polls: part(q.Softirq.Polls), Packets: part(q.Softirq.Packets), Empty: part(q.Softirq.Empty)}
		q.TimerThread = &model.PollCounts{}
		none, unmasked, interrupts := uint64(0), some(30), part(q.Softirq.Polls)
		q.Netpoll, q.Unmasked, q.Interrupts = &none, &unmasked, &interrupts
		q.Takeovers = &model.Takeovers{
			InterruptToTimer: some(40), InterruptToApplication: some(20), TimerToInterrupt: some(40),
			TimerToApplication: some(20), ApplicationToInterrupt: some(20), ApplicationToTimer: some(20),
		}
		softirq := time.Duration(some(20e6))
		q.SoftirqTime = &softirq
		q.Suspension = &model.Suspension{Started: some(30), Resumed: some(30)}
		for range q.Suspension.Started {
			q.Suspension.Length.Add(time.Duration(r.lognormal(200e3, 0.8)), 1)
		}
	}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		irqs, transmit := some(900), some(300)
		irq, idle, thread := time.Duration(some(2e6)), time.Duration(some(1e6)), 10*time.Millisecond*time.Duration(r.rand.IntN(3))
		c.HardIRQs, c.HardIRQ, c.HardIRQIdle, c.Ksoftirqd, c.TransmitOnly = &irqs, &irq, &idle, &thread, &transmit
	}
	for i := range s.Apps {
		a := &s.Apps[i]
		events, full := some(60000), some(10)
		a.Events, a.Full = &events, &full
		a.BusyPolls = &model.BusyPolls{Polls: some(9000), Packets: some(20000)}
		a.Cgroup, a.Selected = "/system.slice/memcached@"+string(rune('0'+i))+".service", true
	}
}

func (r *realistic) queue(i int) model.QueueSample {
	q := model.QueueSample{
		Queue:  model.Queue{Netns: 4026531840, Ifindex: 2, Index: i},
		NAPIID: uint32(8193 + i), Timer: &model.TimerCounts{},
		RingWait: new(model.Histogram), SocketWait: new(model.Histogram),
		Service: new(model.Histogram), Delay: new(model.Histogram),
		SampleEvery: uint32(r.every),
		CPUs:        []int{i % 32},
	}
	packets := int(r.lognormal(r.packets, 0.6))
	mean := 1 + r.rand.Float64()*6
	if r.packets >= manyPackets {
		r.busy(&q, float64(packets), mean)
		return q
	}
	for done := 0; done < packets; {
		work := min(64, int(r.rand.ExpFloat64()*mean))
		loop := &q.Softirq
		if r.rand.IntN(4) == 0 {
			loop = &q.Busy
		}
		loop.Polls++
		loop.Packets += uint64(work)
		switch work {
		case 0:
			loop.Empty++
			q.Timer.Arms++
		case 64:
			loop.Full++
		}
		q.Timer.Fires += uint64(r.rand.IntN(2))
		q.Work[work]++
		done += max(1, work)
	}
	for range packets / r.every {
		r.request(q.RingWait, q.SocketWait, q.Service, q.Delay)
	}
	return q
}

// request counts one request.
func (r *realistic) request(ringWait, socketWait, serviceTime, delay *model.Histogram) {
	ring := time.Duration(r.rand.Float64() * 60e3)
	socket := time.Duration(r.lognormal(40e3, 0.8))
	service := time.Duration(r.lognormal(15e3, 0.5))
	ringWait.Add(ring, 1)
	socketWait.Add(socket, 1)
	serviceTime.Add(service, 1)
	delay.Add(ring+socket+service, 1)
}

// busy fills in the queue of a window with many packets and so many per poll on
// the average.
func (r *realistic) busy(q *model.QueueSample, packets, mean float64) {
	if r.shapes == nil {
		s := new(shapes)
		for range shapeRequests {
			r.request(&s.ring, &s.socket, &s.service, &s.delay)
		}
		r.shapes = s
	}
	polls := packets / max(mean-0.5, 0.5)
	for work := range uint64(model.WorkBuckets - 1) {
		share := math.Exp(-float64(work)/mean) * (1 - math.Exp(-1/mean))
		busy, softirq := r.poisson(polls*share/4), r.poisson(polls*share*3/4)
		q.Work[work] = busy + softirq
		for loop, n := range map[*model.PollCounts]uint64{&q.Busy: busy, &q.Softirq: softirq} {
			loop.Polls += n
			loop.Packets += n * work
			switch work {
			case 0:
				loop.Empty = n
			case 64:
				loop.Full = n
			}
		}
	}
	q.Timer.Arms = q.Work[0]
	q.Timer.Fires = r.poisson(polls / 2)
	scale := packets / float64(r.every) / shapeRequests
	for _, h := range []struct{ to, shape *model.Histogram }{
		{q.RingWait, &r.shapes.ring}, {q.SocketWait, &r.shapes.socket}, {q.Service, &r.shapes.service}, {q.Delay, &r.shapes.delay},
	} {
		for i, n := range h.shape.Counts {
			h.to.Counts[i] = r.poisson(float64(n) * scale)
		}
	}
}

func (r *realistic) poisson(mean float64) uint64 {
	if mean <= 0 {
		return 0
	}
	return uint64(distuv.Poisson{Lambda: mean, Src: r.rand}.Rand())
}
