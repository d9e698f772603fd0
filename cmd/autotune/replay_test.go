package main

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/probe/trace"
	"autotune/tuner"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func TestAReplayRepeatsARunWhateverWentWrongInIt(t *testing.T) {
	verdicts := map[string]int{}
	for seed := range uint64(30) {
		spec := []string{"aimd", "random:seed=3", "aimd:start=50us,step=50us,max=200us", "static:defer=100,flush=50us"}[seed%4]
		h := newTroubled(seed, 1+int(seed%3)*2, 400)
		if seed%5 == 4 {
			h.endApply = 3 + int(seed)
		}
		path, journal := recordRun(t, h, spec, seed%7 != 6)
		code, v := verifyJSON(t, path)
		if code != exitDone || !v.Identical || v.Unproven != nil || v.Trace.Damage != nil || !v.Trace.Closed {
			t.Fatalf("seed %d, %s: exit code %d, %+v", seed, spec, code, v)
		}
		if lines := strings.Count(journal, "\n"); int(v.Entries) != lines || lines == 0 {
			t.Errorf("seed %d: %d entries compared, the journal has %d", seed, v.Entries, lines)
		}
		for line := range strings.Lines(journal) {
			var e tuner.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			verdicts[string(e.Verdict)+" by "+e.Guard]++
		}
	}
	t.Log(verdicts)
	for _, want := range []string{"applied by ", "failed by actuator", "failed by ownership", "refused by ownership", "advised by ", "held by loop", "failed by loop"} {
		if verdicts[want] == 0 {
			t.Errorf("nothing was %s: the runs did not try it", want)
		}
	}
}

func TestTheTraceHoldsTheJournalAsTheFileDoes(t *testing.T) {
	path, journal := recordRun(t, newTroubled(1, 2, 200), "random", true)
	reader, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var got strings.Builder
	for record, err := range reader.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == trace.KindJournal {
			got.Write(append(record.Entry, '\n'))
		}
	}
	if diff := cmp.Diff(journal, got.String()); diff != "" {
		t.Errorf("(-journal +trace):\n%s", diff)
	}
}

func TestACutTraceIsVerifiedAsFarAsItGoes(t *testing.T) {
	h := newTroubled(2, 3, 600)
	h.calm = true
	path, _ := recordRun(t, h, "random", true)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, whole := verifyJSON(t, path)
	random := rand.New(rand.NewPCG(1, 1))
	cut := filepath.Join(t.TempDir(), "cut.trace.zst")
	partly := 0
	for range 40 {
		n := len(data)/10 + random.IntN(len(data)*9/10)
		if err := os.WriteFile(cut, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		code, v := verifyJSON(t, cut)
		if code != exitDone || !v.Identical || v.Trace.Closed {
			t.Fatalf("cut at %d of %d: exit code %d, %+v", n, len(data), code, v)
		}
		if v.Entries > 0 && v.Entries < whole.Entries {
			partly++
		}
	}
	if partly < 10 {
		t.Errorf("only %d of 40 cuts left a part to verify", partly)
	}
	code, stdout, _ := call(t, "replay", "--verify", cut)
	if code != exitDone || !strings.Contains(stdout, "cut off") {
		t.Errorf("exit code %d, %q does not say that the trace is cut off", code, stdout)
	}
}

// rewrite copies a trace, changing its records.
func rewrite(t *testing.T, path string, change func(*trace.Record) bool) string {
	t.Helper()
	reader, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	out := filepath.Join(t.TempDir(), "changed.trace.zst")
	writer, err := trace.Create(out, reader.Header(), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for record, err := range reader.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if !change(&record) {
			continue
		}
		switch record.Kind {
		case trace.KindSample:
			err = writer.Write(record.Sample)
		case trace.KindJournal:
			err = writer.WriteEntry(record.Entry)
		case trace.KindApply:
			err = writer.WriteOutcome(*record.Outcome)
		default:
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAChangedTraceIsFoundAtTheEntryThatDiffers(t *testing.T) {
	path, _ := recordRun(t, newTroubled(3, 2, 300), "random", true)
	nth := func(kind trace.Kind, n int, change func(*trace.Record) bool) func(*trace.Record) bool {
		return func(r *trace.Record) bool {
			if r.Kind != kind {
				return true
			}
			n--
			return n != 0 || change(r)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*trace.Record) bool
		says   string
		entry  uint64 // 0: not known beforehand
	}{
		{"nothing", func(*trace.Record) bool { return true }, "identical", 0},
		{"an entry's reason", nth(trace.KindJournal, 20, func(r *trace.Record) bool {
			r.Entry = json.RawMessage(strings.Replace(string(r.Entry), `"why":"`, `"why":"not `, 1))
			return true
		}), "not the same why", 20},
		{"an entry left out", nth(trace.KindJournal, 30, func(*trace.Record) bool { return false }), "", 30},
		{"an answer of the kernel", nth(trace.KindApply, 2, func(r *trace.Record) bool {
			for i := range r.Outcome.ReadBack {
				r.Outcome.ReadBack[i].Settings.DeferHardIRQs++
			}
			return true
		}), "differs", 0},
		{"an answer left out", nth(trace.KindApply, 2, func(*trace.Record) bool { return false }), "differs", 0},
		{"a sample's delays", nth(trace.KindSample, 50, func(r *trace.Record) bool {
			for i := range r.Sample.Queues {
				r.Sample.Queues[i].Delay.Add(time.Second, 500)
			}
			return true
		}), "evidence", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := rewrite(t, path, tc.change)
			code, stdout, stderr := call(t, "replay", "--verify", changed)
			wantCode := exitFailed
			if tc.says == "identical" {
				wantCode = exitDone
			}
			if code != wantCode || !strings.Contains(stdout, tc.says) {
				t.Errorf("exit code %d, want %d and %q: %s%s", code, wantCode, tc.says, stdout, stderr)
			}
			if _, v := verifyJSON(t, changed); tc.entry != 0 && (v.First == nil || v.First.Entry != tc.entry) {
				t.Errorf("first difference %+v, want entry %d", v.First, tc.entry)
			}
		})
	}
}

func TestAGapEndsWhatCanBeProven(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gap.trace.zst")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	disk := &fullDisk{file: file}
	h := newTroubled(5, 2, 300)
	h.calm = true
	decide, err := policy.Parse("random")
	if err != nil {
		t.Fatal(err)
	}
	header := testTraceHeader()
	o := tuner.Options{
		Policy: decide, Objective: model.Objective{SLO: 200 * time.Microsecond, Quantile: 0.9}, Actuator: h, CPUs: tracedCPUs(header),
	}
	if header.Run, err = tracedRun(o, h.active); err != nil {
		t.Fatal(err)
	}
	writer, err := trace.NewWriter(disk, header, trace.Options{FlushEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tee := trace.NewTee(h, writer, nil)
	o.Source, o.Actuator, o.Journal = tee, tee.Actuator(h), tuner.NewJSONL(traceJournal{tee})
	loop, err := tuner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Run(t.Context()); err != nil {
		t.Fatalf("a full disk ended the run: %v", err)
	}
	if failed, err := tee.Failed(); failed == 0 || err == nil {
		t.Fatalf("%d writes failed (%v): the disk was never full", failed, err)
	}
	if err := errors.Join(writer.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	code, v := verifyJSON(t, path)
	if code != exitFailed || !v.Identical || v.Unproven == nil || v.Entries == 0 || v.Trace.LostSamples == 0 {
		t.Errorf("exit code %d, %+v", code, v)
	}
}

// fullDisk fails some writes.
type fullDisk struct {
	file   *os.File
	writes int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.writes++; d.writes == 10 || d.writes == 11 {
		return 0, errors.New("no space left on device")
	}
	return d.file.Write(b)
}

func TestAnotherPolicyIsReplayedOnARecordedRun(t *testing.T) {
	h := newTroubled(8, 2, 400)
	h.calm = true
	path, _ := recordRun(t, h, "static:defer=100,flush=50us", true)
	code, stdout, stderr := call(t, "replay", path, "--policy", "random", "--json")
	if code != exitDone || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var kinds []string
	var last replayed
	advised := 0
	for line := range strings.Lines(stdout) {
		var l struct {
			Kind    string        `json:"kind"`
			Verdict model.Verdict `json:"verdict"`
			Policy  string        `json:"policy"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != l.Kind {
			kinds = append(kinds, l.Kind)
		}
		if l.Verdict == model.VerdictAdvised {
			advised++
		}
		if l.Verdict == model.VerdictApplied {
			t.Errorf("a replay applied something: %s", line)
		}
		if l.Kind == "replay" {
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"trace", "decision", "replay"}, kinds); diff != "" {
		t.Errorf("kinds of lines (-want +got):\n%s", diff)
	}
	// The objective is that of the recorded run.
	if last.Samples != 400 || last.SLO != 200*time.Microsecond || last.Quantile != 0.9 || advised == 0 || int(last.Moves) != advised {
		t.Errorf("%d moves were advised: %+v", advised, last)
	}
	code, stdout, _ = call(t, "replay", path, "--slo", "5ms")
	if code != exitDone || !strings.Contains(stdout, "eth7/0") || !strings.Contains(stdout, "SLO p90 <= 5ms") || !strings.Contains(stdout, "static:defer=100") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

func TestADamagedTraceIsReplayedUpToTheDamage(t *testing.T) {
	path, _ := recordRun(t, newTroubled(9, 1, 400), "random", true)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x55
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"replay", path}, {"replay", "--verify", path}} {
		code, stdout, _ := call(t, args...)
		if code != exitFailed || !strings.Contains(stdout, "damage") {
			t.Errorf("%v: exit code %d: %s", args, code, stdout)
		}
	}
}

func TestWrongUseOfTracesSaysInOneLineWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	writeText(t, text, "not a trace\n")
	empty := filepath.Join(dir, "empty")
	writeText(t, empty, "")
	recording := filepath.Join(dir, "recording.trace.zst")
	writer, err := trace.Create(recording, testTraceHeader(), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.trace.zst")
	writeNewerTrace(t, recording, newer)
	ran, _ := recordRun(t, newTroubled(1, 1, 20), "aimd", false)
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no such file", []string{"replay", dir + "/none", "--policy", "aimd"}, []string{dir + "/none", "no such file"}},
		{"not a trace", []string{"replay", text, "--policy", "aimd"}, []string{text, "not an autotune trace"}},
		{"an empty file", []string{"replay", empty, "--verify"}, []string{empty, "empty"}},
		{"a directory", []string{"replay", dir, "--policy", "aimd"}, []string{dir, "directory"}},
		{"another schema version", []string{"replay", newer, "--policy", "aimd"}, []string{newer, "version 4", "newer autotune"}},
		{"one bad file of two", []string{"replay", ran, text}, []string{text}},
		{"verify without a run", []string{"replay", recording, "--verify"}, []string{recording, "no run", "--policy"}},
		{"a recording without a policy", []string{"replay", recording}, []string{recording, "--policy"}},
		{"verify with another policy", []string{"replay", ran, "--verify", "--policy", "aimd"}, []string{"--verify", "--policy"}},
		{"unknown policy", []string{"replay", ran, "--policy", "magic"}, []string{`"magic"`, "aimd"}},
		{"SLO of zero", []string{"replay", ran, "--slo", "0s"}, []string{"--slo", "250us"}},
		{"impossible quantile", []string{"replay", ran, "--slo-quantile", "99"}, []string{"--slo-quantile", "0.99"}},
		{"record without a file", []string{"record", "lo"}, []string{"--output"}},
		{"record of an unknown interface", []string{"record", "nosuch0", "-o", dir + "/x"}, []string{`"nosuch0"`}},
		{"record too often", []string{"record", "lo", "-o", dir + "/x", "--interval", "1ms"}, []string{"--interval", "10ms"}},
		{"record of no socket", []string{"record", "lo", "-o", dir + "/x", "--sample-every", "0"}, []string{"--sample-every"}},
		{"a budget without a unit", []string{"record", "lo", "-o", dir + "/x", "--probe-budget", "1"}, []string{"--probe-budget", "1%", "none"}},
		{"no budget at all", []string{"record", "lo", "-o", dir + "/x", "--probe-budget", "0%"}, []string{"--probe-budget", "none"}},
		{"trace and summary on one stream", []string{"record", "lo", "-o", "-", "--json"}, []string{"-o -", "--json"}},
		{"events of no time", []string{"record", "lo", "-o", dir + "/x", "--events", "--events-window", "0s"}, []string{"--events-window"}},
		{"events never", []string{"record", "lo", "-o", dir + "/x", "--events", "--events-every", "-1s"}, []string{"--events-every"}},
		{"windows of no events", []string{"record", "lo", "-o", dir + "/x", "--events-every", "1s"}, []string{"--events"}},
		{"windows of no events, as long as usual", []string{"record", "lo", "-o", dir + "/x", "--events-window", "1s"}, []string{"--events"}},
		{"histograms of another kind", []string{"record", "lo", "-o", dir + "/x", "--histograms", "coarse"}, []string{"--histograms", "rounded", "exact"}},
		{"histograms of no trace", []string{"run", "lo", "--histograms", "exact"}, []string{"--histograms", "--trace"}},
		{"interval of a list", []string{"list", "--interval", "2s"}, []string{"--live"}},
		{"live list too often", []string{"list", "--live", "--interval", "1ms"}, []string{"--interval", "10ms"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := call(t, tc.args...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit code %d, want %d; it said %q, %q", code, exitUsage, stdout, stderr)
			}
			if n := strings.Count(stderr, "\n"); n != 1 {
				t.Errorf("%d lines, want 1: %q", n, stderr)
			}
			for _, part := range tc.says {
				if !strings.Contains(stderr, part) {
					t.Errorf("%q does not mention %q", stderr, part)
				}
			}
		})
	}
}

func TestEveryPolicyIsKnownByItsFullName(t *testing.T) {
	for _, spec := range []string{"aimd", "aimd:start=50us,step=50us,max=200us", "base", "random:seed=9", "static:defer=100,flush=50us", "static:defer=100,flush=50us,suspend=20ms"} {
		p, err := policy.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.Parse(p.Name())
		if err != nil || again.Name() != p.Name() {
			t.Errorf("%s is named %s, which parses as %v: %v", spec, p.Name(), again, err)
		}
	}
}

// writeNewerTrace copies a trace as a later schema version would have it.
func writeNewerTrace(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	lines, err := decoder.DecodeAll(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	newer := strings.ReplaceAll(string(lines), `"schema_version":3`, `"schema_version":4`)
	writeText(t, to, string(encoder.EncodeAll([]byte(newer), nil)))
}

// hour is a trace of an hour of 8 queues at 10 Hz.
func hour(tb testing.TB, windows int) string {
	h := newTroubled(1, 8, windows)
	h.calm = true
	path, _ := recordRun(tb, h, "aimd", true)
	return path
}

// BenchmarkReplayHour replays an hour of 8 queues at 10 Hz, and reads it without
// deciding anything; "x" is how many times faster than the hour.
func BenchmarkReplayHour(b *testing.B) {
	path := hour(b, 36000)
	faster := func(b *testing.B) {
		b.ReportMetric(3600*float64(b.N)/b.Elapsed().Seconds(), "x")
	}
	for _, args := range [][]string{{"replay", path, "--policy", "random"}, {"replay", path, "--policy", "aimd"}, {"replay", path, "--policy", "greybox"}, {"replay", path, "--verify"}} {
		b.Run(strings.Join(append(args[:1:1], args[2:]...), " "), func(b *testing.B) {
			for b.Loop() {
				if code := run(b.Context(), args, io.Discard, io.Discard); code != exitDone {
					b.Fatalf("exit code %d", code)
				}
			}
			faster(b)
		})
	}
	b.Run("no policy", func(b *testing.B) {
		for b.Loop() {
			reader, err := openTrace(path)
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range reader.Records() {
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := reader.Close(); err != nil {
				b.Fatal(err)
			}
		}
		faster(b)
	})
}
