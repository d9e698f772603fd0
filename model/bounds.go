package model

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrOutOfBounds is wrapped by every refusal of a setting outside [Bounds].
var ErrOutOfBounds = errors.New("outside the hard bounds")

// MaxDeferHardIRQs is the kernel's own limit (S32_MAX in the netdev family's
// policy). Kernels before the fix of CVE-2024-50018 accept more and overflow,
// so autotune refuses it before sending.
const MaxDeferHardIRQs = math.MaxInt32

// Bounds are hard limits: no value outside them is ever written.
type Bounds struct {
	MaxDefer   uint32
	MaxFlush   time.Duration
	MaxSuspend time.Duration
	// MaxBusyPoll and MaxBudget bound the application's side.
	MaxBusyPoll time.Duration
	MaxBudget   uint16
}

// DefaultBounds returns the limits used unless a user widens them by an
// explicit flag: defer 2^31-1, flush 10 ms, suspend 1 s, busy polling 10 ms at
// a budget of 64, the most that the kernel grants without CAP_NET_ADMIN.
func DefaultBounds() Bounds {
	return Bounds{
		MaxDefer:    MaxDeferHardIRQs,
		MaxFlush:    10 * time.Millisecond,
		MaxSuspend:  time.Second,
		MaxBusyPoll: 10 * time.Millisecond,
		MaxBudget:   64,
	}
}

// Check returns an error wrapping [ErrOutOfBounds] that names the first field
// of s that lies outside b, its value and its limit.
func (b Bounds) Check(s Settings) error {
	switch {
	case s.DeferHardIRQs > min(b.MaxDefer, MaxDeferHardIRQs):
		return fmt.Errorf("defer-hard-irqs %d > %d: %w", s.DeferHardIRQs, min(b.MaxDefer, MaxDeferHardIRQs), ErrOutOfBounds)
	case s.GROFlushTimeout < 0 || s.GROFlushTimeout > b.MaxFlush:
		return fmt.Errorf("gro-flush-timeout %v not in 0 to %v: %w", s.GROFlushTimeout, b.MaxFlush, ErrOutOfBounds)
	case s.IRQSuspendTimeout < 0 || s.IRQSuspendTimeout > b.MaxSuspend:
		return fmt.Errorf("irq-suspend-timeout %v not in 0 to %v: %w", s.IRQSuspendTimeout, b.MaxSuspend, ErrOutOfBounds)
	case s.BusyPoll.Span < 0 || s.BusyPoll.Span > b.MaxBusyPoll:
		return fmt.Errorf("busy_poll_usecs %v not in 0 to %v: %w", s.BusyPoll.Span, b.MaxBusyPoll, ErrOutOfBounds)
	case s.BusyPoll.Budget > b.MaxBudget:
		return fmt.Errorf("busy_poll_budget %d > %d: %w", s.BusyPoll.Budget, b.MaxBudget, ErrOutOfBounds)
	}
	return nil
}

// Clamp returns s with every field moved to the nearest value within b, and
// whether anything moved.
func (b Bounds) Clamp(s Settings) (Settings, bool) {
	out := Settings{
		DeferHardIRQs:     min(s.DeferHardIRQs, b.MaxDefer, MaxDeferHardIRQs),
		GROFlushTimeout:   max(0, min(s.GROFlushTimeout, b.MaxFlush)),
		IRQSuspendTimeout: max(0, min(s.IRQSuspendTimeout, b.MaxSuspend)),
		BusyPoll: BusyPoll{
			Span:   max(0, min(s.BusyPoll.Span, b.MaxBusyPoll)),
			Budget: min(s.BusyPoll.Budget, b.MaxBudget),
			Prefer: s.BusyPoll.Prefer,
		},
	}
	return out, out != s
}
