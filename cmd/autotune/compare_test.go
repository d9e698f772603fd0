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
