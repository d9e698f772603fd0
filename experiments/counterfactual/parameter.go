package counterfactual

import (
	"math"
	"time"

	"autotune/model/sim"
)

// parameter is what a recording may tell of a candidate: a cost of the simulated
// host, or how requests come.
type parameter struct {
	name string
	// of is nil of what is no cost, and bursts of what is.
	of     func(*sim.Preset) *time.Duration
	bursts func(*Bursts) *float64
	// spread is the standard deviation of the logarithm of what is believed
	// before a recording is looked at.
	spread float64
}

// least is what a cost of zero begins with: the search is on logarithms.
const least = 10 * time.Nanosecond

func (p parameter) value(from *Candidate) float64 {
	if p.bursts != nil {
		return math.Log(*p.bursts(&from.Bursts))
	}
	return math.Log(float64(max(*p.of(from.Preset), least)))
}

func (p parameter) set(in *Candidate, v float64) {
	if p.bursts != nil {
		*p.bursts(&in.Bursts) = math.Exp(v)
		return
	}
	*p.of(in.Preset) = time.Duration(math.Round(math.Exp(v)))
}

// burstParameters are how requests come in bursts. Little is believed of them before.
func burstParameters() []parameter {
	return []parameter{
		{"burst_requests", nil, func(b *Bursts) *float64 { return &b.Requests }, 1.5},
		{"burst_requests_per_s", nil, func(b *Bursts) *float64 { return &b.PerSecond }, 1.5},
		{"burst_alone_share", nil, func(b *Bursts) *float64 { return &b.Alone }, 1},
	}
}

// parameters are the costs that a receive path without a rack around it can
// tell: those of the device's moderation, of the client and of worker
// displacement stay as the preset has them. Doubt scales their spread.
func parameters(doubt float64) []parameter {
	all := []parameter{
		{"request_user_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.RequestUser }, nil, 0.5},
		{"request_system_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.RequestSystem }, nil, 0.5},
		{"receive_data_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.ReceiveData }, nil, 0.4},
		{"poll_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Poll }, nil, 0.5},
		{"busy_poll_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.BusyPoll }, nil, 0.4},
		{"busy_poll_entry_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.BusyPollEntry }, nil, 0.4},
		{"interrupt_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Interrupt }, nil, 0.5},
		{"interrupt_nic_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.InterruptNIC }, nil, 0.5},
		{"interrupt_timer_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.InterruptTimer }, nil, 0.5},
		{"timer_arm_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.TimerArm }, nil, 0.4},
		{"softirq_raise_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.SoftirqRaise }, nil, 0.4},
		{"epoll_wait_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.EpollWait }, nil, 0.4},
		{"epoll_event_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.EpollEvent }, nil, 0.4},
		{"sleep_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Sleep }, nil, 0.5},
		{"wake_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Wake }, nil, 0.5},
		{"idle_exit_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.IdleExit }, nil, 0.7},
		{"idle_exit_nic_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.IdleExitNIC }, nil, 0.7},
		{"cold_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Cold }, nil, 0.7},
	}
	for i := range all {
		all[i].spread *= doubt
	}
	return all
}
