package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small is a comparison of a second.
func small(more ...string) []string {
	return append([]string{
		"compare", "--policies", "aimd:start=20us,step=4us,random", "--scenarios", "constant", "--load-scale", "0.3",
		"--seeds", "2", "--windows", "6", "--interval", "50ms",
	}, more...)
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCompareReportsAndItsShardsMergeToTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	code, out, errs := call(t, small("-o", whole, "--journal")...)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"best-static", "oracle-transient", "aimd:start=20us,step=4us", "undecided", "report.html"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	page := read(t, whole, "report.html")
	if n := strings.Count(page, "<svg"); n < 5 || strings.Count(page, "</svg>") != n {
		t.Errorf("%d plots in the report", n)
	}
	for _, outside := range []string{"<script", "<link", "src=", "<?xml"} {
		if strings.Contains(page, outside) {
			t.Errorf("the report is not self-contained: it has %s", outside)
		}
	}
	table := filepath.Join(whole, "steady.json")
	var shards []string
	for _, shard := range []string{"2/2", "1/2"} {
		to := filepath.Join(dir, "shard"+shard[:1])
		shards = append(shards, to)
		code, out, errs := call(t, small("-o", to, "--shard", shard, "--table", table, "-j", "1")...)
		if code != exitDone || !strings.Contains(out, "shard "+shard[:1]+" of 2") {
			t.Fatalf("exit code %d, %q: %s", code, out, errs)
		}
	}
	merged := filepath.Join(dir, "merged")
	code, mergedOut, errs := call(t, append([]string{"compare", "merge", "-o", merged}, shards...)...)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if diff := cmp.Diff(strings.ReplaceAll(out, whole, ""), strings.ReplaceAll(mergedOut, merged, "")); diff != "" {
		t.Errorf("output (-whole +merged):\n%s", diff)
	}
	for _, name := range []string{"manifest.json", "windows.jsonl.zst", "cells.csv", "cells.jsonl", "summary.csv", "summary.jsonl", "report.txt", "report.html"} {
		if read(t, whole, name) != read(t, merged, name) {
			t.Errorf("%s of the merged shards is not that of the whole", name)
		}
	}
	if code, _, errs := call(t, "compare", "merge", shards[0], "-o", merged); code != exitUsage || !strings.Contains(errs, "1/2") {
		t.Errorf("exit code %d without shard 1: %q", code, errs)
	}
	if code, _, errs := call(t, append([]string{"compare", "merge", "-o", shards[0]}, shards...)...); code != exitUsage || !strings.Contains(errs, "-o") {
		t.Errorf("exit code %d when a shard would be overwritten: %q", code, errs)
	}
	explainsWhatCompareKept(t, whole)
	tabulatesSeveral(t, whole, merged, shards[0])
}

// tabulatesSeveral puts two comparisons into one table, and no shard.
func tabulatesSeveral(t *testing.T, a, b, shard string) {
	code, out, errs := call(t, "compare", "table", a, b, "--contenders", "random,oracle", "--markdown")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if rows := strings.Count(out, "\n| "); rows != 5 || !strings.Contains(out, "| whole | constant | random |") || !strings.Contains(out, "| merged | constant | oracle |") {
		t.Errorf("%d rows after the header, want the rule and two of each:\n%s", rows, out)
	}
	code, out, errs = call(t, "compare", "table", a, "--json")
	if code != exitDone || strings.Count(out, `"kind":"collected"`) != 3 {
		t.Errorf("exit code %d, %s: want best-static and the policies in\n%s", code, errs, out)
	}
	for _, args := range [][]string{{shard}, {a, "--contenders", "nobody"}, {t.TempDir()}} {
		if code, out, errs := call(t, append([]string{"compare", "table"}, args...)...); code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("table %v: exit code %d, printed %q and %q", args, code, out, errs)
		}
	}
}

// explainsWhatCompareKept reads one journal of the comparison.
func explainsWhatCompareKept(t *testing.T, dir string) {
	journal := filepath.Join(dir, "journals", "constant-1-random.jsonl")
	code, out, errs := call(t, "explain", journal)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"random:seed=1", "SLO", "drew flush", "evidence", "verdict"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
}

func TestCompareJSON(t *testing.T) {
	code, out, errs := call(t, small("-o", t.TempDir(), "--json")...)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	count := map[string]int{}
	for line := range strings.Lines(out) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kind, _ := object["kind"].(string)
		count[kind]++
	}
	// Seven contenders with two seeds, and every two of them compared.
	if diff := cmp.Diff(map[string]int{"cell": 14, "summary": 7, "comparison": 21}, count); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestCompareRefusesWrongUse(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	writeText(t, bad, "name = \"x\"\n[constant]\nkpqs = 5\n")
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown policy", []string{"--policies", "magic"}, []string{`"magic"`, "aimd"}},
		{"unknown scenario", []string{"--scenarios", "rush"}, []string{`"rush"`, "mmpp"}},
		{"scenario with unknown key", []string{"--scenarios", bad}, []string{"bad.toml:3", "kpqs"}},
		{"unknown preset", []string{"--preset", "cray"}, []string{`"cray"`}},
		{"unknown regime", []string{"--regime", "both"}, []string{`"both"`, "deferral"}},
		{"guard neither on nor off", []string{"--guard", "perhaps"}, []string{"--guard", "perhaps"}},
		{"too many queues", []string{"--queues", "99"}, []string{"99", "8"}},
		{"unknown change of the plant", []string{"--plant", "colour=2"}, []string{"colour", "sample-every"}},
		{"shard out of range", []string{"--shard", "3/2"}, []string{"3/2"}},
		{"shard that is no fraction", []string{"--shard", "3"}, []string{"3/20"}},
		{"SLO below zero", []string{"--slo=-1us"}, []string{"SLO"}},
		{"merge of nothing there", []string{"merge", "/nonexistent"}, []string{"/nonexistent"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			code, out, errs := call(t, append([]string{"compare", "-o", dir}, tc.args...)...)
			if tc.args[0] == "merge" {
				code, out, errs = call(t, append([]string{"compare"}, tc.args...)...)
			}
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

func TestCompareTakesItsFlagsFromTheConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "autotune.toml")
	writeText(t, path, "[run]\nslo = \"0s\"\n\n[compare]\nregime = \"both\"\n")
	code, _, errs := call(t, "compare", "--config", path, "-o", t.TempDir())
	if code != exitUsage || !strings.Contains(errs, `"both"`) {
		t.Errorf("exit code %d: %q", code, errs)
	}
}

func TestAnInterruptedCompareLeavesNothingThatLooksWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := run(ctx, small("-o", dir), &out, &errs)
	if code != exitFailed || errs.String() != "autotune compare: interrupted: there is no report\n" {
		t.Errorf("exit code %d: %q", code, errs.String())
	}
	if code, _, errs := call(t, "compare", "merge", dir, "-o", t.TempDir()); code != exitUsage || !strings.Contains(errs, "did not finish") {
		t.Errorf("exit code %d: %q", code, errs)
	}
}

// TestRobustnessIsOneTableAndItsShardsMergeToTheSameBytes also goes on after an
// interruption: what is there of the same plan is kept.
func TestRobustnessIsOneTableAndItsShardsMergeToTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	args := func(more ...string) []string {
		return append([]string{
			"compare", "robustness", "--policies", "aimd,random", "--variants", "slo-400us,noise-4", "--scenarios", "constant", "--seeds", "2", "--windows", "8",
			"--wrong-prior", "none", "--tables", filepath.Join(dir, "tables"),
		}, more...)
	}
	whole := filepath.Join(dir, "whole")
	code, out, errs := call(t, args("-o", whole)...)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"slo-400us", "noise-4", "best-static", "aimd", "undecided", "robustness.txt"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	var shards []string
	for _, shard := range []string{"1/2", "2/2"} {
		to := filepath.Join(dir, strings.ReplaceAll(shard, "/", "of"))
		if code, _, errs := call(t, args("-o", to, "--shard", shard)...); code != exitDone {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		shards = append(shards, to)
	}
	merged := filepath.Join(dir, "merged")
	if code, _, errs := call(t, append([]string{"compare", "merge", "-o", merged}, shards...)...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, name := range []string{"robustness.txt", "robustness.csv", "robustness.jsonl", "robustness.json", "noise-4/report.html", "slo-400us/windows.jsonl.zst"} {
		if a, b := read(t, whole, name), read(t, merged, name); a == "" || a != b {
			t.Errorf("%s is not the same merged: %d and %d bytes", name, len(a), len(b))
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(read(t, whole, "robustness.jsonl")), "\n") {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row["variant"] == nil || row["kind"] != "robustness" && row["kind"] != "robustness_pair" {
			t.Errorf("line %s", line)
		}
	}
	// One of the two is lost: only that one is simulated again.
	marked := filepath.Join(whole, "slo-400us", "report.html")
	if err := os.WriteFile(marked, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(whole, "noise-4")); err != nil {
		t.Fatal(err)
	}
	code, again, errs := call(t, args("-o", whole)...)
	if code != exitDone || again != out {
		t.Errorf("exit code %d: %s; it printed\n%s\ninstead of\n%s", code, errs, again, out)
	}
	if read(t, marked) != "kept" {
		t.Error("a variant that was there was simulated again")
	}

	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"a shard is missing", []string{"compare", "merge", "-o", filepath.Join(dir, "x"), shards[0]}, "missing: shard 2/2"},
		{"a shard and a whole", []string{"compare", "merge", "-o", filepath.Join(dir, "x"), shards[0], whole}, "whole"},
		{"a variant that is not there", args("--variants", "slo-1s", "-o", filepath.Join(dir, "x")), "slo-150us"},
		{"a policy that is not there", args("--policies", "magic", "-o", filepath.Join(dir, "x")), "magic"},
		{"no windows", args("--windows", "0", "-o", filepath.Join(dir, "x")), "windows"},
		{"a shard that is not there", args("--shard", "3/2", "-o", filepath.Join(dir, "x")), "I/N"},
		{"a directory that cannot be", args("-o", marked), "directory"},
	} {
		code, out, errs := call(t, tc.args...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.says) {
			t.Errorf("%s: exit code %d, %q, %q", tc.name, code, out, errs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, args("-o", filepath.Join(dir, "cancelled")), &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "goes on from there") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}
