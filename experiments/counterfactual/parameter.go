package counterfactual

import (
	"math"
	"time"

	"autotune/model/sim"
)

// parameter is a cost of the simulated host that a recording may tell.
type parameter struct {
	name string
	of   func(*sim.Preset) *time.Duration
	// spread is the standard deviation of the logarithm of what is believed
	// before a recording is looked at.
	spread float64
}

// least is what a cost of zero begins with: the search is on logarithms.
const least = 10 * time.Nanosecond

func (p parameter) value(from *sim.Preset) float64 {
	return math.Log(float64(max(*p.of(from), least)))
}

func (p parameter) set(in *sim.Preset, v float64) {
	*p.of(in) = time.Duration(math.Round(math.Exp(v)))
}

// parameters are the costs that a receive path without a rack around it can
// tell: those of the device's moderation, of the client and of worker
// displacement stay as the preset has them. Doubt scales their spread.
func parameters(doubt float64) []parameter {
	all := []parameter{
		{"request_user_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.RequestUser }, 0.5},
		{"request_system_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.RequestSystem }, 0.5},
		{"receive_data_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.ReceiveData }, 0.4},
		{"poll_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Poll }, 0.5},
		{"busy_poll_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.BusyPoll }, 0.4},
		{"busy_poll_entry_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.BusyPollEntry }, 0.4},
		{"interrupt_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Interrupt }, 0.5},
		{"interrupt_nic_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.InterruptNIC }, 0.5},
		{"interrupt_timer_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.InterruptTimer }, 0.5},
		{"timer_arm_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.TimerArm }, 0.4},
		{"softirq_raise_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.SoftirqRaise }, 0.4},
		{"epoll_wait_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.EpollWait }, 0.4},
		{"epoll_event_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.EpollEvent }, 0.4},
		{"sleep_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Sleep }, 0.5},
		{"wake_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Wake }, 0.5},
		{"idle_exit_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.IdleExit }, 0.7},
		{"idle_exit_nic_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.IdleExitNIC }, 0.7},
		{"cold_ns", func(p *sim.Preset) *time.Duration { return &p.Cost.Cold }, 0.7},
	}
	for i := range all {
		all[i].spread *= doubt
	}
	return all
}
