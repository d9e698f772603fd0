package probe

import (
	"cmp"
	"errors"
	"maps"
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

// sample returns what each process did since the call before, ordered by
// process ID, how many appeared that were not known before, and the processes
// that have exited. A new process starts a baseline and gives no sample.
func (a *apps) sample(r *reading, k kernel) (samples []model.AppSample, appeared int, exited []uint32, err error) {
	samples = make([]model.AppSample, 0, len(r.apps))
	var errs []error
	for pid, waits := range r.apps {
		err := taskTimes(a.procfs, int(pid), a.spare)
		if errors.Is(err, errNoTask) {
			exited = append(exited, pid)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known := a.known[pid]
		if known == nil || !sharesThread(known.times, a.spare) {
			comm, err := processComm(a.procfs, int(pid))
			if err != nil {
				exited = append(exited, pid)
				continue
			}
			a.known[pid] = &app{
				comm: comm, cgroup: processCgroup(a.procfs, int(pid)), waits: waits, times: maps.Clone(a.spare),
			}
			appeared++
			continue
		}
		s := model.AppSample{
			PID: int(pid), Comm: known.comm, Cgroup: known.cgroup, CPU: threadGrowth(known.times, a.spare),
			BusyPolls: &model.BusyPolls{
				Polls:   grown(known.waits.BusyPolls, waits.BusyPolls),
				Packets: grown(known.waits.BusyPackets, waits.BusyPackets),
			},
		}
		if k.observes(signalEpollReturns) {
			s.Waits = new([model.WorkBuckets]uint64)
			for i := range s.Waits {
				s.Waits[i] = grown(known.waits.Events[i], waits.Events[i])
			}
			s.Events = growth(known.waits.Returned, waits.Returned)
			s.Full = growth(known.waits.Full, waits.Full)
		}
		known.waits = waits
		known.times, a.spare = a.spare, known.times
		samples = append(samples, s)
	}
	for pid := range a.known {
		if _, ok := r.apps[pid]; !ok || slices.Contains(exited, pid) {
			delete(a.known, pid)
		}
	}
	slices.SortFunc(samples, func(x, y model.AppSample) int { return cmp.Compare(x.PID, y.PID) })
	slices.Sort(exited)
	return samples, appeared, exited, errors.Join(errs...)
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
