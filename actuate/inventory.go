package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"autotune/model"
)

// NAPIs lists the NAPI instances of the selected interfaces with the settings
// read back, ordered by queue. It takes two dumps per device, and notices
// instances that were made anew (see [Host.Events]).
//
// A queue that cannot be read is missing, and named by a [model.QueueError] in
// the joined error: [model.ErrLinkDown] while the interface is down,
// [model.ErrGone] when it, the queue or the namespace no longer exists. After
// the namespace's name was deleted only Restore and Close make sense: the
// Host's own sockets are what keeps it alive.
func (h *Host) NAPIs(ctx context.Context) ([]model.NAPI, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen, err := h.observe(ctx)
	var out []model.NAPI
	for _, q := range slices.SortedFunc(maps.Keys(seen), model.Queue.Compare) {
		out = append(out, seen[q].model())
	}
	return out, err
}

// sighting is one instance as just read.
type sighting struct {
	queue    model.Queue
	device   *device
	mapped   mapped
	settings model.Settings
}

func (s sighting) model() model.NAPI {
	return model.NAPI{
		Queue: s.queue, ID: s.mapped.napi.ID, Ifname: s.device.link.Name, Driver: s.device.link.Driver,
		IRQ: s.mapped.napi.IRQ, PID: s.mapped.napi.PID, Threaded: s.mapped.napi.Threaded,
		Mapping: s.mapped.mapping, Settings: s.settings,
	}
}

func (h *Host) observe(ctx context.Context) (map[model.Queue]sighting, error) {
	if h.kernel == nil {
		return nil, errors.New("list NAPIs: the host is closed")
	}
	if err := h.kernel.Alive(); err != nil {
		return nil, h.failAll(nil, err)
	}
	seen := map[model.Queue]sighting{}
	var errs []error
	for _, d := range h.devices {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		present, n, err := h.list(d)
		if err == nil && len(present) == 0 {
			if h.everyLink && !h.tracks(d) {
				continue
			}
			err = h.emptyDevice(d)
		}
		if err != nil {
			errs = append(errs, h.failAll(d, err))
			continue
		}
		d.counts = n
		if h.scope == ScopeDevice {
			err = h.sightDevice(d, present, seen)
			if err != nil {
				errs = append(errs, h.failAll(d, err))
				continue
			}
		} else {
			errs = append(errs, h.sightQueues(d, present, seen))
		}
		for _, t := range h.units {
			for _, q := range t.queues {
				if _, ok := seen[q]; t.device == d && !ok {
					errs = append(errs, &model.QueueError{Queue: q, Op: "napi-get",
						Err: fmt.Errorf("%s no longer has this queue: %w", d.link.Name, model.ErrGone)})
				}
			}
		}
	}
	return seen, errors.Join(errs...)
}

// sightQueues takes note of queues that are set one by one.
func (h *Host) sightQueues(d *device, present []mapped, seen map[model.Queue]sighting) error {
	var errs []error
	for _, m := range present {
		s := sighting{queue: queueOf(h.kernel, d.link.Index, m.index), device: d, mapped: m}
		var err error
		if s.settings, err = napiSettings(m.napi); err != nil {
			errs = append(errs, &model.QueueError{Queue: s.queue, Op: "napi-get", Err: err})
		}
		seen[s.queue] = s
		h.follow(s)
	}
	return errors.Join(errs...)
}

// sightDevice takes note of a device whose queues are set together. What its
// instances are called does not matter: the values are the device's.
func (h *Host) sightDevice(d *device, present []mapped, seen map[model.Queue]sighting) error {
	settings, err := deviceTarget{h.kernel, d.link.Index}.read()
	if err != nil {
		return err
	}
	t := h.units[queueOf(h.kernel, d.link.Index, WholeDevice)]
	if t == nil && h.readOnly {
		h.trackDevice(d, present)
	}
	for _, m := range present {
		q := queueOf(h.kernel, d.link.Index, m.index)
		seen[q] = sighting{queue: q, device: d, mapped: m, settings: settings}
		if t != nil {
			t.cover(q)
		}
	}
	return nil
}

func (h *Host) tracks(d *device) bool {
	for _, t := range h.units {
		if t.device == d {
			return true
		}
	}
	return false
}

// failAll is the failure of all queues of a device, or of the host.
func (h *Host) failAll(d *device, err error) error {
	const op = "napi-get"
	var errs []error
	for _, key := range slices.SortedFunc(maps.Keys(h.units), model.Queue.Compare) {
		t := h.units[key]
		for _, q := range t.queues {
			if d == nil || t.device == d {
				errs = append(errs, &model.QueueError{Queue: q, Op: op, Err: err})
			}
		}
	}
	if len(errs) == 0 {
		// A device that never had a queue is still worth a word.
		name := "network namespace"
		if d != nil {
			name = d.link.Name
		}
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	return errors.Join(errs...)
}

// follow notices that the queue is served by another instance than before.
// What the kernel gave the new one, the device-level values and a suspend
// timeout that survived in reused memory, is then what we expect of it.
func (h *Host) follow(s sighting) {
	t, known := h.units[s.queue]
	if !known {
		if h.readOnly {
			h.trackQueue(s.device, s.mapped)
		}
		return
	}
	if t.id == s.mapped.napi.ID {
		return
	}
	h.events.add(Rebind{Queue: t.key, Ifname: s.device.link.Name, OldID: t.id, NewID: s.mapped.napi.ID, Found: s.settings})
	t.id = s.mapped.napi.ID
	if t.yielded != nil {
		return
	}
	origins := origins{kernel: h.kernel, link: s.device.link, base: s.device.base}
	for _, k := range knobs() {
		found := k.of(s.settings)
		if !t.owned(k, found) && found != k.of(t.original) && !origins.kernelsOwn(k, found) {
			t.yielded = foreign(t.expected, s.settings)
			return
		}
	}
	t.expected, t.unconfirmed = s.settings, nil
}

func foreign(expected, found model.Settings) error {
	return fmt.Errorf("expected %v, found %v: %w", full(expected), full(found), model.ErrForeignWrite)
}

// full shows all three knobs, also a suspend timeout of zero.
func full(s model.Settings) string {
	return fmt.Sprintf("defer=%d,flush=%v,suspend=%v", s.DeferHardIRQs, s.GROFlushTimeout, s.IRQSuspendTimeout)
}
