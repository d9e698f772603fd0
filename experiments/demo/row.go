package demo

import "time"

// Row is what one contender did in one phase of one round, from the first to
// the last moment of the phase: the time that a tuner takes to adapt to the
// load counts. Null means not known.
type Row struct {
	// Round counts from 1, Turn is the contender's place in it, from 1.
	Round     int    `json:"round"`
	Turn      int    `json:"turn"`
	Contender string `json:"contender"`
	// Phase is the phase's name, and PhaseIndex its place, from 0.
	Phase      string `json:"phase"`
	PhaseIndex int    `json:"phase_index"`
	Load       Load   `json:"load"`
	// Span is how long the phase was measured, by the clock.
	Span time.Duration `json:"span_ns"`

	// Offered is the rate of intended sends, Achieved that of answers.
	Offered  float64 `json:"offered_req_per_s"`
	Achieved float64 `json:"achieved_req_per_s"`
	// Requests were answered. Excluded of them overlapped a scheduling gap of
	// client or server, and are left out of P50, P90 and P99 but not of the
	// raw ones. Latencies count from the intended send.
	Requests uint64         `json:"requests"`
	Excluded uint64         `json:"excluded_requests"`
	P50      *time.Duration `json:"p50_ns"`
	P90      *time.Duration `json:"p90_ns"`
	P99      *time.Duration `json:"p99_ns"`
	RawP50   *time.Duration `json:"raw_p50_ns"`
	RawP90   *time.Duration `json:"raw_p90_ns"`
	RawP99   *time.Duration `json:"raw_p99_ns"`
	// DelayP50 and DelayP90 are of the server-side delay that the probes saw.
	DelayP50 *time.Duration `json:"server_delay_p50_ns"`
	DelayP90 *time.Duration `json:"server_delay_p90_ns"`

	// ServerCPU is the CPU time of the server process, NAPICPU that of the
	// NAPI's thread.
	ServerCPU *time.Duration `json:"server_cpu_ns"`
	NAPICPU   *time.Duration `json:"napi_thread_cpu_ns"`
	// TunerCPU is that of the process that probes, tunes and reports. It is
	// not part of CPUPerRequest.
	TunerCPU *time.Duration `json:"tuner_cpu_ns"`
	// OtherCPU is the share of the server's CPU that went to anything but
	// server and NAPI thread: the tuner, other processes, interrupts, and what
	// the hypervisor stole.
	OtherCPU *float64 `json:"other_cpu_share"`
	// CPUPerRequest is ServerCPU and NAPICPU over Requests, in nanoseconds.
	CPUPerRequest *float64 `json:"cpu_per_request_ns"`

	// Observed is how much of Span the tuner's samples cover. A sample counts
	// for the phase in which its middle lies.
	Observed time.Duration `json:"observed_ns"`
	// Polls by who ran them, and fires of the NAPI's timer, over Observed.
	SoftirqPolls     *uint64 `json:"softirq_polls"`
	ThreadPolls      *uint64 `json:"thread_polls"`
	ApplicationPolls *uint64 `json:"application_polls"`
	TimerFires       *uint64 `json:"timer_fires"`
	// LostEvents were dropped by the probes.
	LostEvents *uint64 `json:"lost_events"`

	// Raised and Lowered count the changes of settings that were read back:
	// towards more deferral, and towards less. What Stop restores after the
	// last phase is not among them.
	Raised  int `json:"raised"`
	Lowered int `json:"lowered"`
	// MeanFlush is the flush timeout averaged over the phase's samples.
	MeanFlush *time.Duration `json:"mean_gro_flush_timeout_ns"`
}

// cpuPerRequest is CPUPerRequest, or NaN-free false where it is not known.
func (r Row) cpuPerRequest() (float64, bool) {
	if r.CPUPerRequest == nil || *r.CPUPerRequest <= 0 {
		return 0, false
	}
	return *r.CPUPerRequest, true
}

// Window is a point of the timeline: what was seen in one window.
type Window struct {
	Round      int    `json:"round"`
	Contender  string `json:"contender"`
	Phase      string `json:"phase"`
	PhaseIndex int    `json:"phase_index"`
	// At is the end of the window since the contender's turn began.
	At            time.Duration  `json:"at_ns"`
	Span          time.Duration  `json:"span_ns"`
	Achieved      float64        `json:"achieved_req_per_s"`
	P50           *time.Duration `json:"p50_ns"`
	P90           *time.Duration `json:"p90_ns"`
	CPUPerRequest *float64       `json:"cpu_per_request_ns"`
	// Flush and Defer are the settings read back at the end of the window.
	Flush *time.Duration `json:"gro_flush_timeout_ns"`
	Defer *uint32        `json:"defer_hard_irqs"`
}
