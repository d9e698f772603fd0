package netdev

import (
	"fmt"
	"time"

	"autotune/model"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NAPI is one reply of napi-get. A nil field was not reported: attributes came
// with kernel versions (IRQ and PID only where the driver or a thread gives
// them, the timeouts from 6.13, Threaded from 6.17).
type NAPI struct {
	ID      uint32
	Ifindex int
	IRQ     *uint32
	// PID is that of the NAPI's kernel thread, in the caller's PID namespace.
	PID           *uint32
	DeferHardIRQs *uint32
	// GROFlushTimeout and IRQSuspendTimeout saturate at [MaxTimeout].
	GROFlushTimeout   *time.Duration
	IRQSuspendTimeout *time.Duration
	Threaded          *uint32
}

// MaxTimeout is where timeouts saturate: the kernel keeps them as unsigned
// long nanoseconds, of which the upper half does not fit a time.Duration. Such
// a value can be recognised, but not written back.
const MaxTimeout = time.Duration(1<<63 - 1)

// Settings returns the tunable values and whether the kernel reports all of
// them; a kernel that does not (6.8 to 6.12) cannot be tuned per NAPI.
func (n NAPI) Settings() (model.Settings, bool) {
	if n.DeferHardIRQs == nil || n.GROFlushTimeout == nil || n.IRQSuspendTimeout == nil {
		return model.Settings{}, false
	}
	return model.Settings{
		DeferHardIRQs:     *n.DeferHardIRQs,
		GROFlushTimeout:   *n.GROFlushTimeout,
		IRQSuspendTimeout: *n.IRQSuspendTimeout,
	}, true
}

// NAPIUpdate is what napi-set is to change. Only the fields that are set are
// sent; the kernel leaves the others alone.
type NAPIUpdate struct {
	// DeferHardIRQs is 0 to [model.MaxDeferHardIRQs].
	DeferHardIRQs *uint32
	// GROFlushTimeout and IRQSuspendTimeout are whole nanoseconds, not
	// negative.
	GROFlushTimeout   *time.Duration
	IRQSuspendTimeout *time.Duration
}

// Empty reports whether nothing is set.
func (u NAPIUpdate) Empty() bool {
	return u.DeferHardIRQs == nil && u.GROFlushTimeout == nil && u.IRQSuspendTimeout == nil
}

// Without returns u with the field of the named attribute unset.
func (u NAPIUpdate) Without(attr string) NAPIUpdate {
	switch attr {
	case AttrDeferHardIRQs:
		u.DeferHardIRQs = nil
	case AttrGROFlushTimeout:
		u.GROFlushTimeout = nil
	case AttrIRQSuspendTimeout:
		u.IRQSuspendTimeout = nil
	}
	return u
}

// check refuses what the kernel would refuse, or, before the fix of
// CVE-2024-50018, would take and overflow.
func (u NAPIUpdate) check() error {
	if u.DeferHardIRQs != nil && *u.DeferHardIRQs > model.MaxDeferHardIRQs {
		return fmt.Errorf("%s %d > %d: %w (%w)", AttrDeferHardIRQs, *u.DeferHardIRQs,
			uint32(model.MaxDeferHardIRQs), model.ErrOutOfBounds, unix.ERANGE)
	}
	for _, timeout := range []struct {
		name  string
		value *time.Duration
	}{{AttrGROFlushTimeout, u.GROFlushTimeout}, {AttrIRQSuspendTimeout, u.IRQSuspendTimeout}} {
		if timeout.value != nil && *timeout.value < 0 {
			return fmt.Errorf("%s %v is negative: %w (%w)", timeout.name, *timeout.value,
				model.ErrOutOfBounds, unix.ERANGE)
		}
	}
	return nil
}

// encode returns the request's attributes and where each begins, by which the
// offset in an extack names the attribute at fault.
func (u NAPIUpdate) encode(id uint32) (data []byte, layout []sentAttribute, err error) {
	ae := netlink.NewAttributeEncoder()
	offset := netlinkHeaderLen + genlHeaderLen
	add := func(attr uint16, put func(), payload int) {
		layout = append(layout, sentAttribute{attr: attr, offset: offset})
		put()
		offset += attributeHeaderLen + payload
	}
	add(attrNAPIID, func() { ae.Uint32(attrNAPIID, id) }, 4)
	if u.DeferHardIRQs != nil {
		add(attrNAPIDeferHardIRQs, func() { ae.Uint32(attrNAPIDeferHardIRQs, *u.DeferHardIRQs) }, 4)
	}
	if u.GROFlushTimeout != nil {
		add(attrNAPIGROFlushTimeout, func() { putUint(ae, attrNAPIGROFlushTimeout, uint64(*u.GROFlushTimeout)) },
			uintLen(uint64(*u.GROFlushTimeout)))
	}
	if u.IRQSuspendTimeout != nil {
		add(attrNAPIIRQSuspendTimeout, func() { putUint(ae, attrNAPIIRQSuspendTimeout, uint64(*u.IRQSuspendTimeout)) },
			uintLen(uint64(*u.IRQSuspendTimeout)))
	}
	data, err = ae.Encode()
	return data, layout, err
}

func parseNAPI(data []byte) (NAPI, error) {
	var n NAPI
	var hasID, hasIfindex bool
	err := decodeAttributes(data, "napi", napiAttrName, func(attr uint16, value []byte) error {
		switch attr {
		case attrNAPIIfindex:
			v, err := fixed32(value)
			n.Ifindex, hasIfindex = int(v), true
			return err
		case attrNAPIID:
			v, err := fixed32(value)
			n.ID, hasID = v, true
			return err
		case attrNAPIIRQ:
			return pointer32(&n.IRQ, value)
		case attrNAPIPID:
			return pointer32(&n.PID, value)
		case attrNAPIDeferHardIRQs:
			return pointer32(&n.DeferHardIRQs, value)
		case attrNAPIGROFlushTimeout:
			return pointerTimeout(&n.GROFlushTimeout, value)
		case attrNAPIIRQSuspendTimeout:
			return pointerTimeout(&n.IRQSuspendTimeout, value)
		case attrNAPIThreaded:
			v, err := decodeUint(value)
			if err != nil {
				return err
			}
			threaded := uint32(v)
			n.Threaded = &threaded
		}
		return nil
	})
	if err != nil {
		return NAPI{}, err
	}
	if !hasID || !hasIfindex {
		return NAPI{}, fmt.Errorf("napi reply without id or ifindex (%d bytes)", len(data))
	}
	return n, nil
}
