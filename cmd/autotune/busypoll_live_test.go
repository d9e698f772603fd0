package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/experiments/stats"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
	"autotune/probe"
	"autotune/tuner"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// contextsOf is the test's own view of the epoll contexts of a process, by
// descriptor and past the listing.
func contextsOf(t testing.TB, pid int) map[int]busypoll.Params {
	t.Helper()
	out := map[int]busypoll.Params{}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range fds {
		var fd int
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name()))
		if _, scanErr := fmt.Sscan(entry.Name(), &fd); err != nil || scanErr != nil || target != "anon_inode:[eventpoll]" {
			continue
		}
		if out[fd], err = (busypoll.Live{}).Get(busypoll.Handle{PID: pid, FD: fd, Kind: busypoll.KindEpoll}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// preferring counts the contexts that prefer busy polling.
func preferring(contexts map[int]busypoll.Params) int {
	n := 0
	for _, p := range contexts {
		if p.Prefer {
			n++
		}
	}
	return n
}

// suspendedNow fits a decision that suspends.
func suspendedNow(e tuner.Entry) bool { return applied(e) && e.To.IRQSuspendTimeout > 0 }

// seen is what the queues of a bed did in a second.
type seen struct {
	packets, byApplication uint64
	suspended, expired     uint64
}

func (s seen) share() float64 { return float64(s.byApplication) / float64(max(1, s.packets)) }

// watch observes a bed for a second, by probes of its own.
func watch(t testing.TB, bed *testbed.Bed) (out seen) {
	t.Helper()
	ctx := t.Context()
	host, err := actuate.Open(ctx, actuate.Options{
		Namespace: actuate.NamespaceRef{Name: bed.Server().Name}, Ifaces: []string{bed.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	source, err := probe.Open(ctx, probe.Options{Inventory: host, Budget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	sample, err := source.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range sample.Queues {
		out.packets += q.Polls().Packets
		out.byApplication += q.Busy.Packets
		out.suspended += q.Suspension.Started
		out.expired += q.Suspension.Expired
	}
	return out
}

// expectDriven fails the test unless most packets come by application polls,
// and the safety timer is at rest but for when others took the CPU. On a shared
// machine a second in which the server hardly ran shows little, so the best of
// some counts. One in which the server is never idle may be a single suspension,
// that began before.
func expectDriven(t testing.TB, bed *testbed.Bed, want float64) (packets uint64) {
	t.Helper()
	var last seen
	for range 5 {
		last = watch(t, bed)
		t.Logf("%.1f%% of %d packets by application polls, %d suspensions, %d ended by the safety timer",
			100*last.share(), last.packets, last.suspended, last.expired)
		begun := last.suspended > 0 || last.share() > 0.99
		if last.share() >= want && begun && last.expired*50 <= last.suspended {
			return last.packets
		}
	}
	t.Errorf("in no second %v of the packets came by application polls, without the safety timer: %+v", want, last)
	return last.packets
}

func TestSelectedApplicationDrivesTheQueueAndIsPutBack(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Alone(t)
		bed := newRealtimeBed(t, 1)
		// The next request comes when one is answered, and the server takes longer
		// for each than all else does, so that it is busy on a machine of any speed.
		load := newLoadOf(t, bed, workload.ServerConfig{Realtime: true, ServiceTime: 20 * time.Microsecond})
		ask(t, load.client, "load")
		k := newKernel(t, bed)
		originals, own := k.settings(), contextsOf(t, load.server.PID())
		recording := filepath.Join(t.TempDir(), "steered.trace.zst")
		b := startRun(t, "--apply", "--trace", recording, "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms",
			"--apps", fmt.Sprintf("pid=%d", load.server.PID()), "--policy", "static:case=suspend50", bed.Server().Ifname)
		e := b.await("it was suspended", suspendedNow)
		if !e.To.BusyPoll.Prefer || e.To.IRQSuspendTimeout != 20*time.Millisecond {
			t.Errorf("applied %v", e.To)
		}
		want := busypoll.Params{Budget: 64, Prefer: true}
		var got []busypoll.Params
		for _, p := range contextsOf(t, load.server.PID()) {
			if p.Prefer {
				got = append(got, p)
			}
		}
		if diff := cmp.Diff([]busypoll.Params{want}, got); diff != "" {
			t.Errorf("contexts that prefer busy polling (-want +got):\n%s", diff)
		}
		expectDriven(t, bed, 0.5)
		if code, stderr := b.stop(os.Interrupt); code != exitDone {
			testbed.Always(t).Errorf("exit code %d: %s", code, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			testbed.Always(t).Errorf("settings after the run (-original +now):\n%s", diff)
		}
		if diff := cmp.Diff(own, contextsOf(t, load.server.PID())); diff != "" {
			testbed.Always(t).Errorf("contexts after the run (-original +now):\n%s", diff)
		}
		if code, stdout, stderr := call(t, "replay", "--verify", recording); code != exitDone {
			testbed.Always(t).Errorf("the recording is not decided alike: exit code %d: %s%s", code, stdout, stderr)
		}
	})
}

func TestMemcachedIsDrivenRestartedAndPutBackAfterAKill(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		requireMemcached(t)
		testbed.Alone(t)
		bed := newRealtimeBed(t, 1)
		memcached := startMemcached(t, bed)
		client := startAsking(t, bed)
		k := newKernel(t, bed)
		originals := k.settings()
		state := t.TempDir()
		p50, p90 := delaysUnderInterrupts(t, bed, client)
		b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "100ms",
			"--apps", "comm=memcached", "--policy", "static:case=suspend50", bed.Server().Ifname)
		b.await("it was suspended", suspendedNow)
		expectDriven(t, bed, 0.8)
		expectAsFast(t, client, p50, p90)

		if _, err := client.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		stopProcess(memcached)
		b.await("suspension ended with the application", func(e tuner.Entry) bool {
			return applied(e) && e.From.IRQSuspendTimeout > 0 && e.To.IRQSuspendTimeout == 0
		})
		awaitPort(t, bed, false)
		memcached = startMemcached(t, bed)
		startAsking(t, bed)
		second := false
		b.await("it was suspended again", func(e tuner.Entry) bool {
			second = second || e.To.IRQSuspendTimeout == 0 && e.From.IRQSuspendTimeout > 0
			return second && suspendedNow(e)
		})
		if n := preferring(contextsOf(t, memcached.Process.Pid)); n == 0 {
			t.Error("no context of the new memcached prefers busy polling")
		}

		b.stop(unix.SIGKILL)
		if n := preferring(contextsOf(t, memcached.Process.Pid)); n == 0 {
			t.Error("the kill put the contexts back: nothing is left to restore")
		}
		code, stdout, stderr := call(t, "restore", "--state", state)
		if code != exitDone {
			testbed.Always(t).Fatalf("restore: exit code %d: %s%s", code, stdout, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			testbed.Always(t).Errorf("settings after restore (-original +now):\n%s", diff)
		}
		for fd, p := range contextsOf(t, memcached.Process.Pid) {
			if p != (busypoll.Params{}) {
				testbed.Always(t).Errorf("context %d is left at %v; restore said\n%s", fd, p, stdout)
			}
		}
	})
}

func TestObservingAnApplicationWritesNothing(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	originals, own := k.settings(), contextsOf(t, load.server.PID())
	b := startRun(t, "--netns", bed.Server().Name, "--interval", "100ms",
		"--apps", fmt.Sprintf("pid=%d", load.server.PID()), "--policy", "static:case=suspend50", bed.Server().Ifname)
	b.await("advice to suspend", func(e tuner.Entry) bool {
		return e.Verdict == model.VerdictAdvised && e.To.IRQSuspendTimeout > 0
	})
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-original +now):\n%s", diff)
	}
	if diff := cmp.Diff(own, contextsOf(t, load.server.PID())); diff != "" {
		t.Errorf("contexts (-original +now):\n%s", diff)
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestMixedApplicationIsNotSuspended(t *testing.T) {
	bed := newBed(t, 2)
	load := newLoad(t, bed)
	load.offer(t, "load", 10000)
	k := newKernel(t, bed)
	awaitMixed(t, load.server.PID())
	own := contextsOf(t, load.server.PID())
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms", "--duration", "3s",
		"--apps", fmt.Sprintf("pid=%d", load.server.PID()), "--policy", "static:case=suspend50", bed.Server().Ifname)
	b.await("the refusal", func(e tuner.Entry) bool {
		return e.Guard == "readiness" && e.Verdict == model.VerdictRefused && strings.Contains(e.Why, "mixes")
	})
	for id, s := range k.settings() {
		if s.IRQSuspendTimeout != 0 {
			t.Errorf("NAPI %d is suspended: %v", id, s)
		}
	}
	if diff := cmp.Diff(own, contextsOf(t, load.server.PID())); diff != "" {
		t.Errorf("contexts (-original +now):\n%s", diff)
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestMixedApplicationIsAsFastAsUnderDeferral has a server with one context for
// two queues. Ordered to be suspended, it must do as well as where deferral
// alone was ordered; a queue that waited for the safety timer would take a
// hundred times as long.
func TestMixedApplicationIsAsFastAsUnderDeferral(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		const (
			rate            = 10000
			rounds, enough  = 7, 3
			allowed         = 1.2
			settled, lasted = 300 * time.Millisecond, 800 * time.Millisecond
		)
		testbed.Alone(t)
		bed := newRealtimeBed(t, 2)
		load := newLoadOf(t, bed, workload.ServerConfig{Realtime: true})
		load.offer(t, "load", rate)
		awaitMixed(t, load.server.PID())
		k := newKernel(t, bed)
		p90 := func(name string, args ...string) float64 {
			b := startRun(t, append([]string{"--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms"}, args...)...)
			b.await("it defers", func(e tuner.Entry) bool { return applied(e) && e.To.Mode() == model.ModeDeferral })
			if _, err := load.client.Phase(t.Context(), workload.Phase{Name: name, Rate: rate, Settle: settled}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(settled + lasted)
			load.offer(t, "load", rate)
			for id, s := range k.settings() {
				if s.Mode() != model.ModeDeferral || s.GROFlushTimeout != 50*time.Microsecond {
					t.Fatalf("%s: NAPI %d is at %v", name, id, s)
				}
			}
			if code, stderr := b.stop(os.Interrupt); code != exitDone {
				testbed.Always(t).Fatalf("exit code %d: %s", code, stderr)
			}
			sum := workload.Summarize(load.client.Intervals(), name)
			if sum.Completed < rate/4 {
				t.Fatalf("%s: %d requests were answered", name, sum.Completed)
			}
			return float64(sum.Latency.Quantile(0.9)) / 1e3
		}
		app := fmt.Sprintf("pid=%d", load.server.PID())
		var deferral, mixed []float64
		for round := range rounds {
			deferral = append(deferral, p90(fmt.Sprint("deferral ", round), "--policy", "static:case=defer50", bed.Server().Ifname))
			mixed = append(mixed, p90(fmt.Sprint("mixed ", round), "--apps", app, "--policy", "static:case=suspend50", bed.Server().Ifname))
			t.Logf("p90 %.0f us by deferral alone, %.0f us with suspension ordered", deferral[round], mixed[round])
			// A shared machine may take more rounds to tell.
			if round+1 >= enough && stats.Median(mixed) <= allowed*stats.Median(deferral) {
				return
			}
		}
		t.Errorf("p90 is %.0f us with suspension ordered and %.0f us by deferral alone, more than %v times as long",
			stats.Median(mixed), stats.Median(deferral), allowed)
	})
}

// awaitMixed waits until a context of the process has received on two NAPI
// instances.
func awaitMixed(t testing.TB, pid int) {
	t.Helper()
	for range 100 {
		code, stdout, stderr := call(t, "busypoll", "list", "--pid", fmt.Sprint(pid), "--json")
		if code != exitDone {
			t.Fatalf("busypoll list: exit code %d: %s", code, stderr)
		}
		for line := range strings.Lines(stdout) {
			var l busypollLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if *l.Mixed {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no context has received on both NAPI instances")
}

func TestSetAndRestoreAnApplication(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	pid := fmt.Sprint(load.server.PID())
	own := contextsOf(t, load.server.PID())
	state := t.TempDir()
	code, stdout, stderr := call(t, "busypoll", "set", "--pid", pid, "--usecs", "30", "--budget", "32", "--prefer", "on", "--state", state, "--json")
	if code != exitDone || !strings.Contains(stderr, "restore --state "+state) {
		t.Fatalf("set: exit code %d: %s%s", code, stdout, stderr)
	}
	want := busypoll.Params{Usecs: 30, Budget: 32, Prefer: true}
	for line := range strings.Lines(stdout) {
		var l busypollSetLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.Outcome != "set" || *l.From != own[l.FD] || *l.Now != want || l.Kind != "epoll" || l.Error != nil {
			t.Errorf("unexpected line %s", line)
		}
	}
	for fd, p := range contextsOf(t, load.server.PID()) {
		if p != want {
			t.Errorf("context %d is at %v", fd, p)
		}
	}
	code, stdout, stderr = call(t, "busypoll", "list", "--pid", pid, "--sockets", "--json")
	if code != exitDone {
		t.Fatalf("list: exit code %d: %s", code, stderr)
	}
	napi, _ := newKernel(t, bed).only()
	kinds := map[string]int{}
	for line := range strings.Lines(stdout) {
		var l busypollLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kinds[l.Kind]++
		if l.Kind == "epoll" && len(l.NAPIIDs) > 0 {
			kinds["placed"]++
			if l.NAPIIDs[0] != napi || *l.Queues[0] != bed.Server().Ifname+":0" || l.NAPICPU[0] == nil || *l.NAPICPU[0] != 0 || *l.Usecs != 30 || !*l.Prefer || *l.Mixed {
				t.Errorf("unexpected line %s", line)
			}
		}
	}
	if kinds["placed"] != 1 || kinds["tcp"] < 128 {
		t.Errorf("listed %v, want one context with sockets and 128 connections", kinds)
	}
	if code, stdout, stderr := call(t, "restore", "--state", state, "--json"); code != exitDone {
		t.Fatalf("restore: exit code %d: %s%s", code, stdout, stderr)
	}
	if diff := cmp.Diff(own, contextsOf(t, load.server.PID())); diff != "" {
		t.Errorf("contexts after restore (-original +now):\n%s", diff)
	}
	if left := stateFiles(t, state); len(left) != 0 {
		t.Errorf("state left behind: %v", left)
	}
}

func TestSocketsAreSetOnlyWhenAskedFor(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	pid, state := fmt.Sprint(load.server.PID()), t.TempDir()
	// sockets counts them by what they are set to.
	sockets := func() map[busypoll.Params]int {
		code, stdout, stderr := call(t, "busypoll", "list", "--pid", pid, "--sockets", "--json")
		if code != exitDone {
			t.Fatalf("list: exit code %d: %s", code, stderr)
		}
		out := map[busypoll.Params]int{}
		for line := range strings.Lines(stdout) {
			var l busypollLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if l.Kind == "tcp" {
				out[busypoll.Params{Usecs: *l.Usecs, Budget: *l.Budget, Prefer: *l.Prefer}]++
			}
		}
		return out
	}
	originals := sockets()
	set := func(more ...string) string {
		code, stdout, stderr := call(t, append([]string{"busypoll", "set", "--pid", pid, "--prefer", "on", "--budget", "300", "--state", state}, more...)...)
		if code != exitDone {
			t.Fatalf("set: exit code %d: %s%s", code, stdout, stderr)
		}
		return stderr
	}
	set()
	if diff := cmp.Diff(originals, sockets()); diff != "" {
		t.Errorf("sockets were set without --sockets (-original +now):\n%s", diff)
	}
	if said := set("--sockets"); !strings.Contains(said, "closes it") {
		t.Errorf("no word about the danger: %q", said)
	}
	want := map[busypoll.Params]int{}
	for p, n := range originals {
		p.Budget, p.Prefer = 300, true
		want[p] += n
	}
	if diff := cmp.Diff(want, sockets()); diff != "" {
		t.Errorf("sockets after the set (-want +got):\n%s", diff)
	}
	if code, stdout, stderr := call(t, "restore", "--state", state); code != exitDone {
		t.Fatalf("restore: exit code %d: %s%s", code, stdout, stderr)
	}
	if diff := cmp.Diff(originals, sockets()); diff != "" {
		t.Errorf("sockets after the restore (-original +now):\n%s", diff)
	}
}

func TestRestoreUndoesASteeredRunThatWasKilledAtAnyInstant(t *testing.T) {
	const kills = 12
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	originals, own := k.mark(), contextsOf(t, load.server.PID())
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	set := 0
	for i := range kills {
		state := t.TempDir()
		b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "10ms",
			"--apps", fmt.Sprintf("pid=%d", load.server.PID()), "--policy", "static:case=suspend20", bed.Server().Ifname)
		if i%2 == 0 {
			b.await("it was suspended", suspendedNow)
		}
		time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
		b.stop(unix.SIGKILL)
		if cmp.Diff(own, contextsOf(t, load.server.PID())) != "" {
			set++
		}
		if code, stdout, stderr := call(t, "restore", "--state", state, "--json"); code != exitDone {
			t.Fatalf("seed %d, kill %d: restore: exit code %d: %s%s", seed, i, code, stdout, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			t.Fatalf("seed %d, kill %d: settings after restore (-original +now):\n%s", seed, i, diff)
		}
		if diff := cmp.Diff(own, contextsOf(t, load.server.PID())); diff != "" {
			t.Fatalf("seed %d, kill %d: contexts after restore (-original +now):\n%s", seed, i, diff)
		}
	}
	t.Logf("%d of %d kills left contexts set", set, kills)
	if set < kills/4 {
		t.Errorf("only %d of %d kills left contexts set: restore was hardly tested", set, kills)
	}
}

func TestMemcachedWithAThreadPerQueueIsDrivenOnBoth(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		requireMemcached(t)
		testbed.Alone(t)
		bed := newRealtimeBed(t, 2)
		memcached := startMemcached(t, bed)
		client := startAsking(t, bed)
		k := newKernel(t, bed)
		originals := k.settings()
		p50, p90 := delaysUnderInterrupts(t, bed, client)
		b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms",
			"--apps", fmt.Sprintf("pid=%d", memcached.Process.Pid), "--policy", "static:case=suspend50", bed.Server().Ifname)
		suspended := map[int]bool{}
		b.await("both queues were suspended", func(e tuner.Entry) bool {
			if suspendedNow(e) {
				suspended[e.Queue.Index] = true
			}
			return len(suspended) == 2
		})
		// Both threads share one CPU here: that both are driven takes a client that
		// keeps both busy.
		expectDriven(t, bed, 0.8)
		expectAsFast(t, client, p50, p90)
		if code, stderr := b.stop(os.Interrupt); code != exitDone {
			testbed.Always(t).Errorf("exit code %d: %s", code, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			testbed.Always(t).Errorf("settings after the run (-original +now):\n%s", diff)
		}
		if n := preferring(contextsOf(t, memcached.Process.Pid)); n != 0 {
			testbed.Always(t).Errorf("%d contexts are left preferring busy polling", n)
		}
	})
}

func TestSettingFromAnotherUserNamespaceIsRefused(t *testing.T) {
	testbed.Require(t)
	cmd := program("busypoll", "set", "--pid", fmt.Sprint(os.Getpid()), "--prefer", "on", "--state", t.TempDir())
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitCannot || !strings.Contains(string(out), "user namespace") {
		t.Errorf("%v, exit code %d, want %d: %s", err, cmd.ProcessState.ExitCode(), exitCannot, out)
	}
}

func TestListingInAnotherPIDNamespaceIsRefused(t *testing.T) {
	testbed.Require(t)
	cmd := program("busypoll", "list")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitCannot || !strings.Contains(string(out), "PID namespace") {
		t.Errorf("%v, exit code %d, want %d: %s", err, cmd.ProcessState.ExitCode(), exitCannot, out)
	}
}
