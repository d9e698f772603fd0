package sim

import (
	"errors"
	"fmt"
	"time"
)

// CostModel is what work costs on the simulated CPU. All times are CPU time of
// one core at the preset's clock; in JSON they are whole nanoseconds, and the
// field names carry the unit.
type CostModel struct {
	// RequestUser and RequestSystem are the application's time per request in
	// user mode and in its read and send calls.
	RequestUser   time.Duration `json:"request_user_ns"`
	RequestSystem time.Duration `json:"request_system_ns"`
	// ReceiveData and ReceiveACK are the stack's time per received packet with
	// and without data, within a poll.
	ReceiveData time.Duration `json:"receive_data_ns"`
	ReceiveACK  time.Duration `json:"receive_ack_ns"`
	// StackShare, 0 to 1, is the part of ReceiveData and ReceiveACK that the
	// stack takes when it is handed packets, eight at a time and the rest at the
	// poll's end (gro_normal_batch). The other part is the driver's, packet by
	// packet. What arrives while the stack has the last packets is left in the
	// ring: the driver has found it empty before.
	StackShare float64 `json:"stack_share"`
	// TxCompletion is the time to free one sent packet, within a poll.
	TxCompletion time.Duration `json:"tx_completion_ns"`
	// Poll is the fixed time of a poll in the softirq; BusyPoll that of a poll
	// from a busy-polling application, loop included.
	Poll     time.Duration `json:"poll_ns"`
	BusyPoll time.Duration `json:"busy_poll_ns"`
	// BusyPollContention is how much the cores that busy poll get in each
	// other's way: a poll takes BusyPoll / (1 - BusyPollContention x s), s being
	// the share of time that cores spend in empty busy polls. It is at most
	// 0.95.
	BusyPollContention float64 `json:"busy_poll_contention"`
	// BusyPollEntry is the time to take a NAPI over for busy polling and give
	// it back, once per busy-polling epoll_wait.
	BusyPollEntry time.Duration `json:"busy_poll_entry_ns"`
	// Interrupt is the entry and exit of an interrupt (NIC or hrtimer) and its
	// softirq; InterruptNIC comes on top for one from the NIC (event queue,
	// re-arming), InterruptTimer for one from the hrtimer (programming the next
	// event, an exit to the host on a virtual machine).
	Interrupt      time.Duration `json:"interrupt_ns"`
	InterruptNIC   time.Duration `json:"interrupt_nic_ns"`
	InterruptTimer time.Duration `json:"interrupt_timer_ns,omitempty"`
	// TimerArm is the time to arm the NAPI's hrtimer. It is small where the CPU
	// programs its timer itself, and that of an exit to the host on a virtual
	// machine.
	TimerArm time.Duration `json:"timer_arm_ns"`
	// Suspend is what epoll_wait takes, beyond TimerArm, to find the NAPI of its
	// context and suspend its interrupt when it returns events.
	Suspend time.Duration `json:"suspend_ns"`
	// SoftirqRaise is the time to raise and enter the softirq from a thread,
	// when it hands the NAPI back.
	SoftirqRaise time.Duration `json:"softirq_raise_ns"`
	// EpollWait is the time of one call, EpollEvent that of each event it
	// returns.
	EpollWait  time.Duration `json:"epoll_wait_ns"`
	EpollEvent time.Duration `json:"epoll_event_ns"`
	// SoftirqCold is what a softirq takes longer when it interrupts a thread,
	// whose code and data are in the caches then, instead of an idle core.
	SoftirqCold time.Duration `json:"softirq_cold_ns"`
	// Sleep is the time to switch from the application to idle, Wake that to
	// wake and switch to it.
	Sleep time.Duration `json:"sleep_ns"`
	Wake  time.Duration `json:"wake_ns"`
	// IdleExit is the time from an interrupt until a halted core executes it.
	// Its cycles count, but CPU utilisation as procfs shows it misses it.
	// IdleExitNIC is what is added where the interrupt is the NIC's: on a virtual
	// machine, a core that another one sends a packet to is woken by way of the
	// host, and for its own timer by the host itself.
	// IdleEntry is the time to become idle again, likewise missed.
	// IdleExitDeep is what is added as idle periods grow longer, with time
	// constant IdleDeepTime.
	IdleExit     time.Duration `json:"idle_exit_ns"`
	IdleExitNIC  time.Duration `json:"idle_exit_nic_ns,omitempty"`
	IdleEntry    time.Duration `json:"idle_entry_ns"`
	IdleExitDeep time.Duration `json:"idle_exit_deep_ns"`
	IdleDeepTime time.Duration `json:"idle_deep_time_ns"`
	// Interference is what an interrupt costs the application it interrupts
	// (caches, predictors), beyond its own time; InterferencePacket per packet
	// that it brought.
	Interference       time.Duration `json:"interference_ns"`
	InterferencePacket time.Duration `json:"interference_packet_ns"`
	// Reuse is what a request costs more when its packet has left the caches:
	// Reuse x (1 - exp(-d/ReuseDistance)) for d packets received since.
	Reuse         time.Duration `json:"reuse_ns"`
	ReuseDistance float64       `json:"reuse_distance_packets"`
	// Cold is what a request costs more right after the core was idle; it
	// fades with the number of requests served since, constant ColdRequests.
	Cold         time.Duration `json:"cold_ns"`
	ColdRequests float64       `json:"cold_requests"`
	// Displaced is what a request costs more when the softirq received it on
	// another core than the one that its thread runs on: Displaced where the
	// two cores share no cache, DisplacedNear where they do.
	Displaced     time.Duration `json:"displaced_ns"`
	DisplacedNear time.Duration `json:"displaced_near_ns"`
	// ExponentialService draws each request's user time from an exponential
	// distribution with mean RequestUser instead of taking it as constant.
	ExponentialService bool `json:"exponential_service"`
	// ServiceShape has equally likely factors of RequestUser + RequestSystem,
	// with mean 1, from which each request draws one. Empty is 1 for all.
	ServiceShape []float64 `json:"service_shape,omitempty"`
}

// maxShape bounds the factors of ServiceShape.
const maxShape = 10000

// durations are the costs by name: all times but the time constant of idling.
func (c *CostModel) durations() map[string]*time.Duration {
	return map[string]*time.Duration{
		"request_user_ns": &c.RequestUser, "request_system_ns": &c.RequestSystem,
		"receive_data_ns": &c.ReceiveData, "receive_ack_ns": &c.ReceiveACK,
		"tx_completion_ns": &c.TxCompletion, "poll_ns": &c.Poll, "busy_poll_ns": &c.BusyPoll,
		"busy_poll_entry_ns": &c.BusyPollEntry, "interrupt_ns": &c.Interrupt,
		"timer_arm_ns": &c.TimerArm, "suspend_ns": &c.Suspend, "interrupt_nic_ns": &c.InterruptNIC,
		"interrupt_timer_ns": &c.InterruptTimer, "idle_exit_nic_ns": &c.IdleExitNIC,
		"softirq_raise_ns": &c.SoftirqRaise, "epoll_wait_ns": &c.EpollWait,
		"epoll_event_ns": &c.EpollEvent, "sleep_ns": &c.Sleep, "wake_ns": &c.Wake,
		"idle_exit_ns": &c.IdleExit, "idle_exit_deep_ns": &c.IdleExitDeep,
		"interference_ns":        &c.Interference,
		"interference_packet_ns": &c.InterferencePacket, "reuse_ns": &c.Reuse,
		"cold_ns": &c.Cold, "displaced_ns": &c.Displaced, "displaced_near_ns": &c.DisplacedNear,
	}
}

// Check refuses a negative cost by name.
func (c *CostModel) Check() error {
	if c.IdleDeepTime < 0 {
		return fmt.Errorf("cost idle_deep_time_ns is %d: must not be negative", int64(c.IdleDeepTime))
	}
	if !(c.BusyPollContention >= 0 && c.BusyPollContention <= 0.95) {
		return fmt.Errorf("cost busy_poll_contention is %v: must be in 0 to 0.95", c.BusyPollContention)
	}
	if !(c.StackShare >= 0 && c.StackShare <= 1) {
		return fmt.Errorf("cost stack_share is %v: must be in 0 to 1", c.StackShare)
	}
	for _, f := range c.ServiceShape {
		if !(f >= 0 && f <= maxShape) {
			return fmt.Errorf("cost service_shape has %v: must be in 0 to %d", f, maxShape)
		}
	}
	if c.ExponentialService && len(c.ServiceShape) > 0 {
		return errors.New("cost exponential_service and service_shape exclude each other")
	}
	for name, d := range c.durations() {
		if *d < 0 {
			return fmt.Errorf("cost %s is %d: must not be negative", name, int64(*d))
		}
	}
	return nil
}
