package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompareOverwritesNoOtherReport(t *testing.T) {
	dir := t.TempDir()
	tiny := func(to, policy string, more ...string) []string {
		return append([]string{
			"compare", "--policies", policy, "--references", "none", "--scenarios", "constant", "--load-scale", "0.2",
			"--seeds", "1", "--windows", "2", "--interval", "50ms", "--table", filepath.Join(dir, "steady.json"), "-o", filepath.Join(dir, to),
		}, more...)
	}
	robust := func(to, policy, variants string) []string {
		return []string{
			"compare", "robustness", "--policies", policy, "--wrong-prior", "none", "--variants", variants, "--scenarios", "constant",
			"--seeds", "1", "--windows", "2", "--tables", filepath.Join(dir, "tables"), "-o", filepath.Join(dir, to),
		}
	}
	done := func(args ...string) string {
		t.Helper()
		code, out, errs := call(t, args...)
		if code != exitDone {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		return out
	}
	first := done(tiny("whole", "random")...)
	done(tiny("shard", "random", "--shard", "1/1")...)
	done(robust("variants", "random", "noise-4")...)
	if err := os.Mkdir(filepath.Join(dir, "demo"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "demo", "report.html"), "of a demo")

	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"another policy", tiny("whole", "base"), "policies differ"},
		{"a shard over the whole", tiny("whole", "random", "--shard", "1/1"), "holds all of this comparison, not shard 1 of 1"},
		{"a whole over a shard", tiny("shard", "random"), "holds shard 1 of 1 of this comparison, not all"},
		{"a comparison over a table", tiny("variants", "random"), "robustness.json"},
		{"a comparison over a report of something else", tiny("demo", "random"), "report.html"},
		{"a table over a comparison", robust("whole", "random", "noise-4"), "a comparison, and not variants"},
		{"a table of another policy", robust("variants", "base", "noise-4"), "policies differ"},
		{"a table of fewer variants", robust("variants", "random", "nominal"), "noise-4"},
		{"shards merged over variants", []string{"compare", "merge", filepath.Join(dir, "shard"), "-o", filepath.Join(dir, "variants")}, "robustness.json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := read(t, dir, "whole", "report.txt") + read(t, dir, "variants", "robustness.txt") + read(t, dir, "demo", "report.html")
			code, out, errs := call(t, tc.args...)
			if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.says) || !strings.Contains(errs, "--force") {
				t.Errorf("exit code %d, %q: %q, want %q", code, out, errs, tc.says)
			}
			if after := read(t, dir, "whole", "report.txt") + read(t, dir, "variants", "robustness.txt") + read(t, dir, "demo", "report.html"); after != before {
				t.Error("it wrote")
			}
		})
	}
	code, again, errs := call(t, tiny("whole", "random")...)
	if code != exitDone || again != first || !strings.Contains(errs, "holds this already") {
		t.Errorf("the same command again: exit code %d, %q\n%s", code, errs, again)
	}
	if out := done(tiny("shard", "random", "--shard", "1/1")...); !strings.Contains(out, "shard 1 of 1: 4 cells") {
		t.Errorf("the same shard again: %s", out)
	}
	done(tiny("whole", "base", "--force")...)
	if text := read(t, dir, "whole", "report.txt"); strings.Contains(text, "random") {
		t.Errorf("--force left\n%s", text)
	}
}
