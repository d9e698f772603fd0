package main

import (
	"errors"
	"maps"
	"slices"
	"time"

	"autotune/actuate/placement"
	"autotune/model"
	"autotune/model/readiness"
	"autotune/probe/process"
)

// readinessWatch gathers over some windows what readiness is judged by.
type readinessWatch struct {
	procfs     string
	apps       map[int]*watchedApp
	suspension map[model.Queue]*model.Suspension
	// polled is of the windows in which the queue was suspended.
	polled     map[model.Queue]*readiness.Polled
	threadTime map[model.Queue]time.Duration
	// span is that of all windows.
	span time.Duration
}

// watchedApp is one process, with what it did in all windows together.
type watchedApp struct {
	comm     string
	contexts []model.EpollContext
	selected bool
	// cpu is what it used while it was watched, for span.
	cpu, span time.Duration
	// batches counts the returns of epoll_wait with events; counted tells
	// whether anybody counts.
	batches uint64
	counted bool
	threads map[int]*readiness.Thread
}

func newReadinessWatch(procfs string) *readinessWatch {
	return &readinessWatch{
		procfs: procfs, apps: map[int]*watchedApp{}, suspension: map[model.Queue]*model.Suspension{},
		polled: map[model.Queue]*readiness.Polled{}, threadTime: map[model.Queue]time.Duration{},
	}
}

// app returns what is known of a process.
func (w *readinessWatch) app(pid int) *watchedApp {
	if w.apps[pid] == nil {
		w.apps[pid] = &watchedApp{threads: map[int]*readiness.Thread{}}
	}
	return w.apps[pid]
}

// add takes in one window.
func (w *readinessWatch) add(s *model.Sample) {
	w.span += s.Span
	for i := range s.Queues {
		q := &s.Queues[i]
		if q.ThreadTime != nil {
			w.threadTime[q.Queue] += *q.ThreadTime
		}
		if q.Suspension == nil {
			continue
		}
		sum := w.suspension[q.Queue]
		if sum == nil {
			sum = &model.Suspension{}
			w.suspension[q.Queue] = sum
		}
		sum.Started += q.Suspension.Started
		sum.Resumed += q.Suspension.Resumed
		sum.Expired += q.Suspension.Expired
		sum.Flushed += q.Suspension.Flushed
		sum.Length.Merge(&q.Suspension.Length)
		if q.Suspension.Started == 0 {
			continue
		}
		polled := w.polled[q.Queue]
		if polled == nil {
			polled = &readiness.Polled{}
			w.polled[q.Queue] = polled
		}
		polled.Packets += q.Polls().Packets
		polled.Application += q.Busy.Packets
	}
	for i := range s.Apps {
		a := &s.Apps[i]
		app := w.app(a.PID)
		app.comm, app.selected = a.Comm, a.Selected
		app.cpu += a.CPU
		app.span += s.Span
		if a.Contexts != nil {
			app.contexts = a.Contexts
		}
		if a.Waits != nil {
			app.counted = true
			for n, count := range a.Waits {
				if n > 0 {
					app.batches += count
				}
			}
		}
	}
}

// look notes where the threads of a process are now. A thread is often met
// running: only many looks find out what it waits for.
func (w *readinessWatch) look(pid int) error {
	threads, err := process.Threads(w.procfs, pid)
	if err != nil {
		return err
	}
	app := w.app(pid)
	seen := map[int]bool{}
	for _, t := range threads {
		seen[t.TID] = true
		known := app.threads[t.TID]
		if known == nil {
			known = &readiness.Thread{TID: t.TID}
			app.threads[t.TID] = known
		}
		known.CPUs = t.CPUs
		if t.Waits != nil && !slices.Contains(known.Waits, *t.Waits) {
			known.Waits = append(known.Waits, *t.Waits)
			slices.Sort(known.Waits)
		}
	}
	maps.DeleteFunc(app.threads, func(tid int, _ *readiness.Thread) bool { return !seen[tid] })
	return nil
}

// facts puts together what readiness of one process is judged by.
func (w *readinessWatch) facts(pid int, napis []model.NAPI, conditions model.Conditions) readiness.Facts {
	app := w.app(pid)
	f := readiness.Facts{
		App:  readiness.App{PID: pid, Comm: app.comm, Contexts: app.contexts, Idle: w.span > 0 && app.span == 0},
		CPUs: readiness.CPUsOf(conditions, process.Nodes("/sys")),
	}
	for _, tid := range slices.Sorted(maps.Keys(app.threads)) {
		f.App.Threads = append(f.App.Threads, *app.threads[tid])
	}
	if app.counted && app.batches > 0 {
		batch := app.cpu / time.Duration(app.batches)
		f.App.Batch = &batch
	}
	f.App.CPUs = cpusOf(app.cpu, app.span)
	for _, n := range napis {
		instance := readiness.NAPI{
			ID: n.ID, Queue: n.Queue, Ifname: n.Ifname, Settings: n.Settings,
			CPUs: w.polledOn(n), Suspension: w.suspension[n.Queue], Polled: w.polled[n.Queue],
		}
		if spent, threaded := w.threadTime[n.Queue]; threaded {
			instance.ThreadCPUs = cpusOf(spent, w.span)
		}
		f.NAPIs = append(f.NAPIs, instance)
	}
	return f
}

// cpusOf returns how many CPUs a time is; nil where nothing was watched.
func cpusOf(spent, whole time.Duration) *float64 {
	if whole <= 0 {
		return nil
	}
	s := float64(spent) / float64(whole)
	return &s
}

// polledOn returns the CPUs that may poll an instance; nil where not known.
func (w *readinessWatch) polledOn(n model.NAPI) []int {
	host := placement.Host{Procfs: w.procfs}
	switch {
	case n.PID != nil:
		t, err := host.Thread(int(*n.PID))
		if err != nil {
			return nil
		}
		return t.CPUs
	case n.IRQ != nil:
		irq, err := host.Interrupt(*n.IRQ)
		if err != nil {
			return nil
		}
		if len(irq.Effective) > 0 {
			return irq.Effective
		}
		return irq.Affinity
	}
	return nil
}

// workers returns the threads that wait for sockets of single instances, to be
// placed. Of processes that were not selected, where some were, they are fixed.
func (w *readinessWatch) workers(onlySelected bool) []placement.Worker {
	host := placement.Host{Procfs: w.procfs}
	var out []placement.Worker
	for _, pid := range slices.Sorted(maps.Keys(w.apps)) {
		app := w.apps[pid]
		for _, tid := range slices.Sorted(maps.Keys(app.threads)) {
			ids := app.waitsFor(app.threads[tid])
			if len(ids) == 0 {
				continue
			}
			thread, err := host.Thread(tid)
			if err != nil {
				continue // it has ended
			}
			out = append(out, placement.Worker{
				Thread: thread, PID: pid, Comm: app.comm, NAPIIDs: ids, Fixed: onlySelected && !app.selected,
			})
		}
	}
	return out
}

// waitsFor returns the instances of the sockets in the contexts that a thread
// waits for; none where there may be others, that are not known.
func (a *watchedApp) waitsFor(t *readiness.Thread) []uint32 {
	var ids []uint32
	for _, c := range a.contexts {
		if !slices.Contains(t.Waits, c.FD) {
			continue
		}
		if c.MoreNAPIs {
			return nil
		}
		ids = append(ids, c.NAPIIDs...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// exited forgets processes that no longer receive and no longer exist.
func (w *readinessWatch) exited(s *model.Sample) error {
	present := map[int]bool{}
	for i := range s.Apps {
		present[s.Apps[i].PID] = true
	}
	var errs []error
	for pid := range w.apps {
		if present[pid] {
			errs = append(errs, w.look(pid))
			continue
		}
		threads, err := process.Threads(w.procfs, pid)
		if err == nil && len(threads) == 0 {
			delete(w.apps, pid)
		}
	}
	return errors.Join(errs...)
}
