package actuate

import (
	"errors"
	"fmt"
	"slices"

	"autotune/actuate/netdev"
	"autotune/model"
)

// Scope is how far one setting reaches.
type Scope string

// The scopes. The host's kernel decides.
const (
	// ScopeNAPI sets each NAPI instance on its own, by napi-set.
	ScopeNAPI Scope = "napi"
	// ScopeDevice sets all instances of a device at once, by its sysfs
	// files napi_defer_hard_irqs and gro_flush_timeout (Linux 5.8). It is the
	// fall-back for kernels without napi-set (before 6.13). There is no suspend
	// timeout.
	ScopeDevice Scope = "device"
)

// WholeDevice is the index of a [model.Queue] that stands for all receive
// queues of its device, in reports of [ScopeDevice].
const WholeDevice = -1

// ErrOneSetting says that the queues of one device cannot differ: see
// [ScopeDevice].
var ErrOneSetting = errors.New("all queues of a device have one setting on this kernel")

// ErrNoSuspend says that a kernel has no irq-suspend-timeout.
var ErrNoSuspend = errors.New("no interrupt suspension on this kernel")

// Scope returns how far a setting of one queue reaches, on all devices of the
// host.
func (h *Host) Scope() Scope { return h.scope }

// DeviceWide returns why settings reach a whole device: what napi-set or
// napi-get answered. It is nil with [ScopeNAPI].
func (h *Host) DeviceWide() error { return h.deviceWide }

// findScope finds out what the kernel can set. It changes nothing.
func (h *Host) findScope() error {
	h.scope = ScopeNAPI
	err := h.kernel.CheckSet()
	switch {
	case errors.Is(err, netdev.ErrUnsupported):
		h.scope, h.deviceWide = ScopeDevice, err
		return nil
	case err != nil:
		return err
	}
	for _, d := range h.devices {
		napis, err := h.kernel.NAPIs(d.link.Index)
		if err != nil || len(napis) == 0 {
			continue // what is wrong with the device is said when it is listed
		}
		if !slices.ContainsFunc(napis, reportsValues) {
			h.scope = ScopeDevice
			h.deviceWide = fmt.Errorf("napi-get reports neither %s nor %s: %w",
				netdev.AttrDeferHardIRQs, netdev.AttrGROFlushTimeout, netdev.ErrUnsupported)
		}
		return nil
	}
	return nil
}

func reportsValues(n netdev.NAPI) bool { return n.DeferHardIRQs != nil || n.GROFlushTimeout != nil }

// list reads the queues of a device.
func (h *Host) list(d *device) ([]mapped, counts, error) {
	present, n, err := listQueues(h.kernel, d.link.Index)
	if h.scope == ScopeDevice && errors.Is(err, netdev.ErrUnsupported) {
		return listWithoutIDs(h.kernel, d.link.Index)
	}
	return present, n, err
}

// listWithoutIDs lists receive queues where the kernel does not list NAPI
// instances (before 6.8): which instance serves a queue, and whether one does
// at all, is not known then. Devices without a driver of their own (loopback,
// stacked ones) have none.
func listWithoutIDs(k Kernel, ifindex int) ([]mapped, counts, error) {
	link, err := k.LinkAt(ifindex)
	if err != nil || !link.Up || link.Driver == "" || link.stacked() {
		return nil, counts{}, err
	}
	n, err := k.RxQueues(link)
	if err != nil {
		return nil, counts{}, err
	}
	out := make([]mapped, n)
	for i := range out {
		out[i] = mapped{index: i, napi: netdev.NAPI{Ifindex: ifindex}, mapping: model.MappingNone}
	}
	return out, counts{receive: n}, nil
}

// Leads returns, for each queue, the queue that stands for what is set with
// it: itself with [ScopeNAPI], and the first of its device with
// [ScopeDevice]. A loop that decides per queue has to decide for the leads
// only, upon what all queues behind each did.
func (h *Host) Leads() map[model.Queue]model.Queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[model.Queue]model.Queue{}
	for _, t := range h.units {
		lead := slices.MinFunc(t.queues, model.Queue.Compare)
		for _, q := range t.queues {
			out[q] = lead
		}
	}
	return out
}
