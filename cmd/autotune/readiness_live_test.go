package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"autotune/model"
	"autotune/model/readiness"

	"github.com/google/go-cmp/cmp"
)

// answersOf reads the answers in the output of doctor --app --json, by question.
func answersOf(t *testing.T, out string) map[readiness.Question]readinessLine {
	t.Helper()
	answers := map[readiness.Question]readinessLine{}
	for line := range strings.Lines(out) {
		var a readinessLine
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("doctor printed %q: %v", line, err)
		}
		if a.Kind == "readiness" {
			answers[a.Question] = a
		}
	}
	return answers
}

func TestDoctorTellsWhatAnApplicationLacksAndFixesItsPart(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	originals := k.settings()
	app := fmt.Sprintf("pid=%d", load.server.PID())

	code, out, stderr := call(t, "doctor", "--app", app, "--json")
	if code != exitMissed {
		t.Fatalf("exit code %d, want %d: %s", code, exitMissed, stderr)
	}
	verdicts := map[readiness.Question]readiness.Verdict{}
	for q, a := range answersOf(t, out) {
		verdicts[q] = a.Verdict
	}
	for q, want := range map[readiness.Question]readiness.Verdict{
		readiness.QuestionEpoll: readiness.Yes, readiness.QuestionUnmixed: readiness.Yes, readiness.QuestionThreads: readiness.Yes,
		readiness.QuestionPrefer: readiness.No, readiness.QuestionDeferral: readiness.No,
		// 5,000 requests per second leave it asleep most of the time.
		readiness.QuestionGain: readiness.No,
	} {
		if verdicts[q] != want {
			t.Errorf("%s is answered %s, want %s; all: %v", q, verdicts[q], want, verdicts)
		}
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("asking changed the settings (-before +after):\n%s", diff)
	}

	state := t.TempDir()
	// The exit code is that of what was found.
	if code, out, stderr := call(t, "doctor", "--app", app, "--fix", "--state", state); code != exitMissed || !strings.Contains(stderr, "restore --state "+state) {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	id, fixed := k.only()
	want := originals[id]
	want.DeferHardIRQs, want.GROFlushTimeout = readiness.Deferral().DeferHardIRQs, readiness.Deferral().GROFlushTimeout
	if fixed != want {
		t.Errorf("fixed to %v, want %v", fixed, want)
	}
	if fixed.Mode() != model.ModeDeferral {
		t.Errorf("the mode is %v, want %v", fixed.Mode(), model.ModeDeferral)
	}
	prefers := func() readiness.Verdict {
		t.Helper()
		_, out, _ := call(t, "doctor", "--app", app, "--json")
		return answersOf(t, out)[readiness.QuestionPrefer].Verdict
	}
	if got := prefers(); got != readiness.Yes {
		t.Errorf("after the fix preferred busy polling is answered %s, want yes", got)
	}
	if code, out, stderr := call(t, "restore", "--state", state); code != exitDone {
		t.Fatalf("restore: exit code %d: %s%s", code, out, stderr)
	}
	if got := prefers(); got != readiness.No {
		t.Errorf("after the restore preferred busy polling is answered %s, want no", got)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings after the restore (-original +now):\n%s", diff)
	}
}

// TestARunTellsOnceWhetherAnApplicationIsReady has an application that prefers
// busy polling, and a policy that suspends.
func TestARunTellsOnceWhetherAnApplicationIsReady(t *testing.T) {
	bed := newBed(t, 1)
	load := newBusyPollLoad(t, bed)
	load.offer(t, "load", 2000)
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms", "--duration", "5s",
		"--policy", "static:defer=100,flush=50us,suspend=20ms", bed.Server().Ifname)
	eventually(t, b, "readiness is reported", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(strings.Join(b.lines, "\n"), `"kind":"readiness_summary"`)
	})
	if code, stderr := b.wait(); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	answers := answersOf(t, strings.Join(b.lines, "\n"))
	for _, q := range []readiness.Question{readiness.QuestionEpoll, readiness.QuestionPrefer, readiness.QuestionUnmixed, readiness.QuestionDeferral} {
		if a := answers[q]; a.Verdict != readiness.Yes || a.PID != load.server.PID() {
			t.Errorf("%s is answered %+v, want yes for process %d", q, a, load.server.PID())
		}
	}
	if n := strings.Count(strings.Join(b.lines, "\n"), `"kind":"readiness_summary"`); n != 1 {
		t.Errorf("readiness was reported %d times, want once", n)
	}
}
