package actuate

import (
	"fmt"
	"time"

	"autotune/actuate/netdev"
	"autotune/model"
)

// Knob names one tunable value of a NAPI instance as the netdev family does.
type Knob string

// The knobs.
const (
	KnobDefer   Knob = netdev.AttrDeferHardIRQs
	KnobFlush   Knob = netdev.AttrGROFlushTimeout
	KnobSuspend Knob = netdev.AttrIRQSuspendTimeout
)

// knobs lists them in a fixed order.
func knobs() [3]Knob { return [3]Knob{KnobDefer, KnobFlush, KnobSuspend} }

// of returns the knob's value in s, in the kernel's unit (a count, or
// nanoseconds).
func (k Knob) of(s model.Settings) uint64 {
	switch k {
	case KnobDefer:
		return uint64(s.DeferHardIRQs)
	case KnobFlush:
		return uint64(s.GROFlushTimeout)
	default:
		return uint64(s.IRQSuspendTimeout)
	}
}

// with returns s with the knob set to v.
func (k Knob) with(s model.Settings, v uint64) model.Settings {
	switch k {
	case KnobDefer:
		s.DeferHardIRQs = uint32(v)
	case KnobFlush:
		s.GROFlushTimeout = time.Duration(v)
	default:
		s.IRQSuspendTimeout = time.Duration(v)
	}
	return s
}

// sysfs is the name of the device's file.
func (k Knob) sysfs() string {
	if k == KnobDefer {
		return "napi_defer_hard_irqs"
	}
	return "gro_flush_timeout"
}

// format shows a value of the knob with its unit.
func (k Knob) format(v uint64) string {
	if k == KnobDefer {
		return fmt.Sprint(v)
	}
	return time.Duration(v).String()
}

// update returns what napi-set has to send for the given knobs of to.
func update(to model.Settings, which ...Knob) netdev.NAPIUpdate {
	var u netdev.NAPIUpdate
	for _, k := range which {
		switch k {
		case KnobDefer:
			u.DeferHardIRQs = &to.DeferHardIRQs
		case KnobFlush:
			u.GROFlushTimeout = &to.GROFlushTimeout
		case KnobSuspend:
			u.IRQSuspendTimeout = &to.IRQSuspendTimeout
		}
	}
	return u
}

// steps returns the updates that lead from one setting to another. Suspension
// without deferral would leave the queue to the safety timer alone, so it is
// turned off before deferral changes, and on after.
func steps(from, to model.Settings) []netdev.NAPIUpdate {
	var deferral []Knob
	for _, k := range [2]Knob{KnobDefer, KnobFlush} {
		if k.of(from) != k.of(to) {
			deferral = append(deferral, k)
		}
	}
	suspend := from.IRQSuspendTimeout != to.IRQSuspendTimeout
	switch {
	case !suspend && len(deferral) == 0:
		return nil
	case !suspend:
		return []netdev.NAPIUpdate{update(to, deferral...)}
	case len(deferral) == 0:
		return []netdev.NAPIUpdate{update(to, KnobSuspend)}
	case to.IRQSuspendTimeout == 0:
		return []netdev.NAPIUpdate{update(to, KnobSuspend), update(to, deferral...)}
	default:
		return []netdev.NAPIUpdate{update(to, deferral...), update(to, KnobSuspend)}
	}
}
