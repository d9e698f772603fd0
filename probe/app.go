package probe

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"autotune/bpf"
	"autotune/model"
)

// app is a process that has received on a followed queue, with its baseline.
type app struct {
	comm   string
	cgroup string
	waits  bpf.ReceiveAppWaits
	times  map[int]time.Duration
	// spent is the most CPU time that it was seen to have taken, with that of
	// threads that have ended; nil where their ends are not observed.
	spent *time.Duration
}

// apps follows the processes that the programs report.
type apps struct {
	procfs string
	known  map[uint32]*app
	// spare is a buffer for the thread times of the next reading.
	spare map[int]time.Duration
}

func newApps(procfs string) *apps {
	return &apps{procfs: procfs, known: make(map[uint32]*app), spare: make(map[int]time.Duration)}
}

// appWindow is what processes did between two readings.
type appWindow struct {
	// samples are ordered by process ID.
	samples []model.AppSample
	// appeared are those that were not known before.
	appeared []uint32
	// unknown counts those whose CPU time in the window is not known.
	unknown int
	// ended are those that the programs can forget.
	ended []uint32
}

// sample returns what each process did since the call before. A process that
// started after since did all that it has done in this window. One that is older
// and was not known starts a baseline.
//
// Where ends of tasks are observed, a process that has ended gives a last sample
// in the window in which the kernel lets go of it, which is a few milliseconds
// after /proc has. What a thread took that has left /proc and has not been let
// go of is of the next window, too.
func (a *apps) sample(r *reading, k kernel, since time.Duration) (appWindow, error) {
	w := appWindow{samples: make([]model.AppSample, 0, len(r.apps))}
	ends := k.observes(signalTaskEnds)
	var errs []error
	var older []model.AppSample
	for pid, waits := range r.apps {
		err := taskTimes(a.procfs, int(pid), a.spare)
		gone := errors.Is(err, errNoTask)
		switch {
		case err != nil && !gone:
			errs = append(errs, err)
			continue
		case ends && waits.Ended != 0:
			// Another process may have its ID by now.
			clear(a.spare)
			w.ended = append(w.ended, pid)
		case ends && gone:
			continue
		case gone:
			w.ended = append(w.ended, pid)
			w.unknown++
			continue
		}
		known := a.known[pid]
		if known != nil && (known.waits.Started != waits.Started || waits.Ended == 0 && !sharesThread(known.times, a.spare)) {
			known = nil
		}
		if known == nil {
			known = a.begin(pid, &waits)
			w.appeared = append(w.appeared, pid)
		}
		s := known.growth(int(pid), &waits, k)
		began := known.spent == nil && len(known.times) == 0
		s.CPU = known.advance(&waits, a, ends)
		switch {
		case began && !ends:
			w.unknown++
		case began && time.Duration(waits.Started) <= since:
			older = append(older, s)
		default:
			w.samples = append(w.samples, s)
		}
	}
	w.addOlder(older)
	for pid := range a.known {
		if _, ok := r.apps[pid]; !ok || slices.Contains(w.ended, pid) {
			delete(a.known, pid)
		}
	}
	slices.SortFunc(w.samples, func(x, y model.AppSample) int { return cmp.Compare(x.PID, y.PID) })
	slices.Sort(w.ended)
	return w, errors.Join(errs...)
}

// maxDoubt is the part of the CPU time of a window, as one in so many, of which
// it need not be known whether it was spent in the window or earlier.
const maxDoubt = 50

// addOlder adds processes that received for the first time and are older than
// the window, which where processes come and go are those that were just
// starting when it began. Their CPU time is what they have taken since they
// started: too much, and known where that is next to nothing.
func (w *appWindow) addOlder(older []model.AppSample) {
	var known, doubt time.Duration
	for i := range w.samples {
		known += w.samples[i].CPU
	}
	for i := range older {
		doubt += older[i].CPU
	}
	if maxDoubt*doubt > known+doubt {
		w.unknown += len(older)
		return
	}
	w.samples = append(w.samples, older...)
}

// begin makes a process known. What /proc does not tell of one that has ended,
// the programs have kept.
func (a *apps) begin(pid uint32, waits *bpf.ReceiveAppWaits) *app {
	comm, err := processComm(a.procfs, int(pid))
	if err != nil || waits.Ended != 0 {
		comm = commString(waits.Comm[:])
	}
	known := &app{comm: comm, waits: bpf.ReceiveAppWaits{Started: waits.Started}, times: make(map[int]time.Duration)}
	if waits.Ended == 0 {
		known.cgroup = processCgroup(a.procfs, int(pid))
	}
	a.known[pid] = known
	return known
}

// growth returns what the programs have counted of a process since the baseline.
func (p *app) growth(pid int, waits *bpf.ReceiveAppWaits, k kernel) model.AppSample {
	s := model.AppSample{
		PID: pid, Comm: p.comm, Cgroup: p.cgroup,
		BusyPolls: &model.BusyPolls{
			Polls:   grown(p.waits.BusyPolls, waits.BusyPolls),
			Packets: grown(p.waits.BusyPackets, waits.BusyPackets),
		},
	}
	if k.observes(signalEpollReturns) {
		s.Waits = new([model.WorkBuckets]uint64)
		for i := range s.Waits {
			s.Waits[i] = grown(p.waits.Events[i], waits.Events[i])
		}
		s.Events = growth(p.waits.Returned, waits.Returned)
		s.Full = growth(p.waits.Full, waits.Full)
	}
	return s
}

// advance makes the thread times that were just read the baseline, and returns
// the CPU time since the one before: all, for a process that had none.
func (p *app) advance(waits *bpf.ReceiveAppWaits, a *apps, ends bool) time.Duration {
	grown := threadGrowth(p.times, a.spare)
	p.times, a.spare = a.spare, p.times
	p.waits = *waits
	if !ends {
		return grown
	}
	now := time.Duration(waits.EndedTime)
	for _, t := range p.times {
		now += t
	}
	var before time.Duration
	if p.spent != nil {
		before = *p.spent
	}
	now = max(now, before)
	p.spent = &now
	return now - before
}

// threadGrowth sums what the threads of a process gained. One that is new gives
// all that it has; what one that ended had gained since is lost.
func threadGrowth(last, now map[int]time.Duration) time.Duration {
	var sum time.Duration
	for tid, t := range now {
		sum += max(0, t-last[tid])
	}
	return sum
}

// sharesThread reports whether the process is likely still the one that was
// known: another that took over its ID has no thread that has gone on from
// there.
func sharesThread(last, now map[int]time.Duration) bool {
	for tid, t := range now {
		if before, ok := last[tid]; ok && t >= before {
			return true
		}
	}
	return false
}
