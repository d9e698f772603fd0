package model

import (
	"encoding/json"
	"fmt"
	"time"
)

// Settings is the whole desired or observed state of one queue: the NAPI
// instance, as netdev-genl's napi-get reports it and napi-set takes it, and how
// applications busy poll it.
type Settings struct {
	// DeferHardIRQs is the number of consecutive empty polls for which the
	// device interrupt stays masked (defer-hard-irqs).
	DeferHardIRQs uint32
	// GROFlushTimeout is the small timer (gro-flush-timeout). With
	// DeferHardIRQs set it starts the next poll, and so bounds the latency
	// that deferral adds. Whole nanoseconds; zero is off.
	GROFlushTimeout time.Duration
	// IRQSuspendTimeout is the large timer (irq-suspend-timeout): how long
	// interrupts stay suspended while an application that prefers busy
	// polling is processing events. Zero is off.
	IRQSuspendTimeout time.Duration
	// BusyPoll is the application's side: what the epoll contexts on the queue
	// are set to. netdev-genl knows nothing of it; whoever reads settings back
	// from there leaves it zero.
	BusyPoll BusyPoll
}

// Mode names which of the kernel's three delivery loops the settings allow.
type Mode string

// The modes, from the least to the most that settings defer.
const (
	ModeInterrupts Mode = "interrupts"
	ModeDeferral   Mode = "deferral"
	ModeSuspension Mode = "suspension"
)

// Mode reports the delivery loop that s selects. Deferral needs both the defer
// count and the flush timeout (napi_complete_done in net/core/dev.c); suspension
// without deferral has almost no effect and counts as what it does.
func (s Settings) Mode() Mode {
	switch {
	case s.DeferHardIRQs == 0 || s.GROFlushTimeout == 0:
		return ModeInterrupts
	case s.IRQSuspendTimeout == 0:
		return ModeDeferral
	default:
		return ModeSuspension
	}
}

// String returns the settings in the notation of policy specs.
func (s Settings) String() string {
	out := fmt.Sprintf("defer=%d,flush=%v", s.DeferHardIRQs, s.GROFlushTimeout)
	if s.IRQSuspendTimeout != 0 {
		out += fmt.Sprintf(",suspend=%v", s.IRQSuspendTimeout)
	}
	if s.BusyPoll != (BusyPoll{}) {
		out += "," + s.BusyPoll.String()
	}
	return out
}

type settingsJSON struct {
	DeferHardIRQs     uint32 `json:"defer_hard_irqs"`
	GROFlushTimeout   int64  `json:"gro_flush_timeout_ns"`
	IRQSuspendTimeout int64  `json:"irq_suspend_timeout_ns"`
	// The three are null together, where the application's own hold.
	BusyPoll       *int64  `json:"busy_poll_ns"`
	BusyPollBudget *uint16 `json:"busy_poll_budget"`
	PreferBusyPoll *bool   `json:"prefer_busy_poll"`
}

// MarshalJSON writes the field names of the project's JSON, with units.
func (s Settings) MarshalJSON() ([]byte, error) {
	out := settingsJSON{
		DeferHardIRQs:     s.DeferHardIRQs,
		GROFlushTimeout:   int64(s.GROFlushTimeout),
		IRQSuspendTimeout: int64(s.IRQSuspendTimeout),
	}
	if b := s.BusyPoll; b != (BusyPoll{}) {
		usecs := int64(b.Span)
		out.BusyPoll, out.BusyPollBudget, out.PreferBusyPoll = &usecs, &b.Budget, &b.Prefer
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what [Settings.MarshalJSON] writes.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var in settingsJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = Settings{
		DeferHardIRQs:     in.DeferHardIRQs,
		GROFlushTimeout:   time.Duration(in.GROFlushTimeout),
		IRQSuspendTimeout: time.Duration(in.IRQSuspendTimeout),
	}
	if in.BusyPoll != nil {
		s.BusyPoll.Span = time.Duration(*in.BusyPoll)
	}
	if in.BusyPollBudget != nil {
		s.BusyPoll.Budget = *in.BusyPollBudget
	}
	if in.PreferBusyPoll != nil {
		s.BusyPoll.Prefer = *in.PreferBusyPoll
	}
	return nil
}

// Config is the state of a set of queues: desired when it goes into an
// actuator, read back when it comes out.
type Config map[Queue]Settings
