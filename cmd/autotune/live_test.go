package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
	"autotune/tuner"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// newBed makes a bed with NAPI threads on the server's CPU.
func newBed(t testing.TB, queues int) *testbed.Bed {
	t.Helper()
	testbed.Require(t)
	bed, err := testbed.New(context.WithoutCancel(t.Context()), testbed.Options{Prefix: "cmd", Queues: queues, Threaded: true, ClientCPU: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

// load is a server and a client in a bed.
type load struct {
	server *workload.Server
	client *workload.Client
}

func newLoad(t testing.TB, bed *testbed.Bed) *load {
	t.Helper()
	return newLoadOf(t, bed, workload.ServerConfig{})
}

// newBusyPollLoad is newLoad with a server that prefers busy polling.
func newBusyPollLoad(t testing.TB, bed *testbed.Bed) *load {
	t.Helper()
	return newLoadOf(t, bed, workload.ServerConfig{BusyPoll: &workload.BusyPoll{Budget: 64, Prefer: true}})
}

// newLoadOf has a server of its own making, but for where it is.
func newLoadOf(t testing.TB, bed *testbed.Bed, config workload.ServerConfig) *load {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	config.Addr, config.CPU, config.RuntimeCPU = netip.AddrPortFrom(bed.Server().Addr, 0), 0, 1
	server, err := workload.StartServer(ctx, workload.Launch{Command: program("experiment", "server"), Start: bed.Server().Start}, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	client, err := workload.StartClient(ctx, workload.Launch{Command: program("experiment", "client"), Start: bed.Client().Start},
		workload.ClientConfig{Addr: server.Addr(), CPU: 1, RuntimeCPU: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return &load{server, client}
}

func (l *load) offer(t testing.TB, name string, rate float64) {
	t.Helper()
	if _, err := l.client.Phase(t.Context(), workload.Phase{Name: name, Rate: rate}); err != nil {
		t.Fatal(err)
	}
}

// program is autotune as a process of its own.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// background is a run under way in a process of its own.
type background struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr bytes.Buffer

	mu      sync.Mutex
	changed *sync.Cond
	entries []tuner.Entry
	lines   []string
	ended   bool
}

// startRun starts run --json with these arguments and waits for its
// announcement, after which windows are being observed.
func startRun(t testing.TB, args ...string) *background {
	t.Helper()
	b := &background{t: t, cmd: program(append([]string{"run", "--json"}, args...)...)}
	b.changed = sync.NewCond(&b.mu)
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd.Stderr = &b.stderr
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.cmd.Process.Kill() })
	go func() {
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			b.take(scanner.Text())
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = true
		b.changed.Broadcast()
	}()
	return b
}

func (b *background) take(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	var entry struct {
		Kind string `json:"kind"`
		tuner.Entry
	}
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		b.t.Errorf("run --json printed %q: %v", line, err)
	}
	if entry.Kind == "decision" {
		b.entries = append(b.entries, entry.Entry)
	}
	b.changed.Broadcast()
}

// await waits until a decision fits, or fails the test when the run ends first
// or 30 s pass.
func (b *background) await(what string, fits func(tuner.Entry) bool) tuner.Entry {
	b.t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for seen := 0; ; {
		for ; seen < len(b.entries); seen++ {
			if fits(b.entries[seen]) {
				return b.entries[seen]
			}
		}
		if b.ended {
			_ = b.cmd.Wait()
			b.t.Fatalf("the run ended before %s; it printed\n%s\n%s", what, strings.Join(b.lines, "\n"), b.stderr.String())
		}
		b.changed.Wait()
	}
}

func applied(e tuner.Entry) bool { return e.Verdict == model.VerdictApplied }

// wait returns the exit code and what was said on stderr, once all output was
// taken.
func (b *background) wait() (int, string) {
	b.t.Helper()
	timer := time.AfterFunc(60*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	b.mu.Lock()
	for !b.ended {
		b.changed.Wait()
	}
	b.mu.Unlock()
	_ = b.cmd.Wait()
	return b.cmd.ProcessState.ExitCode(), b.stderr.String()
}

func (b *background) stop(signal os.Signal) (int, string) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(signal); err != nil {
		b.t.Fatal(err)
	}
	return b.wait()
}

// kernel is the test's own view of the settings in a bed, past autotune.
type kernel struct {
	t       testing.TB
	bed     *testbed.Bed
	client  *netdev.Client
	ifindex int
}

func newKernel(t testing.TB, bed *testbed.Bed) *kernel {
	t.Helper()
	k := &kernel{t: t, bed: bed, ifindex: bed.Server().Ifindex}
	if err := bed.Server().Do(func() (err error) {
		k.client, err = netdev.New(netdev.Options{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.client.Close() })
	return k
}

// settings by NAPI ID.
func (k *kernel) settings() map[uint32]model.Settings {
	k.t.Helper()
	napis, err := k.client.NAPIs(k.ifindex)
	if err != nil {
		k.t.Fatal(err)
	}
	out := map[uint32]model.Settings{}
	for _, n := range napis {
		s, ok := n.Settings()
		if !ok {
			k.t.Fatalf("NAPI %d does not report its settings", n.ID)
		}
		out[n.ID] = s
	}
	return out
}

func (k *kernel) set(id uint32, s model.Settings) {
	k.t.Helper()
	if err := k.client.SetNAPI(id, netdev.NAPIUpdate{
		DeferHardIRQs: &s.DeferHardIRQs, GROFlushTimeout: &s.GROFlushTimeout, IRQSuspendTimeout: &s.IRQSuspendTimeout,
	}); err != nil {
		k.t.Fatal(err)
	}
}

// mark gives every instance settings of its own, so that zeros are no answer.
func (k *kernel) mark() map[uint32]model.Settings {
	k.t.Helper()
	for id := range k.settings() {
		k.set(id, model.Settings{DeferHardIRQs: 3 + id%5, GROFlushTimeout: time.Duration(20000+id) * time.Nanosecond})
	}
	return k.settings()
}

func (k *kernel) only() (uint32, model.Settings) {
	k.t.Helper()
	all := k.settings()
	if len(all) != 1 {
		k.t.Fatalf("%d NAPI instances, want 1", len(all))
	}
	for id, s := range all {
		return id, s
	}
	panic("unreachable")
}

func TestRunTunesUnderLoadAndPutsEverythingBack(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	k := newKernel(t, bed)
	originals := k.mark()
	load.offer(t, "load", 5000)

	state := t.TempDir()
	before, err := bed.RxPackets()
	if err != nil {
		t.Fatal(err)
	}
	b := startRun(t, "--apply", "--netns", bed.Server().Path, "--state", state, "--interval", "100ms",
		"--slo", "1s", "--slo-quantile", "0.5", "--policy", "random:seed=7", bed.Server().Ifname)
	entry := b.await("a second setting was applied", secondMove())
	_, now := k.only()
	if now == originals[entry.NAPIID] {
		t.Errorf("settings are still the originals %v after %v was applied", now, entry.To)
	}
	code, stderr := b.stop(os.Interrupt)
	if code != exitDone {
		t.Errorf("exit code %d, want %d: %s", code, exitDone, stderr)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings after the run (-original +now):\n%s", diff)
	}
	after, err := bed.RxPackets()
	if err != nil {
		t.Fatal(err)
	}
	if after-before < 1000 {
		t.Errorf("only %d packets while it ran: nothing was tested under load", after-before)
	}
	if left := stateFiles(t, state); len(left) != 0 {
		t.Errorf("state left behind: %v", left)
	}
	journal, err := os.ReadFile(filepath.Join(state, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(journal, []byte(`"verdict":"applied"`)) {
		t.Errorf("the journal holds no applied decision:\n%s", journal)
	}
}

// secondMove fits the second applied decision.
func secondMove() func(tuner.Entry) bool {
	n := 0
	return func(e tuner.Entry) bool {
		if applied(e) {
			n++
		}
		return n >= 2
	}
}

// stateFiles lists what a finished run must not leave: the journal and the
// empty lock may stay.
func stateFiles(t *testing.T, dir string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "journal.jsonl") && e.Name() != "lock" {
			left = append(left, e.Name())
		}
	}
	return left
}

func TestStaticSettingIsAppliedAtOnceAndWithoutTraffic(t *testing.T) {
	bed := newBed(t, 2)
	k := newKernel(t, bed)
	originals := k.mark()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms",
		"--policy", "static:defer=100,flush=2ms", bed.Server().Ifname)
	moved := map[int]bool{}
	b.await("both queues were set", func(e tuner.Entry) bool {
		if applied(e) {
			moved[e.Queue.Index] = true
		}
		return len(moved) == 2
	})
	for id, s := range k.settings() {
		if want := (model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 2 * time.Millisecond}); s != want {
			t.Errorf("NAPI %d has %v, want %v", id, s, want)
		}
	}
	if code, stderr := b.stop(unix.SIGTERM); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings after SIGTERM (-original +now):\n%s", diff)
	}
}

func TestSuspendWithoutABusyPollingApplicationIsRefused(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.settings()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms", "--duration", "2s",
		"--policy", "static:defer=100,flush=50us,suspend=20ms", bed.Server().Ifname)
	e := b.await("what is left of the order", func(e tuner.Entry) bool { return e.Guard == "readiness" })
	if want := (model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}); e.To != want || !strings.Contains(e.Why, "suspend 20ms refused") {
		t.Errorf("readiness gave %v with %v (%s), want %v", e.Verdict, e.To, e.Why, want)
	}
	e = b.await("the refusal", func(e tuner.Entry) bool { return e.Guard == "readiness" && e.Verdict == model.VerdictRefused })
	if e.To.IRQSuspendTimeout != 0 {
		t.Errorf("refused with %v", e.To)
	}
	if code, stderr := b.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-original +now):\n%s", diff)
	}
}

func TestObservingWritesNothing(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	originals := k.mark()
	state := filepath.Join(t.TempDir(), "never-made")
	b := startRun(t, "--netns", bed.Server().Name, "--state", state, "--interval", "100ms",
		"--slo", "1s", "--slo-quantile", "0.5", "--policy", "random", bed.Server().Ifname)
	e := b.await("advice", func(e tuner.Entry) bool { return e.Verdict == model.VerdictAdvised })
	if e.To == e.From {
		t.Errorf("advice that changes nothing: %v", e)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings while observing (-original +now):\n%s", diff)
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("observing made the state directory (%v)", err)
	}
}

func TestKeepLeavesTheSettingAndRestoreUndoesIt(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	state := t.TempDir()
	b := startRun(t, "--apply", "--keep", "--netns", bed.Server().Name, "--state", state, "--interval", "50ms",
		"--policy", "static:defer=50,flush=75us", bed.Server().Ifname)
	b.await("it was applied", applied)
	if code, stderr := b.stop(os.Interrupt); code != exitDone || !strings.Contains(stderr, "restore --state "+state) {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
	if _, _, stderr := call(t, "restore", "--state", t.TempDir()); !strings.Contains(stderr, "restore --state "+state) {
		t.Errorf("restore of an empty state does not name the other one: %q", stderr)
	}
	if _, s := k.only(); s != (model.Settings{DeferHardIRQs: 50, GROFlushTimeout: 75 * time.Microsecond}) {
		t.Errorf("kept %v", s)
	}
	for range 2 {
		if code, _, stderr := call(t, "restore", "--state", state, "--json"); code != exitDone {
			t.Errorf("restore: exit code %d: %s", code, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			t.Errorf("settings after restore (-original +now):\n%s", diff)
		}
	}
}

func TestASecondRunOnTheDeviceIsRefusedWhateverItsState(t *testing.T) {
	bed := newBed(t, 1)
	args := []string{"--apply", "--netns", bed.Server().Name, "--interval", "50ms", "--policy", "static:defer=50,flush=75us", bed.Server().Ifname}
	b := startRun(t, append([]string{"--state", t.TempDir()}, args...)...)
	b.await("it was applied", applied)
	code, _, stderr := call(t, append([]string{"run", "--state", t.TempDir()}, args...)...)
	if code != exitFailed || !strings.Contains(stderr, fmt.Sprint(b.cmd.Process.Pid)) {
		t.Errorf("exit code %d, want %d and the owner's process ID: %q", code, exitFailed, stderr)
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestTheNextRunRestoresWhatACrashLeft(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	args := []string{"--apply", "--netns", bed.Server().Name, "--interval", "50ms", bed.Server().Ifname}
	crashed := startRun(t, append([]string{"--state", t.TempDir(), "--policy", "static:defer=50,flush=75us"}, args...)...)
	crashed.await("it was applied", applied)
	crashed.stop(unix.SIGKILL)

	// Another state directory must not take the tuned values for originals.
	b := startRun(t, append([]string{"--state", t.TempDir(), "--policy", "static:defer=60,flush=90us"}, args...)...)
	e := b.await("it was applied", applied)
	if e.From != originals[e.NAPIID] {
		t.Errorf("the second run started from %v, want the originals %v", e.From, originals[e.NAPIID])
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-original +now):\n%s", diff)
	}
}

func TestAnotherWriterIsYieldedToAndLeftAlone(t *testing.T) {
	bed := newBed(t, 2)
	k := newKernel(t, bed)
	originals := k.mark()
	state := t.TempDir()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "50ms",
		"--policy", "static:defer=100,flush=2ms", bed.Server().Ifname)
	set := map[int]uint32{}
	b.await("both queues were set", func(e tuner.Entry) bool {
		if applied(e) {
			set[e.Queue.Index] = e.NAPIID
		}
		return len(set) == 2
	})
	theirs := model.Settings{DeferHardIRQs: 77, GROFlushTimeout: 77 * time.Microsecond}
	k.set(set[0], theirs)
	b.await("the queue was yielded", func(e tuner.Entry) bool { return e.Queue.Index == 0 && e.Guard == "ownership" })
	if code, stderr := b.stop(os.Interrupt); code != exitDone || !strings.Contains(stderr, "foreign") {
		t.Errorf("exit code %d, want %d and a word about the foreign value: %q", code, exitDone, stderr)
	}
	want := map[uint32]model.Settings{set[0]: theirs, set[1]: originals[set[1]]}
	if diff := cmp.Diff(want, k.settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestASysfsWriteIsAnotherWriter(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	k.mark()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms",
		"--policy", "static:defer=100,flush=2ms", bed.Server().Ifname)
	b.await("it was set", applied)
	if err := bed.Server().DoWithSysfs(func() error {
		return os.WriteFile("/sys/class/net/"+bed.Server().Ifname+"/gro_flush_timeout", []byte("123000"), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	code, stderr := b.wait()
	if code != exitCannot || !strings.Contains(stderr, "another writer") {
		t.Errorf("exit code %d, want %d for a run whose only queue was taken over: %q", code, exitCannot, stderr)
	}
	if _, s := k.only(); s.GROFlushTimeout != 123*time.Microsecond {
		t.Errorf("flush timeout %v, want the other writer's 123us", s.GROFlushTimeout)
	}
}

func TestALinkFlapIsSurvivedAndUndone(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	_, originals := k.only()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms",
		"--policy", "static:defer=100,flush=2ms", bed.Server().Ifname)
	first := b.await("it was set", applied)
	if err := bed.LinkFlap(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := b.await("the new instance was set", func(e tuner.Entry) bool { return applied(e) && e.NAPIID != first.NAPIID })
	if id, s := k.only(); id != second.NAPIID || s != second.To {
		t.Errorf("NAPI %d has %v, want %d with %v", id, s, second.NAPIID, second.To)
	}
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, s := k.only(); s != originals {
		t.Errorf("settings %v, want the originals %v", s, originals)
	}
}

func TestADeletedInterfaceOrNamespaceEndsTheRunWithAClearError(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *testbed.Bed){
		"interface": func(t *testing.T, bed *testbed.Bed) {
			cmd := exec.Command("ip", "-n", bed.Server().Name, "link", "del", bed.Server().Ifname)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		"namespace": func(t *testing.T, bed *testbed.Bed) {
			if err := bed.Close(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bed := newBed(t, 1)
			state := t.TempDir()
			b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "50ms",
				"--policy", "static:defer=100,flush=2ms", bed.Server().Ifname)
			b.await("it was set", applied)
			remove(t, bed)
			code, stderr := b.wait()
			if code != exitFailed || !strings.Contains(stderr, "gone") {
				t.Errorf("exit code %d, want %d and the word gone: %q", code, exitFailed, stderr)
			}
			if code, stdout, stderr := call(t, "restore", "--state", state); code != exitDone {
				t.Errorf("restore: exit code %d: %s%s", code, stdout, stderr)
			}
		})
	}
}

func TestListShowsTheBed(t *testing.T) {
	bed := newBed(t, 3)
	k := newKernel(t, bed)
	want := k.mark()
	code, stdout, stderr := call(t, "list", "--netns", bed.Server().Name, "--json")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	got := map[uint32]model.Settings{}
	for line := range strings.Lines(stdout) {
		var l napiLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.Kind == "device" {
			var d deviceLine
			if err := json.Unmarshal([]byte(line), &d); err != nil || d.GRO == nil || !*d.GRO {
				t.Errorf("unexpected line %s (%v): the bed has GRO on", line, err)
			}
		}
		if l.Kind != "napi" {
			continue
		}
		if l.Ifname != bed.Server().Ifname || l.Driver != "veth" || l.Mapping != model.MappingPosition || l.PID == nil || !l.Tunable || l.NAPIID == nil || l.Scope != "napi" {
			t.Errorf("unexpected line %s", line)
		}
		got[*l.NAPIID] = model.Settings{
			DeferHardIRQs: *l.DeferHardIRQs, GROFlushTimeout: time.Duration(*l.GROFlushTimeout), IRQSuspendTimeout: time.Duration(*l.IRQSuspendTimeout),
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings in list (-kernel +list):\n%s", diff)
	}
}

func TestDoctorFindsThisHostFit(t *testing.T) {
	testbed.Require(t)
	code, stdout, stderr := call(t, "doctor", "--json")
	if code != exitDone {
		t.Errorf("exit code %d on a host that the live tests run on: %s%s", code, stdout, stderr)
	}
	areas := map[string]bool{}
	for line := range strings.Lines(stdout) {
		var f model.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		areas[f.Area] = true
		if f.State != model.FindingOK && (f.Consequence == "" || f.Remedy == "") {
			t.Errorf("%s is %s without consequence or remedy", f.Name, f.State)
		}
	}
	for _, area := range []string{"kernel", "probe", "netdev"} {
		if !areas[area] {
			t.Errorf("no finding of area %q", area)
		}
	}
}
