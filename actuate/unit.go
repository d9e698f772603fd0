package actuate

import (
	"fmt"
	"slices"

	"autotune/actuate/netdev"
	"autotune/model"
)

type device struct {
	link   Link
	counts counts
	base   *defaultsRecord
}

// tracked is what is known of one unit: what is set as one. It is a queue, or,
// where settings reach the whole device, all queues of it.
type tracked struct {
	// key is the queue, or the device with the index [WholeDevice].
	key    model.Queue
	device *device
	// queues are those that the unit covers.
	queues []model.Queue
	// id is the NAPI instance; 0 for a whole device.
	id       uint32
	original model.Settings
	// expected was read back last, and is what the unit must still be set to
	// before the next write.
	expected model.Settings
	// unconfirmed was sent, but not read back since.
	unconfirmed *model.Settings
	// yielded says why the unit belongs to another writer now; nil while it
	// is ours.
	yielded error
	// untunable says why the unit can never be written; nil mostly.
	untunable error
}

// owned reports whether a present value is one that we left.
func (t *tracked) owned(k Knob, value uint64) bool {
	return value == k.of(t.expected) || t.unconfirmed != nil && value == k.of(*t.unconfirmed)
}

func (t *tracked) ownsAll(present model.Settings) bool {
	for _, k := range knobs() {
		if !t.owned(k, k.of(present)) {
			return false
		}
	}
	return true
}

// cover adds a queue to the unit.
func (t *tracked) cover(q model.Queue) {
	if !slices.Contains(t.queues, q) {
		t.queues = append(t.queues, q)
	}
}

// unit returns the unit that a queue is set with; nil where it has none.
func (h *Host) unit(q model.Queue) *tracked { return h.units[h.key(q)] }

func (h *Host) key(q model.Queue) model.Queue {
	if h.scope == ScopeDevice {
		q.Index = WholeDevice
	}
	return q
}

// trackQueue takes up a queue that is set on its own.
func (h *Host) trackQueue(d *device, m mapped) {
	settings, err := napiSettings(m.napi)
	if err == nil {
		err = restorable(settings)
	}
	q := queueOf(h.kernel, d.link.Index, m.index)
	h.units[q] = &tracked{
		key: q, device: d, queues: []model.Queue{q}, id: m.napi.ID, original: settings, expected: settings, untunable: err,
	}
}

// trackDevice takes up all queues of a device as one.
func (h *Host) trackDevice(d *device, present []mapped) {
	settings, err := deviceTarget{h.kernel, d.link.Index}.read()
	if err == nil {
		err = restorable(settings)
	}
	for _, m := range present {
		if err == nil {
			err = followsDevice(m.napi, settings)
		}
	}
	t := &tracked{
		key: queueOf(h.kernel, d.link.Index, WholeDevice), device: d, original: settings, expected: settings, untunable: err,
	}
	for _, m := range present {
		t.cover(queueOf(h.kernel, d.link.Index, m.index))
	}
	h.units[t.key] = t
}

// restorable refuses originals that could not be put back.
func restorable(s model.Settings) error {
	switch {
	case s.GROFlushTimeout == netdev.MaxTimeout || s.IRQSuspendTimeout == netdev.MaxTimeout:
		return fmt.Errorf("a timeout of %v and more could not be put back: %w", netdev.MaxTimeout, model.ErrReadOnly)
	case s.DeferHardIRQs > model.MaxDeferHardIRQs:
		// Kernels before the fix of CVE-2024-50018 take such counts.
		return fmt.Errorf("a defer count of %d, which is above %d, could not be put back: %w",
			s.DeferHardIRQs, uint32(model.MaxDeferHardIRQs), model.ErrReadOnly)
	default:
		return nil
	}
}

// followsDevice refuses a device of which an instance is set on its own: a
// device-wide write would overwrite what could not be put back.
func followsDevice(n netdev.NAPI, device model.Settings) error {
	own, reported := n.Settings()
	if !reported || own == device {
		return nil
	}
	return fmt.Errorf("NAPI %d is set to %v and its device to %v: setting the whole device would overwrite that: %w",
		n.ID, full(own), full(device), model.ErrReadOnly)
}
