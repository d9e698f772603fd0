package probe

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"autotune/bpf"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// waitsOf is what the programs have counted of a process that started at started:
// n returns of epoll_wait with returned events each.
func waitsOf(started time.Duration, returned, n uint64) (w bpf.ReceiveAppWaits) {
	w.Started = uint64(started)
	w.Events[returned], w.Returned, w.Full = n, returned*n, n/2
	w.BusyPolls, w.BusyPackets = 10*n, n
	for i, c := range "its thread" {
		w.Comm[i] = int8(c)
	}
	return w
}

// thread writes the CPU time of a thread of process 50.
func (p fakeProc) thread(t *testing.T, tid int, spent time.Duration) {
	t.Helper()
	p.write(t, fmt.Sprintf("50/task/%d/schedstat", tid), fmt.Appendf(nil, "%d 0 0\n", spent))
}

func (p fakeProc) process(t *testing.T) {
	t.Helper()
	p.write(t, "50/comm", []byte("my server\n"))
	p.write(t, "50/cgroup", []byte("0::/app.slice\n"))
}

func TestAppsStartWithABaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		f.kernel.without = signalTaskEnds
		f.proc.process(t)
		f.proc.thread(t, 50, 1000)
		f.kernel.apps[50] = waitsOf(0, 3, 10)
		if got := f.next(t); len(got.Apps) != 0 || got.AppsUnknown != 1 {
			t.Errorf("a process that appeared gives %+v, and %d unknown", got.Apps, got.AppsUnknown)
		}

		f.proc.thread(t, 50, 1500)
		f.proc.thread(t, 51, 70)
		f.kernel.apps[50] = waitsOf(0, 3, 12)
		events, full := uint64(6), uint64(1)
		want := []model.AppSample{{
			PID: 50, Comm: "my server", CPU: 570, Cgroup: "/app.slice", Waits: new([model.WorkBuckets]uint64),
			Events: &events, Full: &full, BusyPolls: &model.BusyPolls{Polls: 20, Packets: 2},
		}}
		want[0].Waits[3] = 2
		got := f.next(t)
		if diff := cmp.Diff(want, got.Apps); diff != "" || got.AppsUnknown != 0 {
			t.Errorf("%d unknown; apps (-want +got):\n%s", got.AppsUnknown, diff)
		}

		f.proc.remove(t, "50")
		if got := f.next(t); len(got.Apps) != 0 || got.AppsUnknown != 1 {
			t.Errorf("a process that exited gives %+v, and %d unknown", got.Apps, got.AppsUnknown)
		}
		if len(f.kernel.apps) != 0 {
			t.Errorf("a process that exited is kept: %v", f.kernel.apps)
		}
	})
}

// askedLister is a lister that tells whom it was asked for, and lists one context
// of each.
type askedLister struct {
	asked [][]uint32
	// all tells that it was asked for all processes of the host.
	all bool
}

func (l *askedLister) list(pids []uint32) (map[uint32][]model.EpollContext, error) {
	l.all = l.all || pids == nil
	l.asked = append(l.asked, slices.Sorted(slices.Values(pids)))
	listed := make(map[uint32][]model.EpollContext)
	for _, pid := range pids {
		listed[pid] = []model.EpollContext{{FD: int(pid)}}
	}
	return listed, nil
}

func (l *askedLister) close() error { return nil }

func TestContextsOfProcessesThatAppearAreListedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		lister := &askedLister{}
		f.contexts = lister
		for _, pid := range []uint32{50, 51, 52} {
			f.proc.write(t, fmt.Sprintf("%d/task/%d/schedstat", pid, pid), []byte("1000 0 0\n"))
		}
		f.kernel.apps[50] = waitsOf(0, 3, 10)
		f.kernel.apps[51] = waitsOf(0, 3, 10)
		f.next(t)
		f.next(t)
		f.kernel.apps[52] = waitsOf(0, 3, 10)
		f.next(t)
		got := f.next(t)
		for _, a := range got.Apps {
			if diff := cmp.Diff([]model.EpollContext{{FD: a.PID}}, a.Contexts); diff != "" {
				t.Errorf("process %d (-want +got):\n%s", a.PID, diff)
			}
		}
		if len(got.Apps) != 3 {
			t.Errorf("%d processes, want 3", len(got.Apps))
		}
		for range 10 {
			f.next(t)
		}
		want := [][]uint32{{50, 51}, {52}, {50, 51, 52}}
		if diff := cmp.Diff(want, lister.asked); diff != "" {
			t.Errorf("asked for (-want +got):\n%s", diff)
		}
	})
}

func TestContextsAreNotListedWhereNoProcessReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		lister := &askedLister{}
		f.contexts = lister
		for range 25 {
			f.next(t)
		}
		if lister.all {
			t.Error("those of all processes were listed")
		}
	})
}

// cpuOf returns the CPU times of a sample by process, and how many are unknown.
func cpuOf(s model.Sample) (map[int]time.Duration, uint64) {
	out := make(map[int]time.Duration)
	for _, a := range s.Apps {
		out[a.PID] = a.CPU
	}
	return out, s.AppsUnknown
}

// No CPU time is lost or counted twice from the birth of a process to its end.
func TestCPUTimeIsKnownFromBirthToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		step := func(what string, want map[int]time.Duration, unknown uint64) model.Sample {
			t.Helper()
			s := f.next(t)
			got, n := cpuOf(s)
			if diff := cmp.Diff(want, got); diff != "" || n != unknown {
				t.Errorf("%s: %d unknown, want %d; CPU times (-want +got):\n%s", what, n, unknown, diff)
			}
			return s
		}
		none := map[int]time.Duration{}
		step("before", none, 0)

		f.proc.process(t)
		f.proc.thread(t, 50, 1000)
		waits := waitsOf(1500*time.Millisecond, 3, 10)
		f.kernel.apps[50] = waits
		s := step("born in the window", map[int]time.Duration{50: 1000}, 0)
		if *s.Apps[0].Events != 30 || s.Apps[0].Comm != "my server" {
			t.Errorf("%+v, want 30 events of my server", s.Apps[0])
		}

		f.proc.thread(t, 50, 1500)
		f.proc.thread(t, 51, 70)
		step("goes on", map[int]time.Duration{50: 570}, 0)

		f.proc.remove(t, "50/task/51")
		f.proc.thread(t, 50, 1600)
		step("a thread has left /proc and is not let go of", map[int]time.Duration{50: 30}, 0)

		waits.EndedTime = 90
		f.kernel.apps[50] = waits
		step("a thread was let go of", map[int]time.Duration{50: 90}, 0)

		f.proc.remove(t, "50")
		step("the process has left /proc", none, 0)

		f.listed, f.listedEver = map[uint32][]model.EpollContext{50: {{FD: 3}}}, true
		waits.EndedTime, waits.Ended = 90+1800, 1
		f.kernel.apps[50] = waits
		s = step("the process was let go of", map[int]time.Duration{50: 200}, 0)
		if len(s.Apps[0].Contexts) != 0 {
			t.Errorf("a process that ended has contexts: %+v", s.Apps[0].Contexts)
		}
		if len(f.kernel.apps) != 0 {
			t.Errorf("a process that ended is kept: %v", f.kernel.apps)
		}

		waits = waitsOf(7500*time.Millisecond, 2, 4)
		waits.EndedTime, waits.Ended = 333, 1
		f.kernel.apps[50] = waits
		s = step("another one with its ID, born and ended in the window", map[int]time.Duration{50: 333}, 0)
		if s.Apps[0].Comm != "its thread" || *s.Apps[0].Events != 8 {
			t.Errorf("%+v, want 8 events of its thread", s.Apps[0])
		}
	})
}

// A process that is older than the window has taken what is not known to be of
// the window. Next to what others took that may be nothing.
func TestTheCPUTimeOfAnOlderProcessIsKnownWhereItIsNextToNothing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spent   time.Duration
		want    map[int]time.Duration
		unknown uint64
	}{
		{"next to nothing", 2000, map[int]time.Duration{50: 2000, 60: 98000}, 0},
		{"more", 2001, map[int]time.Duration{60: 98000}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{}, testNAPI(0, 7))
				f.next(t)
				f.proc.process(t)
				f.proc.thread(t, 50, tt.spent)
				f.proc.write(t, "60/comm", []byte("other\n"))
				f.proc.write(t, "60/task/60/schedstat", []byte("98000 0 0\n"))
				f.kernel.apps[50] = waitsOf(900*time.Millisecond, 1, 1)
				f.kernel.apps[60] = waitsOf(1100*time.Millisecond, 1, 1)
				got, unknown := cpuOf(f.next(t))
				if diff := cmp.Diff(tt.want, got); diff != "" || unknown != tt.unknown {
					t.Errorf("%d unknown, want %d; CPU times (-want +got):\n%s", unknown, tt.unknown, diff)
				}
				// From then on there is a baseline.
				f.proc.thread(t, 50, tt.spent+5)
				if got, unknown := cpuOf(f.next(t)); got[50] != 5 || unknown != 0 {
					t.Errorf("%v of the process in the next window and %d unknown, want 5ns", got[50], unknown)
				}
			})
		})
	}
}
