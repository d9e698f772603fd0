package sim

import (
	"math"
	"time"

	"autotune/model"
)

// Scheduling says how often the scheduler runs a thread away from the core of
// its NAPI: with probability Probability x utilisation ^ Exponent, decided
// anew each Epoch, and each tenth of it when the thread wakes. Far x
// utilisation ^ FarExponent is the share of displacements to a core that shares
// no cache with the NAPI's: the scheduler goes there when no nearer core is idle.
type Scheduling struct {
	Far         float64       `json:"displaced_far_share"`
	FarExponent float64       `json:"displaced_far_exponent"`
	Probability float64       `json:"displaced_probability"`
	Exponent    float64       `json:"displaced_exponent"`
	Epoch       time.Duration `json:"displaced_epoch_ns"`
	// Hold takes the place of Epoch while the thread's busy polls serve the NAPI,
	// or its softirq has followed the thread to another core: the scheduler then
	// has less to balance than where softirqs take CPU from whoever is there. Zero
	// is Epoch.
	Hold time.Duration `json:"displaced_hold_ns"`
	// CatchUp is the mean time in which a thread that busy polls gets ahead of
	// the softirq on another core, which can be short of time where several
	// queues' meet: the NAPI then follows the thread. Where it is zero, NAPIs
	// count as being at their interrupts' cores always.
	CatchUp time.Duration `json:"catch_up_ns"`
}

// NIC is the device: its rings and its interrupt moderation.
type NIC struct {
	// Ring is the number of receive descriptors per queue.
	Ring int `json:"ring"`
	// RxTime and RxPackets are the receive moderation, TxTime and TxPackets
	// that of transmit completions: an interrupt after so much time or so many
	// packets. Zero time and packets interrupt at once.
	RxTime    time.Duration `json:"rx_time_ns"`
	RxPackets int           `json:"rx_packets"`
	TxTime    time.Duration `json:"tx_time_ns"`
	TxPackets int           `json:"tx_packets"`
	// RestartTimer restarts the receive timer with each packet (CQE mode);
	// otherwise it runs from the first.
	RestartTimer bool `json:"restart_timer"`
	// AdaptiveRx and AdaptiveTx let the kernel's DIM choose the moderation
	// from its profiles.
	AdaptiveRx bool `json:"adaptive_rx"`
	AdaptiveTx bool `json:"adaptive_tx"`
	// AffinityBound has the driver end polling on a core outside the interrupt's
	// affinity after a full poll, which it reports as one packet less, so that
	// the NAPI completes (mlx5e_napi_poll()).
	AffinityBound bool `json:"affinity_bound"`
	// ScheduledBySender tells that the core which sends a packet schedules the
	// receiving NAPI itself, as veth does: the host knows of the packet before the
	// receiving core has left idle.
	ScheduledBySender bool `json:"scheduled_by_sender,omitempty"`
	// ApplyDelay is from DIM's decision to the profile's effect.
	ApplyDelay time.Duration `json:"apply_delay_ns"`
	// TxDelay is from a send to its completion in the transmit ring.
	TxDelay time.Duration `json:"tx_delay_ns"`
	// TxJitter is the mean of an exponential addition to it. Completions stay
	// in order.
	TxJitter time.Duration `json:"tx_jitter_ns"`
	// RateNoise is how much burstier than the simulated arrivals those are whose
	// rates DIM compares: the relative standard deviation of n packets is
	// RateNoise / sqrt(n) on top, and TxRateNoise / sqrt(n) of those sent. It is
	// the open-loop client's; a closed loop paces itself.
	// Where it is above DIM's 10%, the profile walks at random, which is what
	// the published runs look like on the receive side.
	RateNoise   float64 `json:"rate_noise"`
	TxRateNoise float64 `json:"tx_rate_noise"`
	// RequestBytes and ACKBytes are what a received packet counts in DIM's
	// comparison of bytes.
	RequestBytes int `json:"request_bytes"`
	ACKBytes     int `json:"ack_bytes"`
}

// Client is the load generator and the network: what is added to the host's
// own delay before the client sees a response.
type Client struct {
	// RoundTrip is constant, Jitter the mean of an exponential addition, and
	// JitterLoad what that grows by per million requests/s.
	RoundTrip  time.Duration `json:"round_trip_ns"`
	Jitter     time.Duration `json:"jitter_ns"`
	JitterLoad time.Duration `json:"jitter_per_million_ns"`
	// Bump is added to a share of the responses (the client coalesces
	// interrupts too): BumpShare + BumpShareLoad x (million requests/s).
	Bump          time.Duration `json:"bump_ns"`
	BumpJitter    time.Duration `json:"bump_jitter_ns"`
	BumpShare     float64       `json:"bump_share"`
	BumpShareLoad float64       `json:"bump_share_per_million"`
	// Think is a closed-loop client's time from a response to its next
	// request.
	Think time.Duration `json:"think_ns"`
	// ACKShare is the share of responses that are acknowledged by a packet of
	// their own, 0 to 1; the others are by the next request.
	ACKShare float64 `json:"ack_share"`
	// Retry is the retransmission timeout after a request was dropped; it
	// doubles each time.
	Retry time.Duration `json:"retry_ns"`
}

// Host is the shape of the simulated machine.
type Host struct {
	// Queues is the number of receive queues; each has a core and an
	// application thread.
	Queues int `json:"queues"`
	// Connections is the number of connections, each with at most one request
	// outstanding, and Imbalance the relative standard deviation of their
	// number per queue.
	Connections int     `json:"connections"`
	Imbalance   float64 `json:"imbalance"`
	// HeaviestShare, above zero, is the share of the connections on the last
	// queue, whatever the imbalance of the others.
	HeaviestShare float64 `json:"heaviest_share"`
	// ThreadedNAPI polls in a kernel thread that shares the core with the
	// application's and runs when that sleeps, instead of in the softirq of an
	// interrupt.
	ThreadedNAPI bool `json:"threaded_napi"`
	// ClockMHz converts CPU time to cycles.
	ClockMHz float64 `json:"clock_mhz"`
}

// Background is what other NAPI instances of the measured host do, in polls
// per second. It costs the simulated cores nothing and is no part of samples;
// it is added where system-wide counts are compared.
type Background struct {
	// Polls find one packet each.
	Polls float64 `json:"polls_per_s"`
	// EmptyInterrupts are empty polls of instances with interrupts only,
	// EmptyDeferral those with deferral, and EmptyTimer those that a flush
	// timeout of g causes: EmptyTimer / (1 + (g/TimerScale)^1.5).
	EmptyInterrupts float64       `json:"empty_polls_interrupts_per_s"`
	EmptyDeferral   float64       `json:"empty_polls_deferral_per_s"`
	EmptyTimer      float64       `json:"empty_polls_timer_per_s"`
	TimerScale      time.Duration `json:"timer_scale_ns"`
}

// empty returns the empty polls per second at a setting.
func (b *Background) empty(s model.Settings) float64 {
	if s.Mode() == model.ModeInterrupts {
		return b.EmptyInterrupts
	}
	total := b.EmptyDeferral
	if b.TimerScale > 0 {
		total += b.EmptyTimer / (1 + math.Pow(float64(s.GROFlushTimeout)/float64(b.TimerScale), 1.5))
	}
	return total
}
