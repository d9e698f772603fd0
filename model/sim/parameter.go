package sim

import (
	"math"
	"time"
)

// Parameter is one value of a preset that a fit may move, within limits.
type Parameter struct {
	Name     string
	Low, Top float64
	at       func(*Preset) (*time.Duration, *float64)
	// moderation tells that it is for the cells that interrupts drive to say,
	// see [Fit].
	moderation bool
}

// Value returns the parameter's value in p; times are in nanoseconds.
func (p Parameter) Value(from *Preset) float64 {
	d, f := p.at(from)
	if d != nil {
		return float64(*d)
	}
	return *f
}

// Set changes the parameter in p.
func (p Parameter) Set(in *Preset, v float64) {
	v = min(max(v, p.Low), p.Top)
	d, f := p.at(in)
	if d != nil {
		*d = time.Duration(math.Round(v))
		return
	}
	*f = v
}

// unit maps a value to the search's scale, 0 to 1; wide positive ranges are
// logarithmic.
func (p Parameter) unit(v float64) float64 {
	v = min(max(v, p.Low), p.Top)
	if p.Low > 0 {
		return math.Log(v/p.Low) / math.Log(p.Top/p.Low)
	}
	return (v - p.Low) / (p.Top - p.Low)
}

func (p Parameter) fromUnit(u float64) float64 {
	if p.Low > 0 {
		return p.Low * math.Pow(p.Top/p.Low, u)
	}
	return p.Low + u*(p.Top-p.Low)
}

// Parameters returns what a fit moves: the costs, what the client and the
// device add, and how the scheduler places threads.
func Parameters() []Parameter {
	duration := func(name string, low, top float64, at func(*Preset) *time.Duration) Parameter {
		return Parameter{Name: name, Low: low, Top: top, at: func(p *Preset) (*time.Duration, *float64) { return at(p), nil }}
	}
	number := func(name string, low, top float64, at func(*Preset) *float64) Parameter {
		return Parameter{Name: name, Low: low, Top: top, at: func(p *Preset) (*time.Duration, *float64) { return nil, at(p) }}
	}
	moderation := func(p Parameter) Parameter {
		p.moderation = true
		return p
	}
	return []Parameter{
		duration("request_system_ns", 500, 6000, func(p *Preset) *time.Duration { return &p.Cost.RequestSystem }),
		duration("receive_data_ns", 300, 2500, func(p *Preset) *time.Duration { return &p.Cost.ReceiveData }),
		duration("receive_ack_ns", 100, 1500, func(p *Preset) *time.Duration { return &p.Cost.ReceiveACK }),
		number("stack_share", 0, 0.95, func(p *Preset) *float64 { return &p.Cost.StackShare }),
		duration("tx_completion_ns", 50, 600, func(p *Preset) *time.Duration { return &p.Cost.TxCompletion }),
		duration("poll_ns", 100, 2000, func(p *Preset) *time.Duration { return &p.Cost.Poll }),
		duration("busy_poll_ns", 200, 2000, func(p *Preset) *time.Duration { return &p.Cost.BusyPoll }),
		number("busy_poll_contention", 0, 0.95, func(p *Preset) *float64 { return &p.Cost.BusyPollContention }),
		duration("busy_poll_entry_ns", 0, 1500, func(p *Preset) *time.Duration { return &p.Cost.BusyPollEntry }),
		duration("interrupt_ns", 100, 3000, func(p *Preset) *time.Duration { return &p.Cost.Interrupt }),
		moderation(duration("interrupt_nic_ns", 100, 6000, func(p *Preset) *time.Duration { return &p.Cost.InterruptNIC })),
		duration("softirq_raise_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.SoftirqRaise }),
		duration("epoll_wait_ns", 100, 3000, func(p *Preset) *time.Duration { return &p.Cost.EpollWait }),
		duration("epoll_event_ns", 0, 800, func(p *Preset) *time.Duration { return &p.Cost.EpollEvent }),
		duration("sleep_ns", 0, 3000, func(p *Preset) *time.Duration { return &p.Cost.Sleep }),
		duration("wake_ns", 0, 5000, func(p *Preset) *time.Duration { return &p.Cost.Wake }),
		duration("softirq_cold_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.SoftirqCold }),
		duration("idle_entry_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.IdleEntry }),
		duration("idle_exit_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.IdleExit }),
		duration("idle_exit_deep_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.IdleExitDeep }),
		duration("idle_deep_time_ns", 5e3, 500e3, func(p *Preset) *time.Duration { return &p.Cost.IdleDeepTime }),
		duration("interference_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.Interference }),
		duration("interference_packet_ns", 0, 400, func(p *Preset) *time.Duration { return &p.Cost.InterferencePacket }),
		duration("reuse_ns", 0, 2000, func(p *Preset) *time.Duration { return &p.Cost.Reuse }),
		number("reuse_distance_packets", 10, 500, func(p *Preset) *float64 { return &p.Cost.ReuseDistance }),
		duration("cold_ns", 0, 8000, func(p *Preset) *time.Duration { return &p.Cost.Cold }),
		number("cold_requests", 0.5, 64, func(p *Preset) *float64 { return &p.Cost.ColdRequests }),
		duration("displaced_ns", 0, 5000, func(p *Preset) *time.Duration { return &p.Cost.Displaced }),
		duration("displaced_near_ns", 0, 2000, func(p *Preset) *time.Duration { return &p.Cost.DisplacedNear }),
		number("displaced_far_share", 0.02, 0.9, func(p *Preset) *float64 { return &p.Scheduling.Far }),
		moderation(number("displaced_probability", 0.05, 5, func(p *Preset) *float64 { return &p.Scheduling.Probability })),
		number("displaced_exponent", 0.3, 6, func(p *Preset) *float64 { return &p.Scheduling.Exponent }),
		moderation(duration("apply_delay_ns", 1e4, 5e6, func(p *Preset) *time.Duration { return &p.NIC.ApplyDelay })),
		moderation(number("tx_rate_noise", 0.01, 10, func(p *Preset) *float64 { return &p.NIC.TxRateNoise })),
		moderation(number("rate_noise", 0.01, 30, func(p *Preset) *float64 { return &p.NIC.RateNoise })),
		moderation(duration("tx_delay_ns", 100, 3e4, func(p *Preset) *time.Duration { return &p.NIC.TxDelay })),
		moderation(duration("tx_jitter_ns", 0, 3e4, func(p *Preset) *time.Duration { return &p.NIC.TxJitter })),
		duration("round_trip_ns", 1e4, 5e4, func(p *Preset) *time.Duration { return &p.Client.RoundTrip }),
		duration("jitter_ns", 1e3, 2e4, func(p *Preset) *time.Duration { return &p.Client.Jitter }),
		duration("jitter_per_million_ns", 0, 2e4, func(p *Preset) *time.Duration { return &p.Client.JitterLoad }),
		duration("bump_ns", 3e4, 1.5e5, func(p *Preset) *time.Duration { return &p.Client.Bump }),
		duration("bump_jitter_ns", 0, 4e4, func(p *Preset) *time.Duration { return &p.Client.BumpJitter }),
		number("bump_share", 0, 0.3, func(p *Preset) *float64 { return &p.Client.BumpShare }),
		number("bump_share_per_million", 0, 0.3, func(p *Preset) *float64 { return &p.Client.BumpShareLoad }),
		duration("think_ns", 0, 4e5, func(p *Preset) *time.Duration { return &p.Client.Think }),
		number("imbalance", 0, 0.2, func(p *Preset) *float64 { return &p.Host.Imbalance }),
	}
}
