package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"autotune/model/sim"
)

// simulate runs the simulate command as run does. It returns the exit code,
// standard output and what went wrong.
func simulate(t *testing.T, args ...string) (code int, stdout string, err error) {
	t.Helper()
	var c struct {
		Simulate simulateCmd `cmd:""`
	}
	var out, errs bytes.Buffer
	parser, err := kong.New(&c, kong.Name("autotune"), kong.Writers(&out, &errs))
	if err != nil {
		t.Fatal(err)
	}
	command, err := parser.Parse(append([]string{"simulate"}, args...))
	if err != nil {
		return exitUsage, out.String(), err
	}
	command.BindTo(t.Context(), (*context.Context)(nil))
	err = command.Run(streams{out: &out, err: &errs})
	var coded *exitError
	switch {
	case err == nil:
		return exitDone, out.String(), nil
	case errors.As(err, &coded):
		return coded.code, out.String(), err
	}
	return exitFailed, out.String(), err
}

func TestSimulateOneCell(t *testing.T) {
	code, out, err := simulate(t, "--setting", "suspend20", "--load", "300K", "--span", "50ms", "--warmup", "20ms", "--json")
	if code != exitDone {
		t.Fatalf("exit code %d: %v", code, err)
	}
	var line cellLine
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		t.Fatal(err)
	}
	if line.Kind != "cell" || line.Setting != "suspend20" || line.QPS < 280e3 || line.QPS > 320e3 || line.P99Us <= line.P50Us {
		t.Errorf("got %+v", line)
	}
	code, out, err = simulate(t, "--setting", "defer=100,flush=50us", "--load", "300K", "--span", "50ms")
	if code != exitDone || !strings.Contains(out, "requests/s") || !strings.Contains(out, "p99") {
		t.Errorf("exit code %d, %v, output:\n%s", code, err, out)
	}
}

func TestSimulateTableIsTheSameWhateverTheNumberOfJobs(t *testing.T) {
	table := func(jobs string) string {
		code, out, err := simulate(t, "--table", "--loads", "200K,MAX", "--cases", "base,fullbusy",
			"--runs", "2", "--span", "20ms", "--warmup", "5ms", "--seed", "7", "-j", jobs)
		if code != exitDone {
			t.Fatalf("exit code %d: %v", code, err)
		}
		return out
	}
	one := table("1")
	if diff := cmp.Diff(one, table("4")); diff != "" {
		t.Errorf("tables differ (-one job +four):\n%s", diff)
	}
	published, err := os.ReadFile("../../testdata/irqsuspend_v6_calibration.csv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(one), "\n")
	if header, _, _ := strings.Cut(string(published), "\n"); lines[0] != header {
		t.Errorf("header is %q, want %q", lines[0], header)
	}
	if len(lines) != 5 {
		t.Errorf("%d lines, want a header and 4 cells", len(lines))
	}
	for _, line := range lines[1:] {
		if !strings.HasSuffix(line, ",") {
			t.Errorf("%q: the column ipq is not empty", line)
		}
	}
}

// smallTable writes a table of two cheap cells that the preset does not match.
func smallTable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.csv")
	text := "testcase,load,qps,avglat_us,p95_us,p99_us,cpu_pct,cpq,ipq\n" +
		"defer50,20K,20000,95,160,200,4,20000,1\nsuspend50,20K,20000,95,160,200,5,22000,1\n" +
		"defer50,40K,40000,94,158,198,7,18000,1\nsuspend50,40K,40000,94,158,198,8,19000,1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulateFitWritesAPresetThatIsCloser(t *testing.T) {
	data := smallTable(t)
	first, second := filepath.Join(t.TempDir(), "mine.json"), filepath.Join(t.TempDir(), "mine.json")
	for _, path := range []string{first, second} {
		code, out, err := simulate(t, "fit", data, "--rounds", "1", "--span", "20ms", "-o", path)
		if code != exitDone {
			t.Fatalf("exit code %d: %v", code, err)
		}
		for _, column := range []string{"avg", "p95", "p99", "cpu", "cpq", "qps"} {
			if !strings.Contains(out, column) {
				t.Errorf("no errors of column %s in:\n%s", column, out)
			}
		}
	}
	one, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(one), string(two)); diff != "" {
		t.Errorf("the same seed gave two presets:\n%s", diff)
	}
	fitted, err := sim.LoadPreset(first)
	if err != nil {
		t.Fatal(err)
	}
	start, err := sim.LoadPreset(sim.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	if fitted.Name != "mine" || cmp.Equal(fitted.Cost, start.Cost) {
		t.Errorf("preset %q has the costs that it started with", fitted.Name)
	}
}

func TestSimulateRefusesWrongUse(t *testing.T) {
	notATable := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(notATable, []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown preset", []string{"--preset", "cray"}, []string{`"cray"`, "epyc7662-cx5"}},
		{"unknown setting", []string{"--setting", "turbo"}, []string{`"turbo"`, "suspend20"}},
		{"no unit", []string{"--setting", "flush=20"}, []string{"flush=20", "unit"}},
		{"bad load", []string{"--load", "fast"}, []string{`"fast"`, "600K"}},
		{"loads without table", []string{"--loads", "200K"}, []string{"--table"}},
		{"unknown case", []string{"--table", "--cases", "turbo"}, []string{`"turbo"`}},
		{"no runs", []string{"--table", "--runs", "0"}, []string{"--runs"}},
		{"no such data", []string{"fit", "/nonexistent.csv"}, []string{"nonexistent"}},
		{"no table", []string{"fit", notATable, "-o", "x.json"}, []string{"testcase,load"}},
		{"no output", []string{"fit", smallTable(t)}, []string{"-o"}},
		{"output that is no preset file", []string{"fit", smallTable(t), "-o", "x.toml"}, []string{".json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, err := simulate(t, tc.args...)
			if code != exitUsage || err == nil {
				t.Fatalf("exit code %d, error %v, want %d", code, err, exitUsage)
			}
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not say %q", err, text)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than one line", err)
			}
		})
	}
}

// The record was measured with simulate check in a test bed on Linux 6.18 with
// 2 CPUs; it has three flush timeouts at two loads, and two other settings to
// which the simulator is fitted.
func TestSimulatorAgreesWithARecordedKernel(t *testing.T) {
	code, out, err := simulate(t, "check", "--recorded", "testdata/simulatecheck.json")
	t.Logf("\n%s", out)
	if code != exitDone {
		t.Fatalf("exit code %d: %v", code, err)
	}
	code, out, err = simulate(t, "check", "--recorded", "testdata/simulatecheck.json", "--json")
	if code != exitDone {
		t.Fatalf("exit code %d: %v", code, err)
	}
	var verdict bedVerdict
	if err := json.Unmarshal([]byte(out), &verdict); err != nil {
		t.Fatal(err)
	}
	if verdict.Pairs < 4 || len(verdict.Cells) != 10 {
		t.Errorf("%d pairs decided and %d cells: too little to judge by", verdict.Pairs, len(verdict.Cells))
	}
}

// A kernel that reacts to the flush timeout the other way must not pass.
func TestSimulatorDoesNotAgreeWithAnInventedKernel(t *testing.T) {
	data, err := os.ReadFile("testdata/simulatecheck.json")
	if err != nil {
		t.Fatal(err)
	}
	var record bedRecord
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	byCell := map[string]*bedCell{}
	for i := range record.Cells {
		c := &record.Cells[i]
		byCell[fmt.Sprintf("%s %.0f", c.Setting, c.Rate)] = c
	}
	for _, rate := range []string{"5000", "20000"} {
		short, long := byCell["defer=100,flush=50us "+rate], byCell["defer=100,flush=500us "+rate]
		short.P50Us, long.P50Us = long.P50Us, short.P50Us
	}
	verdict, err := judgeBed(t.Context(), record, 1)
	if err != nil {
		t.Fatal(err)
	}
	if verdict.Met || len(verdict.WrongSigns) == 0 {
		t.Errorf("verdict %+v: an invented kernel passed", verdict)
	}
}
