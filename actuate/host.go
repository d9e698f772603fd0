package actuate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"autotune/actuate/placement"
	"autotune/model"
)

// Options say what a [Host] is to own.
type Options struct {
	// System is the kernel to work on; nil is this machine's.
	System System
	// Namespace is where the interfaces are; the zero value is the caller's.
	Namespace NamespaceRef
	// Ifaces are the interfaces by name. Empty is allowed with ReadOnly, and
	// means all that have a NAPI instance.
	Ifaces []string
	// StateDir keeps the originals; it is made where missing. Not used with
	// ReadOnly.
	StateDir string
	// RunDir keeps the device locks; empty is [DefaultRunDir].
	RunDir string
	// Bounds limit what is written; the zero value is
	// [model.DefaultBounds]. Otherwise every field counts.
	Bounds model.Bounds
	// ReadOnly opens no state and takes no lock, and Apply then writes
	// nothing.
	ReadOnly bool
}

// Device is one interface of a [Host].
type Device struct {
	Link Link
	// RxQueues is the number of receive queues in use.
	RxQueues int
	// Untunable counts the queues whose NAPI has no ID (transmission only).
	Untunable int
	// Scope is how far a setting of one of its queues reaches.
	Scope Scope
}

// Host owns the receive queues of the selected interfaces of one namespace.
// Methods are safe for concurrent use.
type Host struct {
	// Its files and locks are not set with ReadOnly.
	ledger
	kernel    Kernel
	readOnly  bool
	everyLink bool
	bounds    model.Bounds
	devices   []*device
	// scope is how far one setting reaches, and deviceWide why not just one
	// NAPI instance; nil where it does.
	scope      Scope
	deviceWide error
	// units are what is set as one, by [tracked.key].
	units     map[model.Queue]*tracked
	events    events
	recovered []Report
	restored  bool

	// placer moves threads and interrupts, and leftAlone is what another
	// writer has moved since.
	placer    placement.System
	leftAlone map[placement.Item]bool
}

// Open finds the interfaces and, unless ReadOnly, takes them over: it locks
// them, restores what a crashed run left (see [Host.Recovered]), and makes the
// originals durable.
//
// Interfaces that are down or have no NAPI are left out while others remain,
// and named by the first [Host.NAPIs]; where none remains the error wraps
// [model.ErrLinkDown] or [model.ErrGone]. A device owned by a live run gives a
// [LockedError]. The caller must Close the Host.
func Open(ctx context.Context, o Options) (*Host, error) {
	system := o.System
	if system == nil {
		system = Live{}
	}
	h := &Host{}
	if err := h.open(ctx, system, o); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// open does what [Open] says; whatever it got hold of is in h, also when it
// fails.
func (h *Host) open(ctx context.Context, system System, o Options) error {
	if len(o.Ifaces) == 0 && !o.ReadOnly {
		return errors.New("no interface is named")
	}
	h.readOnly, h.everyLink, h.bounds = o.ReadOnly, len(o.Ifaces) == 0, o.Bounds
	if h.bounds == (model.Bounds{}) {
		h.bounds = model.DefaultBounds()
	}
	h.units = map[model.Queue]*tracked{}
	var err error
	h.system = system
	if h.kernel, err = system.Open(o.Namespace); err != nil {
		return err
	}
	h.placer = system.Placement(h.kernel)
	if err := h.findLinks(o.Ifaces); err != nil {
		return err
	}
	if err := h.findScope(); err != nil {
		return err
	}
	if o.ReadOnly {
		return h.findQueues(ctx)
	}
	if err := h.takeOver(ctx, system, o); err != nil {
		return err
	}
	if err := h.findQueues(ctx); err != nil {
		return err
	}
	return h.saveBaseline(system)
}

// findLinks resolves the interfaces' names.
func (h *Host) findLinks(names []string) error {
	if len(names) == 0 {
		links, err := h.kernel.Links()
		if err != nil {
			return err
		}
		for _, l := range links {
			h.devices = append(h.devices, &device{link: l})
		}
		return nil
	}
	seen := map[int]bool{}
	for _, name := range names {
		l, err := h.kernel.Link(name)
		if err != nil {
			return err
		}
		if l.stacked() {
			return stackedError(l)
		}
		if !seen[l.Index] {
			h.devices = append(h.devices, &device{link: l})
		}
		seen[l.Index] = true
	}
	return nil
}

// ErrStacked says that an interface is a bond, VLAN or the like.
var ErrStacked = errors.New("owns no NAPI instance")

func stackedError(l Link) error {
	lower := "it has none in this namespace"
	if len(l.Lower) > 0 {
		lower = "name instead: " + strings.Join(l.Lower, " ")
	}
	return fmt.Errorf("%s is a %s and %w, its lower devices do; %s", l.Name, l.Kind, ErrStacked, lower)
}

// takeOver takes the locks and settles what earlier runs left.
func (h *Host) takeOver(ctx context.Context, system System, o Options) error {
	if o.StateDir == "" {
		return errors.New("no state directory is named")
	}
	own, err := h.takeState(system, o.StateDir, o.RunDir)
	if err != nil {
		return err
	}
	dir, bootID := h.files.dir, h.bootID
	keep := map[string]bool{own.path: true}
	taken := map[*device]*lock{}
	for _, d := range h.devices {
		l, err := h.held.device(h.kernel.Inode(), d.link.Index, d.link.Name)
		if err != nil {
			return err
		}
		if err := h.held.claim(h.kernel, d.link.Index, d.link.Name); err != nil {
			return err
		}
		keep[l.path] = true
		taken[d] = l
	}
	report, err := restoreState(ctx, system, dir, h.held, h.files.step)
	if err != nil {
		return err
	}
	if !report.Empty() {
		h.recovered = append(h.recovered, report)
	}
	if !report.Settled {
		return fmt.Errorf("an earlier run's originals in %s could not all be put back yet, and a new run would forget them; "+
			"see to the following and run `autotune restore`, or use another --state:\n%s", dir, report)
	}
	for _, d := range h.devices {
		if err := h.settleLeftover(ctx, system, d, taken[d], bootID); err != nil {
			return err
		}
	}
	return h.held.keepOnly(keep)
}

// settleLeftover restores the state of a crashed run that had this device,
// lest its tuned values be taken for originals.
func (h *Host) settleLeftover(ctx context.Context, system System, d *device, l *lock, bootID string) error {
	owner, err := l.leftover()
	if err != nil {
		return err
	}
	if owner == nil {
		return nil
	}
	if !owner.of(h.kernel, d.link, bootID) {
		return l.forget()
	}
	lost := func(err error) error {
		return fmt.Errorf("%s was tuned by process %d, which crashed, and what it was set to before is in %s, which cannot be used: %w; "+
			"if the present values are right (`autotune list`), delete %s and start again", d.link.Name, owner.PID, owner.StateDir, err, l.path)
	}
	if _, err := os.Stat(filepath.Join(owner.StateDir, baselineFile)); err != nil {
		return lost(err)
	}
	report, err := restoreState(ctx, system, owner.StateDir, h.held, h.files.step)
	if err != nil {
		return lost(err)
	}
	h.recovered = append(h.recovered, report)
	if !report.settledFor(h.kernel.Inode(), d.link.Index) {
		return fmt.Errorf("%s was tuned by a run that crashed and could not be put back:\n%s", d.link.Name, report)
	}
	// Its other devices may need it still; this one does not.
	return l.forget()
}

// findQueues reads the queues for the first time. With ReadOnly a host without
// any is no error.
func (h *Host) findQueues(ctx context.Context) error {
	var errs []error
	for _, d := range h.devices {
		if err := ctx.Err(); err != nil {
			return err
		}
		present, n, err := h.list(d)
		if err == nil && len(present) == 0 {
			err = h.emptyDevice(d)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.link.Name, err))
			continue
		}
		d.counts = n
		if h.scope == ScopeDevice {
			h.trackDevice(d, present)
			continue
		}
		for _, m := range present {
			h.trackQueue(d, m)
		}
	}
	if len(h.units) == 0 && !h.everyLink {
		return errors.Join(errs...)
	}
	return nil
}

// emptyDevice says why a device has no NAPI instance.
func (h *Host) emptyDevice(d *device) error {
	link, err := h.kernel.LinkAt(d.link.Index)
	switch {
	case err != nil:
		return err
	case !link.Up:
		return fmt.Errorf("it has no NAPI instance while it is down: %w", model.ErrLinkDown)
	case link.Kind == "veth":
		return fmt.Errorf("a veth has NAPI instances only with GRO on (`ethtool -K %s gro on`) or an XDP program: %w", link.Name, model.ErrGone)
	default:
		return fmt.Errorf("it is up but has no NAPI instance with an ID: %w", model.ErrGone)
	}
}

// Devices returns the interfaces as they were when the Host was opened, with
// the counts of the last [Host.NAPIs].
func (h *Host) Devices() []Device {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Device, 0, len(h.devices))
	for _, d := range h.devices {
		out = append(out, Device{Link: d.link, RxQueues: d.counts.receive, Untunable: d.counts.untunable, Scope: h.scope})
	}
	return out
}

// GRO tells by ifindex which of the devices merge received packets; those of
// which it cannot be read are left out.
func (h *Host) GRO() map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[int]bool, len(h.devices))
	for _, d := range h.devices {
		if on := h.kernel.GRO(d.link); on != nil {
			out[d.link.Index] = *on
		}
	}
	return out
}

// Recovered returns what [Open] restored of earlier runs.
func (h *Host) Recovered() []Report { return slices.Clone(h.recovered) }

// Events returns the rebinds seen since the last call, oldest first, and how
// many more there were than are kept.
func (h *Host) Events() ([]Rebind, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events.drain()
}

// Originals returns what each tunable queue was set to when the Host was
// opened.
func (h *Host) Originals() model.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := model.Config{}
	for _, t := range h.units {
		for _, q := range t.queues {
			if t.untunable == nil {
				out[q] = t.original
			}
		}
	}
	return out
}

// Restore puts the originals back, verified by read-back, knob by knob as
// [Restore] does, and removes the state once nothing is left to do. After it
// the Host writes no more. A context that has not ended is needed: on the way
// out, not the one that was cancelled.
func (h *Host) Restore(ctx context.Context) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	report := Report{StateDir: h.files.dir}
	if h.readOnly || h.base == nil {
		report.Settled, report.Note = true, "nothing was written"
		return report, nil
	}
	h.restored = true
	if h.last != nil {
		var err error
		if report.Knobs, err = restoreDevices(ctx, h.kernel, h.base, h.last); err != nil {
			return report, fmt.Errorf("restore: %w", err)
		}
		report.Contexts = restoreContexts(ctx, h.system.Processes(), h.base, h.last)
	}
	report.Placements = restorePlaced(ctx, h.placer, h.placed)
	if h.last == nil && h.placed == nil {
		report.Note = "nothing was written"
	}
	if err := settle(&report, h.files, h.base, h.held); err != nil {
		return report, err
	}
	if report.Settled {
		h.base, h.last, h.placed = nil, nil, nil
	}
	return report, nil
}

// Close gives up locks and sockets. It writes nothing to the kernel: what was
// applied and not restored stays, and so does the state, for [Restore].
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.release()
}

func (h *Host) release() error {
	var errs []error
	if h.untouched() {
		var report Report
		errs = append(errs, settle(&report, h.files, h.base, h.held))
		h.base = nil
	}
	if h.held != nil {
		errs = append(errs, h.held.release())
	}
	if h.kernel != nil {
		errs = append(errs, h.kernel.Close())
		h.kernel, h.placer = nil, nil
	}
	return errors.Join(errs...)
}
