//go:build linux

package workload_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
)

// runPhase offers a rate until that many intervals past the settle time have
// been reported, and returns their summary.
func (r *rig) runPhase(t testing.TB, phase workload.Phase, intervals int) workload.PhaseSummary {
	t.Helper()
	if _, err := r.client.Phase(t.Context(), phase); err != nil {
		t.Fatal(err)
	}
	r.await(t, 30*time.Second, "intervals of phase "+phase.Name, func() bool {
		count := 0
		for _, in := range r.client.Intervals() {
			if in.Phase == phase.Name && !in.Settling {
				count++
			}
		}
		return count >= intervals
	})
	return workload.Summarize(r.client.Intervals(), phase.Name)
}

// await fails the test if done does not become true in time, or a process
// ends before.
func (r *rig) await(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		case <-r.client.Done():
			_, err := r.client.Stop(t.Context())
			t.Fatalf("waiting for %s: the client ended: %v", what, err)
		case <-r.server.Done():
			_, err := r.server.Stop(t.Context())
			t.Fatalf("waiting for %s: the server ended: %v", what, err)
		case <-tick.C:
		}
	}
}

func (r *rig) stop(t testing.TB) (workload.ServerTotals, workload.ClientTotals) {
	t.Helper()
	client, err := r.client.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server, err := r.server.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

// drain offers nothing until the client has no request waiting.
func (r *rig) drain(t testing.TB) {
	t.Helper()
	if _, err := r.client.Phase(t.Context(), workload.Phase{Name: "drain", Fresh: true}); err != nil {
		t.Fatal(err)
	}
	r.await(t, 30*time.Second, "an interval without a request", func() bool {
		intervals := r.client.Intervals()
		last := intervals[len(intervals)-1]
		return last.Phase == "drain" && last.Completed == 0 && last.Backlog == 0
	})
}

func TestClientAchievesTheOfferedRate(t *testing.T) {
	testbed.Require(t)
	r := newRig(t, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 1})
	const rate = 5000
	var got workload.PhaseSummary
	var failure string
	// A client or a server that other work kept from running proves nothing
	// either way.
	for attempt := range 6 {
		got = r.runPhase(t, workload.Phase{
			Name: fmt.Sprint("steady ", attempt), Rate: rate, Settle: 200 * time.Millisecond, Fresh: true,
		}, 12)
		t.Logf("%d requests in %v: offered %.0f/s, achieved %.0f/s, p50 %v, p90 %v, %d excluded, %d gaps of %v",
			got.Completed, got.Span, got.OfferedRate, got.AchievedRate,
			got.Latency.Quantile(0.5), got.Latency.Quantile(0.9), got.Excluded, got.Gaps, got.GapTime)
		// 3 s of a Poisson process at this rate vary by 0.8% (one standard
		// deviation), but what was offered must also have been answered.
		switch {
		case math.Abs(got.OfferedRate/rate-1) > 0.04:
			failure = fmt.Sprintf("offered %.0f requests/s, want %d within 4%%", got.OfferedRate, rate)
			continue
		case math.Abs(got.AchievedRate/got.OfferedRate-1) > 0.02:
			failure = fmt.Sprintf("achieved %.0f of %.0f requests/s, want within 2%%", got.AchievedRate, got.OfferedRate)
			continue
		}
		failure = ""
		break
	}
	if failure != "" {
		t.Error(failure)
	}
	if got.Latency.Count() == 0 || got.Latency.Quantile(0.5) <= 0 {
		t.Errorf("no latencies without a gap: %d of %d excluded", got.Excluded, got.Completed)
	}
	if got.RawLatency.Count() != got.Latency.Count()+int64(got.Excluded) {
		t.Errorf("%d raw latencies, want %d clean and %d excluded", got.RawLatency.Count(), got.Latency.Count(), got.Excluded)
	}

	r.drain(t)
	server, client := r.stop(t)
	if client.Completed != client.Sent || client.Offered != client.Sent+client.Dropped {
		t.Errorf("the client lost requests: %+v", client)
	}
	if server.Requests != client.Completed {
		t.Errorf("the server answered %d requests, the client had %d answers", server.Requests, client.Completed)
	}
	var byInterval uint64
	for _, in := range r.server.Intervals() {
		byInterval += in.Requests
	}
	if byInterval != server.Requests {
		t.Errorf("the server's intervals hold %d requests, its totals %d", byInterval, server.Requests)
	}
}

func TestForcedGapIsLoggedAndItsRequestsExcluded(t *testing.T) {
	testbed.Require(t)
	for _, sleep := range []bool{false, true} {
		name := "a client that spins"
		if sleep {
			name = "a client that sleeps"
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 2, Sleep: sleep})
			if _, err := r.client.Phase(t.Context(), workload.Phase{Name: "gap", Rate: 5000}); err != nil {
				t.Fatal(err)
			}
			const forced = 5 * time.Millisecond
			var gap workload.Gap
			var excluded uint64
			// Requests became due all through the gap, 25 in 5 ms: half of
			// that is 2.5 standard deviations away. A gap before the load
			// began excluded none.
			shown := func() bool {
				gap, excluded = workload.Gap{}, 0
				for _, in := range r.client.Intervals() {
					if in.Phase != "gap" {
						continue
					}
					for _, g := range in.Gaps.Listed {
						if g.Span > gap.Span {
							gap = g
						}
					}
					excluded += in.ExcludedClient
				}
				return gap.Span >= forced*8/10 && excluded >= uint64(gap.Span.Seconds()*5000/2)
			}
			// A stop that falls into a gap of the machine's own shows little
			// of itself.
			for attempt := 0; attempt < 10 && !shown(); attempt++ {
				if err := unix.Kill(r.client.PID(), unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				<-time.After(forced)
				if err := unix.Kill(r.client.PID(), unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				for wait := 0; wait < 40 && !shown(); wait++ {
					<-time.After(50 * time.Millisecond)
				}
			}
			if !shown() {
				t.Fatalf("not in a report: a gap of %v and its requests; the longest is %v, with %d requests excluded", forced, gap.Span, excluded)
			}
			t.Logf("longest gap %v, %d requests excluded", gap.Span, excluded)
			for _, in := range r.client.Intervals() {
				if in.ExcludedClient == 0 {
					continue
				}
				if in.RawLatency.Count() != in.Latency.Count()+int64(in.ExcludedClient+in.ExcludedServer) {
					t.Errorf("interval with %d raw and %d clean latencies, want a difference of %d",
						in.RawLatency.Count(), in.Latency.Count(), in.ExcludedClient+in.ExcludedServer)
				}
			}
			r.stop(t)
		})
	}
}

func TestOverloadShowsInBacklogAndLatency(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Require(t)
		// 500 us per request is 2,000 requests per second at most; 4,000 are
		// offered.
		r := newRig(t, testbed.Options{},
			workload.ServerConfig{ServiceTime: 500 * time.Microsecond},
			workload.ClientConfig{Connections: 8, Seed: 3})
		got := r.runPhase(t, workload.Phase{Name: "overload", Rate: 4000}, 4)
		// What was answered while the client did not run is counted when it does.
		if got.AchievedRate > 2100 {
			t.Errorf("achieved %.0f requests/s, which takes more than all of the server's time", got.AchievedRate)
		}
		if got.OfferedRate < 3400 {
			t.Errorf("offered %.0f requests/s, want about 4000 whatever the server does", got.OfferedRate)
		}
		if got.MaxBacklog < 500 {
			t.Errorf("at most %d requests waited, want some 2000 after 1 s", got.MaxBacklog)
		}
		// Timed from the send, a request would take 8 x 0.5 ms.
		if p99 := got.RawLatency.Quantile(0.99); p99 < 100*time.Millisecond {
			t.Errorf("p99 is %v: the wait in the client is missing", p99)
		}
	})
}

func TestClosedPhaseKeepsEveryConnectionAsking(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Require(t)
		// 200 us per request are most of what a request takes, so that eight
		// connections wait for each other.
		const connections = 8
		r := newRig(t, testbed.Options{},
			workload.ServerConfig{ServiceTime: 200 * time.Microsecond},
			workload.ClientConfig{Connections: connections, Seed: 3})
		got := r.runPhase(t, workload.Phase{Name: "closed", Closed: true}, 4)
		if got.Completed == 0 || got.MaxBacklog > 4 || got.Dropped != 0 {
			t.Errorf("completed %d requests, with a backlog of at most %d and %d dropped", got.Completed, got.MaxBacklog, got.Dropped)
		}
		// Little's law.
		inFlight := got.AchievedRate * got.RawLatency.Quantile(0.5).Seconds()
		if inFlight < connections/2 || inFlight > connections*1.3 {
			t.Errorf("%.0f requests/s at a median of %v keep %.1f connections busy, want %d",
				got.AchievedRate, got.RawLatency.Quantile(0.5), inFlight, connections)
		}
		after := r.runPhase(t, workload.Phase{Name: "open", Rate: 500}, 2)
		if after.AchievedRate > 1000 {
			t.Errorf("%.0f requests/s after the closed phase, want 500", after.AchievedRate)
		}
	})
}

func TestPhaseChangesTheRateAndMarksSettling(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Require(t)
		r := newRig(t, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 4, Interval: 100 * time.Millisecond})
		low := r.runPhase(t, workload.Phase{Name: "low", Rate: 1000, Settle: 50 * time.Millisecond}, 5)
		high := r.runPhase(t, workload.Phase{Name: "high", Rate: 8000, Settle: 50 * time.Millisecond}, 5)
		if ratio := high.OfferedRate / low.OfferedRate; ratio < 6 || ratio > 10 {
			t.Errorf("offered %.0f and then %.0f requests/s, want 1000 and 8000", low.OfferedRate, high.OfferedRate)
		}
		settling, gaps := map[string]time.Duration{}, map[string]time.Duration{}
		intervals := r.client.Intervals()
		for i, in := range intervals {
			if in.Settling {
				settling[in.Phase] += in.End - in.Start
				gaps[in.Phase] += in.Gaps.Total
			}
			if i > 0 && in.Start != intervals[i-1].End {
				t.Errorf("interval %d starts at %v, want the end of the one before, %v", i, in.Start, intervals[i-1].End)
			}
		}
		for _, phase := range []string{"low", "high"} {
			const least = 50 * time.Millisecond
			// A settle time ends late only where the client was not run, or was
			// reporting.
			if got, most := settling[phase], least+gaps[phase]+5*time.Millisecond; got < least || got > most {
				t.Errorf("phase %s was marked as settling for %v, want %v to %v", phase, got, least, most)
			}
		}
		r.stop(t)
	})
}

func TestCPUTimeIsWhatTheKernelCharges(t *testing.T) {
	own := func() time.Duration {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			t.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	read := func() time.Duration {
		used, err := workload.CPUTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	const burn = 200 * time.Millisecond
	start, before := own(), read()
	for own()-start < burn {
	}
	used, want := read()-before, own()-start
	// The time of a running thread is as of its last scheduler tick, at most
	// 10 ms ago.
	if (used - want).Abs() > 25*time.Millisecond {
		t.Errorf("%v of CPU time, want %v", used, want)
	}

	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := workload.CPUTime(child.Process.Pid); err == nil {
		t.Error("the CPU time of a process that has ended was read")
	}
}

func TestServerSetsItsBusyPolling(t *testing.T) {
	testbed.Require(t)
	want := workload.BusyPoll{Span: 50 * time.Microsecond, Budget: 32, Prefer: true}
	r := newRig(t, testbed.Options{}, workload.ServerConfig{BusyPoll: &want}, workload.ClientConfig{Seed: 6})
	if got := busyPolls(t, r.server.PID()); !slices.Contains(got, want) {
		t.Errorf("the server's epoll contexts have %+v, want one with %+v", got, want)
	}
	if _, err := r.client.Phase(t.Context(), workload.Phase{Name: "busy", Rate: 2000}); err != nil {
		t.Fatal(err)
	}
	r.await(t, 30*time.Second, "1000 answers", func() bool {
		return workload.Summarize(r.client.Intervals(), "busy").Completed >= 1000
	})
	r.stop(t)
}

// busyPolls reads the busy poll parameters of a process's epoll contexts, by
// duplicating their descriptors.
func busyPolls(t *testing.T, pid int) []workload.BusyPoll {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(process) }()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []workload.BusyPoll
	for _, entry := range entries {
		target, err := os.Readlink(dir + "/" + entry.Name())
		if err != nil || target != "anon_inode:[eventpoll]" {
			continue
		}
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			t.Fatal(err)
		}
		// struct epoll_params, include/uapi/linux/eventpoll.h.
		var params struct {
			usecs   uint32
			budget  uint16
			prefer  uint8
			padding uint8
		}
		const epiocgparams = 0x80088a02
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), epiocgparams, uintptr(unsafe.Pointer(&params)))
		_ = unix.Close(fd)
		if errno != 0 {
			t.Fatalf("read busy polling of descriptor %d: %v", number, errno)
		}
		found = append(found, workload.BusyPoll{
			Span:   time.Duration(params.usecs) * time.Microsecond,
			Budget: params.budget,
			Prefer: params.prefer == 1,
		})
	}
	return found
}

func TestProcessThatCannotStartSaysWhy(t *testing.T) {
	_, err := workload.StartServer(t.Context(), launch(t, "server", nil), workload.ServerConfig{}, nil)
	if err == nil || !strings.Contains(err.Error(), "want IPv4 and port") {
		t.Errorf("error %v, want the server's own words", err)
	}
	_, err = workload.StartClient(t.Context(), launch(t, "neither", nil), workload.ClientConfig{}, nil)
	if err == nil || !strings.Contains(err.Error(), `unknown role "neither"`) {
		t.Errorf("error %v, want what the process wrote to its standard error", err)
	}
}

func TestDeadClientIsReported(t *testing.T) {
	testbed.Require(t)
	r := newRig(t, testbed.Options{}, workload.ServerConfig{}, workload.ClientConfig{Seed: 7})
	if err := unix.Kill(r.client.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.client.Done()
	if _, err := r.client.Phase(context.Background(), workload.Phase{Name: "late", Rate: 1}); err == nil {
		t.Error("a phase was begun by a process that was killed")
	}
	if _, err := r.client.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stop: error %v, want the signal named", err)
	}
	if _, err := r.server.Stop(t.Context()); err != nil {
		t.Errorf("the server did not outlive its client: %v", err)
	}
}

func TestFreshPhaseLeavesTheBacklogBehind(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Require(t)
		r := newRig(t, testbed.Options{},
			workload.ServerConfig{ServiceTime: 500 * time.Microsecond},
			workload.ClientConfig{Connections: 8, Seed: 10, Interval: 100 * time.Millisecond})
		before := r.runPhase(t, workload.Phase{Name: "overload", Rate: 6000}, 5)
		after := r.runPhase(t, workload.Phase{Name: "after", Rate: 100, Fresh: true}, 5)
		if before.MaxBacklog < 500 {
			t.Fatalf("at most %d requests waited, want some 2000", before.MaxBacklog)
		}
		if after.MaxBacklog > 100 {
			t.Errorf("%d requests wait in a fresh phase of 100 requests/s", after.MaxBacklog)
		}
		server, client := r.stop(t)
		if client.Dropped == 0 || client.Offered != client.Completed+client.Dropped {
			t.Errorf("%d offered, %d completed, %d dropped: want the sum, and some dropped", client.Offered, client.Completed, client.Dropped)
		}
		if server.Requests != client.Completed {
			t.Errorf("the server answered %d requests, the client had %d answers", server.Requests, client.Completed)
		}
	})
}
