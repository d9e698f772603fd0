package sim

import (
	"time"

	"autotune/model"
)

// Result is what a run comes to. Rates are per second of simulated time.
type Result struct {
	Case string        `json:"case"`
	Span time.Duration `json:"span_ns"`
	// QPS is the rate of responses, and OfferedQPS that of requests that came
	// due; the latencies are the client's.
	QPS        float64 `json:"qps"`
	OfferedQPS float64 `json:"offered_qps"`
	AvgUs      float64 `json:"avg_us"`
	P50Us      float64 `json:"p50_us"`
	P95Us      float64 `json:"p95_us"`
	P99Us      float64 `json:"p99_us"`
	// CPUPercent is CPU utilisation as procfs shows it, the mean of the cores;
	// Utilisation, 0 to 1, also has the idle exits that procfs misses.
	CPUPercent     float64 `json:"cpu_percent"`
	SoftirqPercent float64 `json:"softirq_percent"`
	Utilisation    float64 `json:"utilisation"`
	// CyclesPerQuery is the true cost, idle exits included.
	CyclesPerQuery float64 `json:"cycles_per_query"`

	IRQs           float64 `json:"irqs_per_s"`
	Polls          float64 `json:"polls_per_s"`
	BusyPolls      float64 `json:"busy_polls_per_s"`
	EmptyShare     float64 `json:"empty_poll_share"`
	PacketsPerPoll float64 `json:"packets_per_nonempty_poll"`
	EpollCalls     float64 `json:"epoll_calls_per_s"`
	EventsPerCall  float64 `json:"events_per_nonempty_call"`
	TimerFires     float64 `json:"timer_fires_per_s"`
	PacketRate     float64 `json:"packets_per_s"`
	Packets        uint64  `json:"packets"`
	Dropped        uint64  `json:"dropped"`

	// SystemPolls and the two after it are what a system-wide count would show,
	// the preset's other NAPI instances included.
	SystemPolls          float64 `json:"system_polls_per_s"`
	SystemEmptyShare     float64 `json:"system_empty_poll_share"`
	SystemPacketsPerPoll float64 `json:"system_packets_per_nonempty_poll"`

	// Work and Waits are the histograms of packets per poll and events per
	// epoll_wait; their last element takes every larger value.
	Work  [model.WorkBuckets]uint64 `json:"poll_work"`
	Waits [model.WorkBuckets]uint64 `json:"epoll_events"`

	// Latency is the distribution of the client's latencies, and Delay that of
	// the server-side delays of the sampled connections.
	Latency model.Histogram `json:"latency"`
	Delay   model.Histogram `json:"delay"`
}

func newResult(o Options, c *counters, span time.Duration, cores int) Result {
	seconds := span.Seconds()
	polls := c.softirqPolls.Plus(c.busyPolls.PollCounts)
	capacity := seconds * 1e9 * float64(cores)
	cycles := float64(c.softirq+c.thread+c.idleExit) * o.Preset.Host.ClockMHz / 1e3
	r := Result{
		Case: o.Case.Name, Span: span,
		AvgUs:   c.latency.mean() / 1e3,
		P50Us:   c.latency.quantile(0.50) / 1e3,
		P95Us:   c.latency.quantile(0.95) / 1e3,
		P99Us:   c.latency.quantile(0.99) / 1e3,
		Packets: polls.Packets, Dropped: c.dropped, Work: c.work, Waits: c.waits,
	}
	r.Delay = c.delay
	c.latency.into(&r.Latency)
	if seconds == 0 {
		return r
	}
	r.OfferedQPS = float64(c.due) / seconds
	r.QPS = float64(c.served) / seconds
	r.CPUPercent = 100 * float64(c.softirq+c.thread) / capacity
	r.SoftirqPercent = 100 * float64(c.softirq) / capacity
	r.Utilisation = float64(c.softirq+c.thread+c.idleExit) / capacity
	r.IRQs = float64(c.irqs) / seconds
	r.Polls = float64(polls.Polls) / seconds
	r.BusyPolls = float64(c.busyPolls.Polls) / seconds
	r.EpollCalls = float64(c.waitCalls) / seconds
	r.TimerFires = float64(c.timerFires) / seconds
	r.PacketRate = float64(polls.Packets) / seconds
	if c.served > 0 {
		r.CyclesPerQuery = cycles / float64(c.served)
	}
	if polls.Polls > 0 {
		r.EmptyShare = float64(polls.Empty) / float64(polls.Polls)
	}
	if busy := polls.Polls - polls.Empty; busy > 0 {
		r.PacketsPerPoll = float64(polls.Packets) / float64(busy)
	}
	other := &o.Preset.Background
	nonEmpty := float64(polls.Polls-polls.Empty)/seconds + other.Polls
	r.SystemPolls = r.Polls + other.Polls + other.empty(o.Case.NAPI)
	if r.SystemPolls > 0 {
		r.SystemEmptyShare = 1 - nonEmpty/r.SystemPolls
	}
	if nonEmpty > 0 {
		r.SystemPacketsPerPoll = (r.PacketRate + other.Polls) / nonEmpty
	}
	if calls := c.waitCalls - c.waits[0]; calls > 0 {
		r.EventsPerCall = float64(c.waitEvents) / float64(calls)
	}
	return r
}
