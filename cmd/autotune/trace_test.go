package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/probe/trace"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// records are what traces hold, as text that compares.
func records(t *testing.T, paths ...string) []string {
	t.Helper()
	r, err := trace.OpenParts(paths, trace.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []string
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// done runs a command that has to succeed.
func done(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := call(t, args...)
	if code != exitDone {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	return stdout
}

func TestATraceCutAndMergedIsTheOriginal(t *testing.T) {
	path, _ := recordRun(t, newTroubled(1, 2, 200), "random:seed=3", true)
	dir := t.TempDir()
	first, rest, merged := filepath.Join(dir, "first"), filepath.Join(dir, "rest"), filepath.Join(dir, "merged")
	done(t, "trace", "cut", path, "--to", "7s", "-o", first)
	wall := testTraceHeader().StartedWall.Add(7 * time.Second).Format(time.RFC3339)
	done(t, "trace", "cut", path, "--from", wall, "-o", rest)
	var made traceMade
	if err := json.Unmarshal([]byte(done(t, "trace", "merge", rest, first, "-o", merged, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	want := records(t, path)
	if n := len(records(t, first)); n < 10 || n > len(want)-10 {
		t.Errorf("%d of %d records in the first cut", n, len(want))
	}
	if diff := cmp.Diff(want, records(t, merged)); diff != "" || int(made.Samples+made.Records) != len(want) {
		t.Errorf("%+v (-want +got):\n%s", made, diff)
	}
	for name, args := range map[string][]string{
		"an existing file":     {"trace", "merge", first, rest, "-o", merged},
		"an existing cut":      {"trace", "cut", path, "--to", "7s", "-o", first},
		"an existing export":   {"export", path, "-o", first},
		"nothing to cut":       {"trace", "cut", path, "-o", filepath.Join(dir, "x")},
		"a span without":       {"trace", "cut", path, "--from", "9h", "-o", filepath.Join(dir, "x")},
		"a span turned around": {"trace", "cut", path, "--from", "9s", "--to", "8s", "-o", filepath.Join(dir, "x")},
		"no time":              {"trace", "cut", path, "--from", "noon", "-o", filepath.Join(dir, "x")},
		"an overlap":           {"trace", "merge", path, first, "-o", filepath.Join(dir, "x")},
		"no trace":             {"trace", "info", os.Args[0]},
		"verifying a cut":      {"replay", "--verify", first},
		"JSON in a table":      {"export", path, "--json"},
		"a short salt":         {"trace", "anonymize", path, "-o", filepath.Join(dir, "x"), "--salt-file", "/dev/null"},
	} {
		before := size(t, first)
		code, _, stderr := call(t, args...)
		if code != exitUsage || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d: %q", name, code, stderr)
		}
		if size(t, first) != before {
			t.Fatalf("%s: a file was overwritten", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestOtherConditionsAreMergedOnlyWhenForced(t *testing.T) {
	path, _ := recordRun(t, newTroubled(1, 2, 100), "random", true)
	dir := t.TempDir()
	first, rest := filepath.Join(dir, "first"), filepath.Join(dir, "rest")
	done(t, "trace", "cut", path, "--to", "5s", "-o", first)
	done(t, "trace", "cut", path, "--from", "5s", "-o", rest)
	governed := func(in, governor string) string {
		r, err := openTrace(in)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		h := r.Header()
		h.Conditions.CPUs = []trace.CPU{{Governor: &governor}}
		out := in + "." + governor
		w, err := trace.Create(out, h, trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for record, err := range r.Records() {
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WriteRecord(record); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := governed(first, "performance"), governed(rest, "powersave")
	code, _, stderr := call(t, "trace", "merge", a, b, "-o", filepath.Join(dir, "merged"))
	if code != exitUsage || !strings.Contains(stderr, "performance and powersave") || !strings.Contains(stderr, "--force-conditions") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	done(t, "trace", "merge", a, b, "-o", filepath.Join(dir, "merged"), "--force-conditions")
}

func TestThePartsOfARunAreReplayedAsTheWhole(t *testing.T) {
	whole, journal := recordRun(t, newTroubled(2, 2, 300), "random:seed=5", true)
	parts, again := recordParts(t, newTroubled(2, 2, 300), "random:seed=5", true, trace.Rotation{Age: 4 * time.Second})
	if len(parts) < 4 || again != journal {
		t.Fatalf("%d parts, the same journal: %v", len(parts), again == journal)
	}
	if diff := cmp.Diff(records(t, whole), records(t, parts...)); diff != "" {
		t.Errorf("(-whole +parts):\n%s", diff)
	}
	var v verified
	if err := json.Unmarshal([]byte(done(t, append([]string{"replay", "--verify", "--json"}, parts...)...)), &v); err != nil {
		t.Fatal(err)
	}
	if int(v.Entries) != strings.Count(journal, "\n") || !v.Identical || v.Unproven != nil {
		t.Errorf("%+v", v)
	}
	for name, files := range map[string][]string{
		"without the first": parts[1:], "with one left out": append(slices.Clone(parts[:1]), parts[2:]...), "turned around": {parts[1], parts[0]},
	} {
		code, _, stderr := call(t, append([]string{"replay", "--verify"}, files...)...)
		if code != exitUsage || !strings.Contains(stderr, "part") {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
	}
	// A recording that lacks its oldest parts can still be replayed.
	out := done(t, append([]string{"replay", "--policy", "aimd", "--json", "--verbose"}, parts[2:]...)...)
	if n := strings.Count(out, `"kind":"replay"`); n != 1 {
		t.Errorf("%d recordings were replayed", n)
	}
	merged := filepath.Join(t.TempDir(), "merged.trace.zst")
	done(t, append([]string{"trace", "merge", "-o", merged}, parts...)...)
	done(t, "replay", "--verify", merged)
}

// flipped returns a copy of a trace in which one bit is wrong, in the middle.
func flipped(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x10
	broken := filepath.Join(t.TempDir(), "broken.trace.zst")
	if err := os.WriteFile(broken, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return broken
}

func TestDamageIsNamedAndTheRestSalvaged(t *testing.T) {
	path, _ := recordRun(t, newTroubled(4, 2, 600), "random", true)
	broken := flipped(t, path)
	info := func(code int, args ...string) (out traceInfo) {
		got, stdout, stderr := call(t, append([]string{"trace", "info", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &out); err != nil || got != code {
			t.Fatalf("%v: exit code %d, %v: %s", args, got, err, stderr)
		}
		return out
	}
	whole, before, salvaged := info(exitDone, path), info(exitFailed, broken), info(exitDone, "--salvage", broken)
	if d := before.Trace.Damage; d == nil || !strings.Contains(*d, "frame ") || before.Samples >= salvaged.Samples {
		t.Errorf("%+v, %d samples before the damage", before.Trace, before.Samples)
	}
	if len(salvaged.Skipped) != 1 || salvaged.Samples+salvaged.Missing.Samples != whole.Samples || salvaged.Missing.Samples == 0 {
		t.Errorf("%d of %d samples salvaged, %+v missing: %v", salvaged.Samples, whole.Samples, salvaged.Missing, salvaged.Skipped)
	}
	for _, args := range [][]string{
		{"export", broken, "-o"}, {"trace", "cut", broken, "--from", "0s", "-o"}, {"trace", "anonymize", broken, "-o"}, {"trace", "merge", broken, "-o"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		code, _, stderr := call(t, append(args, out)...)
		if _, err := os.Stat(out); code != exitFailed || !strings.Contains(stderr, "--salvage") || err == nil {
			t.Errorf("%v: exit code %d, file left: %v: %s", args, code, err == nil, stderr)
		}
		done(t, append(args, out, "--salvage")...)
	}
	if code, stdout, _ := call(t, "replay", "--policy", "aimd", broken); code != exitFailed || !strings.Contains(stdout, "--salvage") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	done(t, "replay", "--policy", "aimd", "--salvage", broken)
}

// csvTable reads an export in CSV.
func csvTable(t *testing.T, text string) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		out = append(out, row)
	}
	return out
}

func total(t *testing.T, rows []map[string]string, column string) (n uint64) {
	t.Helper()
	for _, row := range rows {
		if row[column] == "" {
			continue
		}
		v, err := strconv.ParseUint(row[column], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += v
	}
	return n
}

func TestAnExportCountsWhatTheTraceCounts(t *testing.T) {
	path, journal := recordRun(t, newTroubled(5, 3, 200), "random", true)
	r, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := map[string]uint64{}
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind != trace.KindSample {
			continue
		}
		want["cpus"] += uint64(len(record.Sample.CPUs))
		want["apps"] += uint64(len(record.Sample.Apps))
		want["queues"] += uint64(len(sampledQueues(&record.Sample)))
		for i := range record.Sample.Queues {
			q := &record.Sample.Queues[i]
			want["packets"] += q.Polls().Packets
			want["delays"] += q.Delay.Count()
			for _, n := range q.Work {
				want["work"] += n
			}
		}
	}
	queues := csvTable(t, done(t, "export", path))
	histograms := csvTable(t, done(t, "export", path, "--table", "histograms"))
	delays, work := uint64(0), uint64(0)
	for _, row := range histograms {
		n := total(t, []map[string]string{row}, "count")
		switch row["histogram"] {
		case "delay":
			delays += n
		case "work":
			work += n
		}
	}
	got := map[string]uint64{
		"queues": uint64(len(queues)), "packets": total(t, queues, "packets"), "delays": total(t, queues, "delay_count"), "work": work,
		"cpus": uint64(len(csvTable(t, done(t, "export", path, "--table", "cpus")))), "apps": uint64(len(csvTable(t, done(t, "export", path, "--table", "apps")))),
	}
	if diff := cmp.Diff(want, got); diff != "" || want["packets"] == 0 || delays != want["delays"] {
		t.Errorf("%d delays in histograms (-trace +export):\n%s", delays, diff)
	}
	if n := len(csvTable(t, done(t, "export", path, "--table", "decisions"))); n != strings.Count(journal, "\n") {
		t.Errorf("%d decisions exported of %d", n, strings.Count(journal, "\n"))
	}
	if queues[0]["ifname"] != "eth7" || !strings.HasPrefix(queues[0]["time"], "2026-05-04T0") {
		t.Errorf("first row %v", queues[0])
	}

	// Parquet has the same rows.
	out := filepath.Join(t.TempDir(), "queues.parquet")
	done(t, "export", path, "--format", "parquet", "-o", out)
	rows, err := parquet.ReadFile[queueRow](out)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(queues) {
		t.Fatalf("%d rows in Parquet, %d in CSV", len(rows), len(queues))
	}
	for i, row := range rows {
		cells := queues[i]
		if fmt.Sprint(row.At) != cells["at_ns"] || csvCell(row.Packets) != cells["packets"] || csvCell(row.DelayP99) != cells["delay_p99_ns"] ||
			csvCell(row.Flush) != cells["gro_flush_timeout_ns"] || csvCell(row.Absent) != cells["absent"] || csvTime(*row.Time) != cells["time"] {
			t.Fatalf("row %d: %+v in Parquet, %v in CSV", i, row, cells)
		}
	}
	for _, name := range []string{"histograms", "cpus", "apps", "decisions"} {
		done(t, "export", path, "--format", "parquet", "--table", name, "-o", filepath.Join(t.TempDir(), name))
	}
}

func TestAnAnonymousTraceDecidesTheSame(t *testing.T) {
	path, _ := recordRun(t, newTroubled(6, 2, 200), "random", true)
	out := filepath.Join(t.TempDir(), "out.trace.zst")
	done(t, "trace", "anonymize", path, "-o", out)
	data := done(t, "trace", "info", "--json", out)
	for _, name := range []string{"server-1", "eth7", "4026532000", "2026"} {
		if strings.Contains(data, name) {
			t.Errorf("%s is still there: %s", name, data)
		}
	}
	verdicts := func(path string) (out []string) {
		for _, line := range strings.Split(strings.TrimSpace(done(t, "replay", "--policy", "aimd", "--json", path)), "\n") {
			var e struct {
				Kind, Purpose, Verdict, Guard string
				To                            model.Settings
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.Kind == "decision" {
				out = append(out, fmt.Sprint(e))
			}
		}
		return out
	}
	if diff := cmp.Diff(verdicts(path), verdicts(out)); diff != "" || len(verdicts(path)) == 0 {
		t.Errorf("(-original +anonymous):\n%s", diff)
	}
}

func TestAnImportedSeriesIsReplayed(t *testing.T) {
	dir := t.TempDir()
	series := filepath.Join(dir, "softnet")
	writeText(t, series, `# 1767225600
000003e8 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
# 1767225601.5
000007d0 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
`)
	out := filepath.Join(dir, "out.trace.zst")
	done(t, "trace", "import", "--format", "softnet", series, "-o", out, "--settings", "static:defer=100,flush=50us")
	stdout := done(t, "replay", "--policy", "aimd", "--json", out)
	if !strings.Contains(stdout, `"samples":1`) || !strings.Contains(stdout, `"kind":"decision"`) {
		t.Errorf("replayed as %s", stdout)
	}
	rows := csvTable(t, done(t, "export", out))
	if len(rows) != 1 || rows[0]["packets"] != "1000" || rows[0]["delay_p99_ns"] != "" || rows[0]["gro_flush_timeout_ns"] != "50000" {
		t.Errorf("exported as %v", rows)
	}
	for _, args := range [][]string{
		{"trace", "import", "--format", "sadf", series, "-o", filepath.Join(dir, "x")},
		{"trace", "import", "--format", "softnet", filepath.Join(dir, "none"), "-o", filepath.Join(dir, "x")},
		{"trace", "import", "--format", "softnet", series, "-o", filepath.Join(dir, "x"), "--settings", "aimd"},
		{"trace", "import", "--format", "softnet", series, "-o", out},
	} {
		if code, _, stderr := call(t, args...); code != exitUsage || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d: %q", args, code, stderr)
		}
	}
}

func TestLimitsOfATraceThatMeanNothingAreRefused(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		says  string
	}{
		{[]string{"record", "lo", "-o", "-", "--rotate-age", "1h"}, "standard output"},
		{[]string{"record", "lo", "-o", "/x", "--rotate-size", "1KiB"}, "at least 64.0 KiB"},
		{[]string{"record", "lo", "-o", "/x", "--rotate-size", "1 parsec"}, "is no size"},
		{[]string{"record", "lo", "-o", "/x", "--rotate-age", "1ms"}, "at least 1s"},
		{[]string{"record", "lo", "-o", "/x", "--rotate-size", "1MiB", "--keep-size", "2MiB"}, "four files"},
		{[]string{"run", "lo", "--keep-size", "1GB"}, "name its file"},
	} {
		code, _, stderr := call(t, tt.flags...)
		if code != exitUsage || !strings.Contains(stderr, tt.says) {
			t.Errorf("%v: exit code %d: %s", tt.flags, code, stderr)
		}
	}
	var b byteSize
	for text, want := range map[string]byteSize{"100MiB": 100 << 20, "1.5GB": 15e8, "64 KiB": 64 << 10, "12B": 12} {
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
	}
}
