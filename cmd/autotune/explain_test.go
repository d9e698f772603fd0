package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// writtenJournal is a journal of one run: a move on queue 0 that is kept, a
// refusal on queue 1, and a hold.
func writtenJournal(t *testing.T) (path string, boot time.Time) {
	t.Helper()
	boot = time.Date(2026, 5, 4, 12, 0, 0, 0, time.Local)
	var b strings.Builder
	line := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	line(journalHead{Kind: "run", Started: boot, BootTime: boot, Policy: "aimd", SLO: 250 * time.Microsecond, Quantile: 0.99, Interval: time.Second})
	journal := tuner.NewJSONL(&b)
	low, high := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond}, model.Settings{DeferHardIRQs: 80, GROFlushTimeout: 25 * time.Microsecond}
	evidence := func(p99 time.Duration) tuner.Evidence {
		return tuner.Evidence{Span: time.Second, Windows: 1, DelaySamples: 5000, Quantile: 0.99, QuantileDelay: &p99, SLO: 250 * time.Microsecond, PacketRate: 1e5}
	}
	zero, one := model.Queue{Netns: 1, Ifindex: 2, Index: 0}, model.Queue{Netns: 1, Ifindex: 2, Index: 1}
	for _, e := range []tuner.Entry{
		{At: 10 * time.Second, Queue: zero, From: low, To: low, Proposed: low, Purpose: model.PurposeHold, Verdict: model.VerdictHeld, Guard: "evidence", Why: "too few delays", Evidence: evidence(180 * time.Microsecond)},
		{At: 11 * time.Second, Queue: zero, From: low, To: high, Proposed: high, Purpose: model.PurposeCost, Verdict: model.VerdictApplied, Why: "room below the SLO", Evidence: evidence(200 * time.Microsecond)},
		{At: 11 * time.Second, Queue: one, From: low, To: low, Proposed: high, Purpose: model.PurposeCost, Verdict: model.VerdictRefused, Guard: "cooldown", Why: "another queue is on trial", Evidence: evidence(300 * time.Microsecond)},
		{At: 14 * time.Second, Queue: zero, From: high, To: high, Proposed: high, Purpose: model.PurposeCost, Verdict: model.VerdictKept, Guard: "trial", Why: "cost fell by 3%", Evidence: evidence(210 * time.Microsecond)},
	} {
		e.Policy = "aimd"
		said := "more timeout, less CPU"
		utilisation := 0.4
		e.PolicyWhy = &said
		e.Forecast = &tuner.EntryForecast{
			PacketRate: 1e5, CostPerPacket: 3 * time.Microsecond, CostError: 0.02, Delay: 205 * time.Microsecond, DelayError: 4 * time.Microsecond, Utilisation: &utilisation,
		}
		e.Guards = []tuner.GuardStep{
			{Guard: "evidence", Verdict: tuner.GuardPassed, Numbers: []tuner.GuardNumber{{Name: "delay_samples", Value: 5000, Limit: 2000, Least: true}}},
			{Guard: "cooldown", Verdict: e.Verdict, Numbers: []tuner.GuardNumber{{Name: "load_rise_share", Value: 0.25, Limit: 0.2}}},
			{Guard: "trial", Verdict: e.Verdict, Numbers: []tuner.GuardNumber{{Name: "windows_measured", Value: 3, Limit: 8}}},
		}
		if err := journal.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "journal.jsonl")
	writeText(t, path, b.String())
	return path, boot
}

func TestANumberBeyondItsLimitIsMarkedOnlyWhereItsGuardActed(t *testing.T) {
	asked := true
	step := guardStep{Guard: "slo", Asked: &asked, Numbers: []tuner.GuardNumber{{Name: "windows_above_slo", Value: 5, Limit: 2}}}
	for _, tc := range []struct {
		verdict model.Verdict
		want    string
	}{
		{tuner.GuardPassed, "windows above slo 5, at most 2"},
		{model.VerdictApplied, "windows above slo 5, at most 2 (!)"},
	} {
		step.Verdict = tc.verdict
		if text := step.text(); !strings.HasSuffix(text, tc.want) {
			t.Errorf("%s: %q, want %q at its end", tc.verdict, text, tc.want)
		}
	}
	for _, s := range guardChain() {
		if s.What == "" {
			t.Errorf("nothing says what the guard %s asks", s.Guard)
		}
	}
}

func TestExplainFindsADecision(t *testing.T) {
	path, boot := writtenJournal(t)
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"the last that was no hold", nil, []string{"at 14s", "kept by trial", "cost fell by 3%", "kept by trial", "<- decided", "windows measured 3, at most 8", "not asked", "at least 2000"}},
		{"a time since boot", []string{"--at", "11.5s", "--queue", "0"}, []string{
			"at 11s", "20.0% below the SLO", "delay +11.1%", "flush timeout +25%", "room below the SLO", "no guard intervened",
			"before", "too few delays", "then", "at 14s cost kept", "2026-05-04 12:00:11.000",
		}},
		{"a time of day", []string{"--at", boot.Add(11 * time.Second).Format("15:04:05"), "--queue", "1"}, []string{"refused by cooldown", "20.0% above the SLO", "another queue is on trial", "load rise 25%, at most 20% (!)", "policy said", "more timeout", "+- 4µs", "CPU 40%"}},
		{"a date", []string{"--at", boot.Add(10500 * time.Millisecond).Format(time.RFC3339Nano)}, []string{"at 10s", "held by evidence"}},
		{"a queue by its full name", []string{"--queue", "1:2:1"}, []string{"queue 1:2:1", "refused by cooldown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := call(t, append([]string{"explain", path}, tc.args...)...)
			if code != exitDone {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			for _, part := range tc.says {
				if !strings.Contains(out, part) {
					t.Errorf("no %q in:\n%s", part, out)
				}
			}
		})
	}
}

func TestExplainJSONHasTheDecisionsAsTheyWereWritten(t *testing.T) {
	path, _ := writtenJournal(t)
	code, out, errs := call(t, "explain", path, "--at", "11s", "--queue", "0", "--json")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var got explanationLine
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(read(t, path), "\n")
	for _, pair := range []struct {
		name string
		got  json.RawMessage
		line int
	}{{"run", got.Run, 0}, {"decision", got.Decision, 2}, {"previous", got.Previous, 1}, {"outcome", got.Outcome, 4}} {
		if string(pair.got) != lines[pair.line] {
			t.Errorf("%s is %s, want %s", pair.name, pair.got, lines[pair.line])
		}
	}
	if got.Line != 3 || got.Headroom == nil || *got.Headroom < 0.199 || *got.Headroom > 0.201 || len(got.Guards) != 10 {
		t.Errorf("line %d, headroom %v, %d guards", got.Line, got.Headroom, len(got.Guards))
	}
}

func TestExplainRefusesWhatItCannotRead(t *testing.T) {
	path, _ := writtenJournal(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		writeText(t, p, text)
		return p
	}
	noRun := file("norun.jsonl", strings.SplitAfterN(read(t, path), "\n", 2)[1])
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no such file", []string{"/nonexistent"}, []string{"/nonexistent"}},
		{"no journal", []string{file("x", "hello\nworld\n")}, []string{"x:1"}},
		{"broken in the middle", []string{file("y", read(t, path)+"{\n"+read(t, path))}, []string{"y:6"}},
		{"a decision of another form", []string{file("z", `{"kind":"decision","at_ns":"soon"}`+"\n")}, []string{"z:1"}},
		{"empty", []string{file("empty", "")}, []string{"none at all"}},
		{"a trace that is cut to its first bytes", []string{file("t", "\x28\xb5\x2f\xfd\x00")}, []string{"t"}},
		{"before the first", []string{path, "--at", "5s"}, []string{"5s", "10s", "14s"}},
		{"a queue that is not there", []string{path, "--queue", "7"}, []string{"7", "1:2:0, 1:2:1"}},
		{"no queue", []string{path, "--queue", "eth0"}, []string{"--queue", "netns:ifindex:index"}},
		{"no time", []string{path, "--at", "noon"}, []string{"--at", "15:04:05"}},
		{"a time of day without a run", []string{noRun, "--at", "12:00:11"}, []string{"booted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := call(t, append([]string{"explain"}, tc.args...)...)
			if code != exitUsage || out != "" {
				t.Errorf("exit code %d, want %d; it printed %q", code, exitUsage, out)
			}
			if n := strings.Count(errs, "\n"); n != 1 {
				t.Errorf("%d lines, want 1: %q", n, errs)
			}
			for _, part := range tc.says {
				if !strings.Contains(errs, part) {
					t.Errorf("%q does not mention %q", errs, part)
				}
			}
		})
	}
}

func TestExplainForgivesALineThatWasCutOffAtTheEnd(t *testing.T) {
	path, _ := writtenJournal(t)
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	writeText(t, cut, read(t, path)+`{"kind":"decision","at_ns":15`)
	code, out, errs := call(t, "explain", cut)
	if code != exitDone || !strings.Contains(out, "at 14s") {
		t.Errorf("exit code %d, %q: %s", code, out, errs)
	}
}

func TestExplainShowsWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later.jsonl")
	writeText(t, path, fmt.Sprintf(`{"kind":"decision","at_ns":%d,"queue":"1:2:0","verdict":"applied","purpose":"cost","foretold":{"delay_ns":1234}}`+"\n", time.Second))
	code, out, errs := call(t, "explain", path)
	if code != exitDone || !strings.Contains(out, "foretold") || !strings.Contains(out, "1234") {
		t.Errorf("exit code %d, %q: %s", code, out, errs)
	}
}

// TestExplainReadsATraceAsItsJournal explains the same run from both.
func TestExplainReadsATraceAsItsJournal(t *testing.T) {
	path, journal := recordRun(t, newTroubled(1, 2, 200), "random", true)
	file := filepath.Join(t.TempDir(), "journal.jsonl")
	writeText(t, file, journal)
	var got [2]explanationLine
	for i, from := range []string{path, file} {
		code, out, errs := call(t, "explain", from, "--queue", "1", "--json")
		if code != exitDone {
			t.Fatalf("%s: exit code %d: %s", from, code, errs)
		}
		if err := json.Unmarshal([]byte(out), &got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if len(got[0].Decision) == 0 || string(got[0].Decision) != string(got[1].Decision) || string(got[0].Previous) != string(got[1].Previous) {
		t.Errorf("the trace has\n%s\nand the journal\n%s", got[0].Decision, got[1].Decision)
	}
	if !strings.Contains(string(got[0].Run), "random") {
		t.Errorf("the trace's run is %s", got[0].Run)
	}
}
