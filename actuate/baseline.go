package actuate

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"autotune/model"
)

// saveBaseline makes the originals durable, and then names this run in the
// locks: a record always has a state to go with it.
func (h *Host) saveBaseline(system System) error {
	bootID, err := system.BootID()
	if err != nil {
		return err
	}
	base := &baseline{
		Version: stateVersion, BootID: bootID,
		Namespace: namespaceIdentity{
			Inode: h.kernel.Inode(), Cookie: h.kernel.Cookie(), NamespaceRef: absolute(h.kernel.Namespace()),
		},
	}
	for _, d := range h.devices {
		record := baselineDevice{Ifname: d.link.Name, Ifindex: d.link.Index, MAC: d.link.MAC, Scope: h.scope}
		defaults, err := h.kernel.Defaults(d.link)
		switch {
		case err == nil:
			record.Defaults = (*defaultsRecord)(&defaults)
		case errors.Is(err, os.ErrPermission):
			// In a container without CAP_SYS_ADMIN; they are only missed
			// should an instance be made anew.
		default:
			return err
		}
		d.base = record.Defaults
		for _, q := range slices.SortedFunc(maps.Keys(h.units), model.Queue.Compare) {
			t := h.units[q]
			if t.device == d && t.untunable == nil {
				original := t.original
				record.Queues = append(record.Queues, baselineQueue{Index: q.Index, NAPIID: t.id, Original: &original})
			}
		}
		base.Devices = append(base.Devices, record)
	}
	if err := h.files.save(baselineFile, base); err != nil {
		return err
	}
	h.base = base
	for _, d := range h.devices {
		l, err := h.held.device(h.kernel.Inode(), d.link.Index, d.link.Name)
		if err != nil {
			return err
		}
		h.files.at("claim " + d.link.Name)
		if err := l.claim(Owner{
			PID: os.Getpid(), StateDir: h.files.dir, BootID: bootID,
			Netns: h.kernel.Inode(), Cookie: h.kernel.Cookie(), Ifname: d.link.Name, Ifindex: d.link.Index, MAC: d.link.MAC,
		}); err != nil {
			return err
		}
	}
	return nil
}

// absolute makes the reference usable from another working directory and
// process: the caller's own namespace is that of this process for now.
func absolute(ref NamespaceRef) NamespaceRef {
	if ref == (NamespaceRef{}) {
		return NamespaceRef{PID: os.Getpid()}
	}
	if ref.Path != "" {
		if path, err := filepath.Abs(ref.Path); err == nil {
			ref.Path = path
		}
	}
	return ref
}
