package actuate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"autotune/model"
)

// Restore puts back what the run with this state directory changed and did not
// put back itself. It writes only knobs whose present value is one that the
// run wrote; others are left and reported. It is harmless to repeat.
//
// Applications are found by descriptor number alone: see [Live.Applications]
// and [RestoreOn] to tell them apart by more.
//
// An empty runDir is [DefaultRunDir]. The error is a [LockedError] while a
// live run owns the state or one of its devices, a [StateError] for files that
// cannot be trusted, and ctx's where that ended first. What happened to each
// knob is in the report; where Report.Settled is false something is left to
// do, and the state was kept.
func Restore(ctx context.Context, stateDir, runDir string) (Report, error) {
	return RestoreOn(ctx, Live{}, stateDir, runDir)
}

// RestoreOn is [Restore] on another system than this machine.
func RestoreOn(ctx context.Context, system System, stateDir, runDir string) (report Report, err error) {
	held := newLocks(runDir)
	defer func() { err = errors.Join(err, held.release()) }()
	return restoreState(ctx, system, stateDir, held, nil)
}

// restoreState settles one state directory, taking the locks that it needs and
// does not hold yet.
func restoreState(ctx context.Context, system System, stateDir string, held *locks, step func(string)) (Report, error) {
	stateDir, err := stateDirectory(stateDir)
	if err != nil {
		return Report{}, fmt.Errorf("restore: %w", err)
	}
	report := Report{StateDir: stateDir}
	if _, err := os.Stat(stateDir); errors.Is(err, os.ErrNotExist) {
		report.Note, report.Settled = "no state here: nothing to restore", true
		return report, nil
	}
	if _, err := held.state(stateDir); err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	files := store{dir: stateDir, step: step}
	base, last, err := files.load()
	if errors.Is(err, errNoState) {
		report.Note, report.Settled = "no state here: nothing to restore", true
		return report, nil
	}
	if err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	moved, err := files.loadPlaced(base)
	if err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	bootID, err := system.BootID()
	if err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	if base.BootID != bootID {
		if err := files.archive(); err != nil {
			return report, fmt.Errorf("restore: %w", err)
		}
		report.Note, report.Settled = "the machine was started anew since, so nothing is left of what was written; the state was set aside", true
		return report, nil
	}
	for _, d := range base.Devices {
		if _, err := held.device(base.Namespace.Inode, d.Ifindex, d.Ifname); err != nil {
			return report, fmt.Errorf("restore: %w", err)
		}
	}
	for _, h := range base.processes() {
		if _, err := held.process(h); err != nil {
			return report, fmt.Errorf("restore: %w", err)
		}
	}
	if last == nil && moved == nil {
		report.Note = "the run had written nothing yet: nothing to restore"
	}
	if err := restoreNamespace(ctx, system, base, last, moved, held, &report); err != nil {
		return report, fmt.Errorf("restore: %w", err)
	}
	if last != nil {
		// Suspension has ended before the applications stop polling.
		report.Contexts = restoreContexts(ctx, system.Processes(), base, last)
	}
	return report, settle(&report, files, base, held)
}

// stateDirectory returns the one name of a state directory by which locks and
// records know it, whatever links lead there.
func stateDirectory(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return dir, nil
	}
	return resolved, err
}

// settle removes the state once nothing is left to do.
func settle(report *Report, files store, base *baseline, held *locks) error {
	if !report.allSettled() {
		return nil
	}
	// The intent goes before the records: a state that no record names must not
	// say that something was written, since another run may write the same
	// value later. The baseline goes after them: a record whose state is missing
	// then always means that somebody deleted the originals, never a clean-up
	// cut short.
	if err := errors.Join(files.remove(intentFile), files.remove(placementFile)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, d := range base.Devices {
		l, err := held.device(base.Namespace.Inode, d.Ifindex, d.Ifname)
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		files.at("forget the owner of " + d.Ifname)
		if err := l.forgetOf(files.dir); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	for _, h := range base.processes() {
		l, err := held.process(h)
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		files.at("forget the owner of a process")
		if err := l.forgetOf(files.dir); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if err := files.remove(baselineFile); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	report.Settled = true
	return nil
}

// restoreNamespace puts back what was written to devices and moved, into the
// report. Threads and interrupts are the machine's, and go back also where the
// namespace is gone or no device was set.
func restoreNamespace(ctx context.Context, system System, base *baseline, last *intent, moved *placed, held *locks, report *Report) (err error) {
	switch {
	case last == nil && moved == nil:
		return nil
	case len(base.Devices) == 0:
		report.Placements = restorePlaced(ctx, system.Placement(nil), moved)
		return ctx.Err()
	}
	gone := fmt.Sprintf("network namespace %v no longer exists", base.Namespace.NamespaceRef)
	kernel, err := system.Find(base.Namespace.Inode, base.Namespace.NamespaceRef)
	found := err == nil
	switch {
	case found:
		defer func() { err = errors.Join(err, kernel.Close()) }()
		found = base.Namespace.is(kernel.Inode(), kernel.Cookie())
	case !errors.Is(err, model.ErrGone):
		return err
	}
	if !found {
		report.Knobs = unreachable(base, last, gone)
		report.Placements = restorePlaced(ctx, system.Placement(nil), moved)
		return ctx.Err()
	}
	for _, d := range base.Devices {
		if err := held.claim(kernel, d.Ifindex, d.Ifname); err != nil {
			return err
		}
	}
	if report.Knobs, err = restoreDevices(ctx, kernel, base, last); err != nil {
		return err
	}
	report.Placements = restorePlaced(ctx, system.Placement(kernel), moved)
	return ctx.Err()
}

// restoreDevices puts back all devices of a baseline. The error is ctx's.
func restoreDevices(ctx context.Context, kernel Kernel, base *baseline, last *intent) ([]KnobReport, error) {
	var reports []KnobReport
	for _, d := range base.Devices {
		if err := ctx.Err(); err != nil {
			return reports, err
		}
		reports = append(reports, restoreDevice(kernel, base, d, last)...)
	}
	return reports, nil
}

func restoreDevice(kernel Kernel, base *baseline, d baselineDevice, last *intent) []KnobReport {
	var written []baselineQueue
	for _, q := range d.Queues {
		if last.queue(base.queue(d, q)) != nil {
			written = append(written, q)
		}
	}
	if len(written) == 0 {
		return nil
	}
	all := func(o Outcome, detail string) []KnobReport {
		var reports []KnobReport
		for _, q := range written {
			reports = append(reports, knobReports(base, d, q, o, detail)...)
		}
		return reports
	}
	link, err := kernel.LinkAt(d.Ifindex)
	switch {
	case errors.Is(err, model.ErrGone):
		return all(OutcomeGone, fmt.Sprintf("interface %s no longer exists", d.Ifname))
	case err != nil:
		return all(OutcomeFailed, err.Error())
	case !sameDevice(d.Ifname, d.MAC, link):
		return all(OutcomeGone, fmt.Sprintf("the interface with index %d is now %s with address %s, and not %s with %s: not touched",
			d.Ifindex, link.Name, link.MAC, d.Ifname, d.MAC))
	}
	if d.Scope == ScopeDevice {
		return restoreWhole(kernel, base, d, last, link)
	}
	present, _, err := listQueues(kernel, d.Ifindex)
	switch {
	case errors.Is(err, model.ErrGone):
		return all(OutcomeGone, err.Error())
	case err != nil:
		return all(OutcomeFailed, err.Error())
	case len(present) == 0 && !link.Up:
		return all(OutcomeLinkDown, fmt.Sprintf("%s is down; run `autotune restore` again when it is up", link.Name))
	}
	origins := origins{kernel: kernel, link: link, base: d.Defaults}
	var reports []KnobReport
	for _, q := range written {
		record := last.queue(base.queue(d, q))
		instance, found := findQueue(present, q.Index)
		if !found {
			reports = append(reports, knobReports(base, d, q, OutcomeAbsent,
				"no NAPI instance serves the queue now; when it is back (ethtool -L, or GRO on for veth) run `autotune restore` again")...)
			continue
		}
		reports = append(reports, restoreQueue(kernel, base, d, q, *record, instance, &origins)...)
	}
	return reports
}

// sameDevice reports whether the device that has the index now is the one that
// had this name and address. An address can be changed (a bond does it to its
// lower devices), and so can a name; an index that was given to another device
// comes with both.
func sameDevice(ifname, mac string, link Link) bool {
	return mac == link.MAC || ifname == link.Name
}

func findQueue(present []mapped, index int) (mapped, bool) {
	for _, m := range present {
		if m.index == index {
			return m, true
		}
	}
	return mapped{}, false
}

// restoreQueue decides knob by knob, writes, and reads back.
func restoreQueue(kernel Kernel, base *baseline, d baselineDevice, q baselineQueue, record intentQueue, instance mapped, from *origins) []KnobReport {
	reports := knobReports(base, d, q, OutcomeUnchanged, "")
	present, err := napiSettings(instance.napi)
	if err != nil {
		return knobReports(base, d, q, OutcomeFailed, err.Error())
	}
	renewed := instance.napi.ID != record.NAPIID
	for i := range reports {
		reports[i].NAPIID = &instance.napi.ID
	}
	wanted := judge(reports, present, record, func(k Knob, found uint64) bool { return renewed && from.kernelsOwn(k, found) })
	for i := range reports {
		if renewed && reports[i].Outcome == OutcomeRestored {
			reports[i].Detail = fmt.Sprintf("NAPI %d was made anew as %d", record.NAPIID, instance.napi.ID)
		}
	}
	putBack(reports, napiTarget{kernel, d.Ifindex, instance.napi.ID}, present, wanted)
	return reports
}

// restoreWhole is [restoreQueue] for a device whose queues were set together.
// Its values are there also while it is down.
func restoreWhole(kernel Kernel, base *baseline, d baselineDevice, last *intent, link Link) []KnobReport {
	q := d.Queues[0]
	record := last.queue(base.queue(d, q))
	present, err := kernel.Defaults(link)
	switch {
	case errors.Is(err, model.ErrGone):
		return knobReports(base, d, q, OutcomeGone, err.Error())
	case err != nil:
		return knobReports(base, d, q, OutcomeFailed, err.Error())
	}
	reports := knobReports(base, d, q, OutcomeUnchanged, "")
	wanted := judge(reports, present.settings(), *record, func(Knob, uint64) bool { return false })
	putBack(reports, deviceTarget{kernel, d.Ifindex}, present.settings(), wanted)
	return reports
}

// judge decides knob by knob whether to put the original back, and returns
// what is to be written. kernels tells whether a value can be the kernel's own
// choice.
func judge(reports []KnobReport, present model.Settings, record intentQueue, kernels func(Knob, uint64) bool) model.Settings {
	wanted := present
	for i := range reports {
		r := &reports[i]
		found := r.Knob.of(present)
		r.Found = &found
		ours := found == r.Knob.of(*record.Confirmed) || found == r.Knob.of(*record.Intended)
		switch {
		case found == r.Original:
		case ours, kernels(r.Knob, found):
			r.Outcome = OutcomeRestored
			wanted = r.Knob.with(wanted, r.Original)
		default:
			r.Outcome = OutcomeForeign
			r.Detail = fmt.Sprintf("not a value that autotune wrote (%s, %s): left to whoever set it",
				r.Knob.format(r.Knob.of(*record.Confirmed)), r.Knob.format(r.Knob.of(*record.Intended)))
		}
	}
	return wanted
}

// putBack writes, reads back, and notes what did not succeed.
func putBack(reports []KnobReport, to target, present, wanted model.Settings) {
	if wanted == present {
		return
	}
	writeErr := to.write(present, wanted)
	after, readErr := to.read()
	for i := range reports {
		r := &reports[i]
		switch {
		case r.Outcome != OutcomeRestored:
		case readErr == nil && r.Knob.of(after) == r.Original:
		case readErr != nil:
			r.Outcome, r.Detail = OutcomeFailed, errors.Join(writeErr, readErr).Error()
		case writeErr != nil:
			r.Outcome, r.Detail = OutcomeFailed, writeErr.Error()
		default:
			r.Outcome = OutcomeFailed
			r.Detail = fmt.Sprintf("written, but it reads %s", r.Knob.format(r.Knob.of(after)))
		}
	}
}

func readBack(kernel Kernel, ifindex int, id uint32) (model.Settings, error) {
	n, err := kernel.NAPI(ifindex, id)
	if err != nil {
		return model.Settings{}, err
	}
	return napiSettings(n)
}

func unreachable(base *baseline, last *intent, detail string) []KnobReport {
	var reports []KnobReport
	for _, d := range base.Devices {
		for _, q := range d.Queues {
			if last.queue(base.queue(d, q)) != nil {
				reports = append(reports, knobReports(base, d, q, OutcomeGone, detail)...)
			}
		}
	}
	return reports
}

func knobReports(base *baseline, d baselineDevice, q baselineQueue, o Outcome, detail string) []KnobReport {
	var reports []KnobReport
	for _, k := range knobs() {
		if k == KnobSuspend && d.Scope == ScopeDevice {
			continue
		}
		reports = append(reports, KnobReport{
			Queue: base.queue(d, q), Ifname: d.Ifname, Knob: k, Outcome: o,
			Original: k.of(*q.Original), Detail: detail,
		})
	}
	return reports
}

// origins tells which values a newly made NAPI instance has from the kernel.
type origins struct {
	kernel Kernel
	link   Link
	// base are the device-level values when the run began; nil where they
	// could not be read.
	base *defaultsRecord

	read bool
	now  *Defaults
}

// kernelsOwn reports whether a value can be what the kernel gave a new
// instance: for the defer count and the flush timeout the device-level value,
// unless that has been changed since the run began, which is an order to all
// instances of the device; for the suspend timeout, zero. (One that survived
// in reused memory, as on veth, is a value that autotune or somebody wrote
// before, and judged as such.) Where the device-level values then are not
// known, nothing is taken for the kernel's.
func (o *origins) kernelsOwn(k Knob, value uint64) bool {
	if k == KnobSuspend {
		return value == 0
	}
	if o.base == nil || value != Defaults(*o.base).of(k) {
		return false
	}
	if !o.read {
		o.read = true
		if d, err := o.kernel.Defaults(o.link); err == nil {
			o.now = &d
		}
	}
	return o.now == nil || value == o.now.of(k)
}
