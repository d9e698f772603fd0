package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/model"
	"autotune/probe/trace"
	"autotune/tuner"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// verifyWhole proves a trace of a run that was ended properly.
func verifyWhole(t *testing.T, path string) verified {
	t.Helper()
	code, v := verifyJSON(t, path)
	if code != exitDone || !v.Identical || v.Unproven != nil || !v.Trace.Closed || v.Entries == 0 {
		t.Fatalf("exit code %d, %v", code, v)
	}
	return v
}

func TestALiveRunIsRepeatedByteForByteFromItsTrace(t *testing.T) {
	bed := newBed(t, 2)
	load := newLoad(t, bed)
	load.offer(t, "load", 8000)
	k := newKernel(t, bed)
	originals := k.mark()
	path := filepath.Join(t.TempDir(), "run.trace.zst")
	state := t.TempDir()
	b := startRun(t, "--apply", "--netns", bed.Server().Path, "--state", state, "--interval", "50ms", "--trace", path,
		"--slo", "1s", "--slo-quantile", "0.5", "--policy", "random:seed=7", bed.Server().Ifname)
	b.await("a second setting was applied", secondMove())

	// The loop yields a queue to another writer, and takes its new instance
	// over after a link flap.
	for id := range originals {
		k.set(id, model.Settings{DeferHardIRQs: 77, GROFlushTimeout: 77 * time.Microsecond})
		break
	}
	foreign := b.await("the queue was yielded", func(e tuner.Entry) bool { return e.Guard == "ownership" })
	if err := bed.LinkFlap(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await("a new instance was seen", func(e tuner.Entry) bool { return e.At > foreign.At && originals[e.NAPIID] == model.Settings{} })
	b.await("a new instance was set", func(e tuner.Entry) bool { return applied(e) && originals[e.NAPIID] == model.Settings{} })
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	v := verifyWhole(t, path)
	journal, err := os.ReadFile(filepath.Join(state, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(string(journal), `"kind":"decision"`); int(v.Entries) != want {
		t.Errorf("%d entries were compared, the journal has %d", v.Entries, want)
	}

	// Cut mid-file it still verifies, as far as it goes.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.trace.zst")
	if err := os.WriteFile(cut, data[:len(data)*2/3], 0o600); err != nil {
		t.Fatal(err)
	}
	if code, v := verifyJSON(t, cut); code != exitDone || !v.Identical || v.Trace.TruncatedAt == nil {
		t.Errorf("cut: exit code %d, %v", code, v)
	}

	// The header says what the rest needs.
	reader, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	h := reader.Header()
	if h.Run == nil || !h.Run.Apply || h.Run.Bounds != model.DefaultBounds() || len(h.Run.Originals) != 2 || h.Kernel == "" || h.Interval != 50*time.Millisecond {
		t.Errorf("header %+v", h)
	}
	for _, original := range h.Run.Originals {
		found := false
		for _, s := range originals {
			found = found || s == original.Settings
		}
		if !found {
			t.Errorf("the original %v is none of %v", original, originals)
		}
	}
}

func TestAnAIMDRunIsRepeatedFromItsTraceAndAnotherPolicyReplayed(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 20000)
	path := filepath.Join(t.TempDir(), "run.trace.zst")
	b := startRun(t, "--apply", "--netns", bed.Server().Path, "--state", t.TempDir(), "--interval", "50ms", "--trace", path,
		"--slo", "20ms", "--slo-quantile", "0.5", "--policy", "aimd:start=50us,step=50us,max=2ms", bed.Server().Ifname)
	b.await("it was applied", applied)
	load.offer(t, "less", 2000)
	ended := time.Duration(0)
	b.await("three seconds more", func(e tuner.Entry) bool {
		if ended == 0 {
			ended = e.At + 3*time.Second
		}
		return e.At >= ended
	})
	if code, stderr := b.stop(unix.SIGTERM); code != exitDone || !strings.Contains(strings.Join(b.lines, ""), `"kind":"trace_written"`) {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	verifyWhole(t, path)
	code, stdout, stderr := call(t, "replay", path, "--policy", "random:seed=2", "--json")
	if code != exitDone || !strings.Contains(stdout, `"verdict":"advised"`) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestARunEndsWellWhenItsTraceCannotBeWritten(t *testing.T) {
	bed := newBed(t, 8)
	// A file system of 64 KiB is soon full.
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	path := filepath.Join(dir, "run.trace.zst")
	state := t.TempDir()
	filler := filepath.Join(dir, "filler")
	b := startRun(t, "--apply", "--netns", bed.Server().Path, "--state", state, "--interval", "10ms", "--trace", path,
		"--policy", "static:defer=100,flush=50us", "--verbose", bed.Server().Ifname)
	b.await("it was applied", applied)
	if err := os.WriteFile(filler, make([]byte, 64<<10), 0o600); err == nil {
		t.Fatal("the file system is larger than it should be")
	}
	// More than the rest of the file's last page has to be written.
	later := 0
	b.await("a thousand decisions more", func(tuner.Entry) bool { later++; return later > 1000 })
	code, stderr := b.stop(os.Interrupt)
	if code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	var line traceLine
	if err := json.Unmarshal([]byte(b.lines[len(b.lines)-1]), &line); err != nil || line.Kind != "trace_written" ||
		line.FailedWrites == 0 || line.LostSamples == 0 || line.Error == nil {
		t.Errorf("the last line is %s (%v)", b.lines[len(b.lines)-1], err)
	}
}

func TestARecordingIsReplayedWithAPolicy(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 8000)
	k := newKernel(t, bed)
	originals := k.mark()
	path := filepath.Join(t.TempDir(), "host.trace.zst")
	args := []string{"record", "--netns", bed.Server().Name, "--interval", "50ms", "-o", path, bed.Server().Ifname}
	code, stdout, stderr := call(t, append(args, "--duration", "2s", "--json")...)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var line struct {
		traceLine
		recorded
	}
	if err := json.Unmarshal([]byte(stdout), &line); err != nil {
		t.Fatalf("%q: %v", stdout, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if line.Kind != "recording" || line.Samples < 20 || line.Span < 1900*time.Millisecond || line.Bytes != info.Size() || line.FailedWrites != 0 {
		t.Errorf("%s, for a file of %d bytes", stdout, info.Size())
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("recording changed settings (-before +after):\n%s", diff)
	}
	if code, _, stderr := call(t, args...); code != exitUsage || !strings.Contains(stderr, "exists") {
		t.Errorf("recording over a file: exit code %d: %s", code, stderr)
	}
	code, stdout, stderr = call(t, "replay", path, "--policy", "random", "--slo", "1s", "--slo-quantile", "0.5")
	if code != exitDone || !strings.Contains(stdout, bed.Server().Ifname+"/0") || !strings.Contains(stdout, "exploration advised") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}

	// The header says of every probe whether it works.
	recordedTo, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer recordedTo.Close()
	states := map[string]model.FindingState{}
	for _, p := range recordedTo.Header().Probes {
		states[p.Name] = p.State
	}
	if states["polls"] != model.FindingOK || states["epoll returns"] != model.FindingMissing || len(states) < 10 {
		t.Errorf("probes %v", states)
	}

	// In several files.
	parted := filepath.Join(t.TempDir(), "parted.trace.zst")
	code, stdout, stderr = call(t, "record", "--netns", bed.Server().Name, "--interval", "50ms", "-o", parted, bed.Server().Ifname,
		"--duration", "2500ms", "--rotate-age", "1s", "--json")
	if err := json.Unmarshal([]byte(stdout), &line); code != exitDone || err != nil || len(line.Files) < 2 || line.FailedWrites != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	code, stdout, stderr = call(t, append([]string{"replay", "--policy", "random", "--json"}, line.Files...)...)
	if want := fmt.Sprintf(`"samples":%d,`, line.Samples); code != exitDone || strings.Count(stdout, `"kind":"replay"`) != 1 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want %s once: %s", code, want, stderr)
	}

	// Stopped by a signal, and piped.
	piped := filepath.Join(t.TempDir(), "piped.trace.zst")
	file, err := os.Create(piped)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := program("record", "--netns", bed.Server().Name, "--interval", "50ms", "-o", "-", bed.Server().Ifname)
	cmd.Stdout = file
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if !strings.HasPrefix(lines.Text(), "recording ") {
			continue
		}
		// Only now do its windows begin, however busy the machine is.
		timer := time.NewTimer(1500 * time.Millisecond)
		<-timer.C
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "samples") {
		t.Errorf("%v: %q", err, said.String())
	}
	reader, err := openTrace(piped)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, err := range reader.Records() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := reader.Stats(); !s.Ended || s.Samples == 0 {
		t.Errorf("piped trace: %+v", s)
	}
}

func TestLiveListAgreesWithTheInterface(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		bed := newBed(t, 2)
		load := newLoad(t, bed)
		load.offer(t, "load", 8000)
		k := newKernel(t, bed)
		originals := k.mark()
		packets := func() uint64 {
			n, err := bed.RxPackets()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		cmd := program("list", "--live", bed.Server().Ifname, "--netns", bed.Server().Name, "--duration", "2s", "--json")
		before, began := packets(), time.Now()
		out, err := cmd.Output()
		rate := float64(packets()-before) / time.Since(began).Seconds()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr) //nolint:errorlint // Output returns no other
		}
		var span time.Duration
		var seen float64
		windows := map[time.Duration]bool{}
		for text := range strings.Lines(string(out)) {
			var line rateLine
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if line.Kind != "napi_rates" || line.Ifname != bed.Server().Ifname || line.NAPIID == nil || line.Packets == nil {
				t.Fatalf("unexpected line %s", text)
			}
			if !windows[line.At] {
				windows[line.At] = true
				span += line.Span
			}
			seen += float64(*line.Packets)
			if s := originals[*line.NAPIID]; *line.DeferHardIRQs != s.DeferHardIRQs || *line.GROFlushTimeout != int64(s.GROFlushTimeout) {
				t.Errorf("NAPI %d has %v, listed is %s", *line.NAPIID, s, text)
			}
			if *line.Packets == 0 {
				continue
			}
			var shares, polls float64
			for _, loop := range line.Loops {
				shares += *loop.PollShare
				polls += loop.PollsPerSecond
			}
			if math.Abs(shares-1) > 1e-9 || math.Abs(polls-*line.PollsPerSecond) > 1e-6 || *line.PacketsPerPoll < 1 {
				t.Errorf("shares sum to %v, polls to %v: %s", shares, polls, text)
			}
			if line.DelayP50 == nil || *line.DelayP50 <= 0 || *line.DelayP99 < *line.DelayP50 {
				t.Errorf("delays are missing: %s", text)
			}
			// The server is first seen in the first window: what it took in it is
			// not known.
			if known := line.CPUPerPacket != nil && *line.CPUPerPacket > 0; known != (len(windows) > 1) {
				t.Errorf("in window %d the CPU time is known: %v: %s", len(windows), known, text)
			}
		}
		if len(windows) != 2 || span < 1900*time.Millisecond {
			t.Errorf("%d windows of %v together, want 2 of 2 s", len(windows), span)
		}
		listed := seen / span.Seconds()
		t.Logf("listed %.0f packets/s, the interface counted %.0f", listed, rate)
		if listed < 0.9*rate || listed > 1.1*rate {
			t.Errorf("listed %.0f packets/s, the interface counted %.0f", listed, rate)
		}
		code, stdout, stderr := call(t, "list", "--live", bed.Server().Ifname, "--netns", bed.Server().Name, "--duration", "200ms", "--interval", "100ms")
		if code != exitDone || strings.Count(stdout, "PACKETS/S") != 2 {
			t.Errorf("exit code %d, want two blocks: %s%s", code, stdout, stderr)
		}
		t.Log("\n" + stdout)
	})
}

func TestATraceOfALiveRunReadsWithOrdinaryTools(t *testing.T) {
	testbed.Require(t)
	doc, err := os.ReadFile("../../docs/traces.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "```sh\nzstd -dc")
	example, _, ok2 := strings.Cut(example, "```")
	if !ok || !ok2 {
		t.Fatal("docs/traces.md has no example of zstd -dc")
	}
	for _, tool := range []string{"zstd", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: CI has to try the documented example", err)
			}
			t.Skipf("%v: the documented example was not tried", err)
		}
	}
	h := newTroubled(1, 2, 100)
	h.calm = true
	path, _ := recordRun(t, h, "random", true)
	out, err := exec.Command("sh", "-c", "zstd -dc"+strings.ReplaceAll(example, "run.trace.zst", path)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	reader, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	moves := 0
	for record, err := range reader.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == trace.KindJournal && strings.Contains(string(record.Entry), `"verdict":"applied"`) {
			moves++
		}
	}
	if got := strings.Count(string(out), "\n"); got != moves || moves == 0 {
		t.Errorf("the example shows %d lines, the trace has %d moves:\n%s", got, moves, out)
	}
}
