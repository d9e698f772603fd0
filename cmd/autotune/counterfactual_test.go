package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
)

// bedRecording was recorded by experiment counterfactual under plain
// interrupts.
const bedRecording = "../../experiments/counterfactual/testdata/bed/recording.trace.zst"

func TestReplaySimulateTellsWhatWasMeasuredAndWhatWouldHaveBeen(t *testing.T) {
	code, stdout, stderr := call(t, "replay", bedRecording, "--simulate", "--draws", "3", "--json",
		"--policy", "static:defer=100,flush=200us", "--policy", "base", "--slo-quantile", "0.9")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	type line struct {
		Kind   string   `json:"kind"`
		Role   string   `json:"role"`
		Policy string   `json:"policy"`
		P50    bandLine `json:"p50_us"`
		CPU    bandLine `json:"cpu_per_request_us"`
		Moves  bandLine `json:"moves"`
	}
	var lines []line
	for text := range strings.Lines(stdout) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 5 {
		t.Fatalf("%d lines, want recorded, reproduced, two policies and the model:\n%s", len(lines), stdout)
	}
	for i, want := range []string{"recorded", "reproduced", "policy", "policy", ""} {
		if lines[i].Role != want {
			t.Errorf("line %d has role %q, want %q", i, lines[i].Role, want)
		}
	}
	if lines[0].Moves.Median != nil {
		t.Error("a recording knows no moves, and null says so")
	}
	static, base := lines[2], lines[3]
	if *static.P50.Median < 1.5**base.P50.Median {
		t.Errorf("a flush timeout of 200us has a median delay of %v us, plain interrupts %v: want at least half more", *static.P50.Median, *base.P50.Median)
	}
	if !(*static.CPU.Low <= *static.CPU.Median && *static.CPU.Median <= *static.CPU.High) {
		t.Errorf("band %v, %v, %v is not in order", *static.CPU.Low, *static.CPU.Median, *static.CPU.High)
	}
}

// burstsRecording was recorded in the same way, of requests in bursts of 20 on the
// average, without single events.
const burstsRecording = "../../experiments/counterfactual/testdata/bursts/recording.trace.zst"

func TestReplaySimulateTellsOfBursts(t *testing.T) {
	for path, want := range map[string]bool{bedRecording: false, burstsRecording: true} {
		code, stdout, stderr := call(t, "replay", path, "--simulate", "--draws", "1", "--json", "--policy", "base")
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var m modelLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil {
			t.Fatal(err)
		}
		if found := m.Bursts != nil; found != want || found != (m.ArrivalsBursts > 0) || found == (m.ArrivalsRandom > 0) {
			t.Errorf("%s: bursts %+v, in %d windows and at random in %d; bursts are there: %v", path, m.Bursts, m.ArrivalsBursts, m.ArrivalsRandom, want)
		}
		if said := strings.Contains(strings.Join(m.Assumed, "\n"), "at random (Poisson)"); said == want {
			t.Errorf("%s: assumed is %q, bursts are there: %v", path, m.Assumed, want)
		}
	}
}

func TestReplaySimulateWritesAPresetThatSimulates(t *testing.T) {
	preset := filepath.Join(t.TempDir(), "bed.json")
	args := []string{"replay", bedRecording, "--simulate", "--draws", "1", "--policy", "base"}
	if code, _, stderr := call(t, append(args, "--write-preset", preset)...); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := call(t, append(args, "--preset", preset)...); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	before, err := os.ReadFile(preset)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := call(t, append(args, "--write-preset", preset)...); code != exitUsage || !strings.Contains(stderr, "exists") {
		t.Errorf("exit %d, %q: want 2, as the file exists", code, stderr)
	}
	if after, err := os.ReadFile(preset); err != nil || string(after) != string(before) {
		t.Errorf("the preset was overwritten (%v)", err)
	}
}

func TestReplayRefusesQuestionsThatItCannotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"two questions":             {[]string{"--simulate", "--off-policy", "--policy", "base"}, "one at a time"},
		"a preset without simulate": {[]string{"--preset", "veth", "--policy", "base"}, "belong to --simulate"},
		"an unknown preset":         {[]string{"--simulate", "--preset", "nosuch", "--policy", "base"}, "unknown preset"},
		"no policy":                 {[]string{"--simulate"}, "--policy"},
		"off-policy of nobody":      {[]string{"--off-policy"}, "--policy SPEC"},
		"a log without draws":       {[]string{"--off-policy", "--policy", "base"}, "applied what it drew"},
		"no hosts":                  {[]string{"--simulate", "--draws", "0", "--policy", "base"}, "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := call(t, append([]string{"replay", bedRecording}, c.args...)...)
			if code != exitUsage || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d, %q: want 2 and %q", code, stderr, c.want)
			}
			if lines := strings.Count(strings.TrimSpace(stderr), "\n"); lines != 0 {
				t.Errorf("an error of one line, got %q", stderr)
			}
		})
	}
}

func TestMisfitIsTheLargestErrorOfWhatIsReproduced(t *testing.T) {
	band := func(v float64) bandLine { return bandLine{Median: &v} }
	line := func(p50, p90, cpu bandLine) simulatedLine {
		return simulatedLine{bandsLine: bandsLine{P50Us: p50, P90Us: p90, CPUPerRequestUs: cpu}}
	}
	recorded := line(band(100), band(200), band(50))
	for name, c := range map[string]struct {
		reproduced simulatedLine
		want       float64 // negative: not known
	}{
		"as recorded":      {recorded, 0},
		"too low a median": {line(band(40), band(200), band(55)), 0.6},
		"too high a cost":  {line(band(100), band(190), band(100)), 1},
		"only the p90":     {line(bandLine{}, band(220), bandLine{}), 0.1},
		"nothing":          {line(bandLine{}, bandLine{}, bandLine{}), -1},
	} {
		t.Run(name, func(t *testing.T) {
			got := misfit(recorded, c.reproduced)
			if (got == nil) != (c.want < 0) || got != nil && math.Abs(*got-c.want) > 1e-9 {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A policy is asked for what it wants, not for what it found.
func TestWhatAHoldingPolicyWantsIsNotWhatOthersDrew(t *testing.T) {
	q := model.Queue{Netns: 1, Ifindex: 2}
	original := model.Settings{DeferHardIRQs: 7, GROFlushTimeout: 70 * time.Microsecond}
	drawn := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}
	for spec, want := range map[string]model.Settings{
		"base":                         original,
		"static:defer=100,flush=50us":  drawn,
		"static:defer=100,flush=200us": {DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond},
	} {
		p, err := policy.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		o := &overheard{Policy: p, wanted: map[model.Queue]model.Settings{q: original}}
		o.Decide(model.Features{Queue: q})
		o.Decide(model.Features{Queue: q, Active: drawn})
		if got := o.wanted[q]; got != want {
			t.Errorf("%s wants %v, want %v", spec, got, want)
		}
	}
}

// A trace of a run that drew its settings judges what was drawn often enough.
func TestReplayOffPolicyJudgesFromATraceOfDraws(t *testing.T) {
	calm := newTroubled(3, 1, 3000)
	calm.calm = true
	path, _ := recordRun(t, calm, "random:max=50us,step=2.5,every=4", true)
	troubled, _ := recordRun(t, newTroubled(4, 3, 1500), "random:max=50us,step=2.5,every=4", true)
	fixed, _ := recordRun(t, newTroubled(5, 1, 300), "static:defer=100,flush=50us", true)
	for name, c := range map[string]struct {
		path, policy string
		refused      string // empty: judged
	}{
		"a setting":                   {path, "static:defer=100,flush=50us", ""},
		"what was found":              {path, "base", ""},
		"a setting in trouble":        {troubled, "static:defer=100,flush=20us", "too few"},
		"a setting that nobody drew":  {path, "static:defer=100,flush=200us", "too few"},
		"a run that drew nothing":     {fixed, "base", "no propensities"},
		"a policy that goes in steps": {path, "aimd", "aimd: its decisions follow from what came of its own earlier ones"},
		"a policy that learns":        {path, "linucb:max=50us", "linucb: its decisions follow"},
		"a draw of its own":           {path, "random:max=50us,step=2.5,every=4,seed=9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, "replay", c.path, "--off-policy", "--policy", c.policy, "--json")
			var line offPolicyLine
			if err := json.Unmarshal([]byte(stdout), &line); err != nil {
				t.Fatalf("exit %d, %q: %v", code, stderr, err)
			}
			switch {
			case c.refused == "" && (code != exitDone || line.Refused != nil || line.Weighted == nil || line.DoublyRobust == nil || line.Error == nil):
				t.Errorf("exit %d, want an estimate: %s", code, stdout)
			case c.refused != "" && (code != exitFailed || line.Refused == nil || !strings.Contains(*line.Refused, c.refused) || line.Weighted != nil):
				t.Errorf("exit %d, want 1 and a refusal with %q: %s", code, c.refused, stdout)
			}
			if !line.Trace.Closed || line.Trace.Damage != nil {
				t.Errorf("the trace was whole, got %+v", line.Trace)
			}
		})
	}
}

func TestTheWindowsToSimulateAreFewerOnABusyHost(t *testing.T) {
	given := 77
	for name, c := range map[string]struct {
		windows *int
		rate    float64
		want    int
	}{
		"calm":          {nil, 10, mostWindows},
		"busy":          {nil, 20000, 100},
		"very busy":     {nil, 1e7, leastWindows},
		"busy but told": {&given, 20000, given},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := replayCmd{counterfactualFlags: counterfactualFlags{Windows: c.windows}}
			if got := cmd.budget(c.rate); got != c.want {
				t.Errorf("%d windows, want %d", got, c.want)
			}
		})
	}
}
