package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asProgram makes the test binary behave as autotune itself, so that tests can
// start, signal and kill it.
const asProgram = "AUTOTUNE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		_ = os.Unsetenv(asProgram)
		main()
		return
	}
	os.Exit(m.Run())
}

// call runs autotune within the test.
func call(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongUseSaysInOneLineWhatIsWrongAndHowToFixIt(t *testing.T) {
	badConfig := t.TempDir() + "/bad.toml"
	writeText(t, badConfig, "[run]\nsloo = \"250us\"\n")
	unknownTable := t.TempDir() + "/table.toml"
	writeText(t, unknownTable, "[rum]\nslo = \"250us\"\n")
	manyKeys := t.TempDir() + "/many.toml"
	writeText(t, manyKeys, "[compare]\ngrid = 1\n")
	noTable := t.TempDir() + "/flat.toml"
	writeText(t, noTable, "slo = \"250us\"\n")
	list := t.TempDir() + "/list.toml"
	writeText(t, list, "[run]\nslo = [\"250us\"]\n")
	noTOML := t.TempDir() + "/no.toml"
	writeText(t, noTOML, "slo is 250us\n")
	notAState := t.TempDir() + "/state"
	writeText(t, notAState, "a file where a directory should be")

	for _, tc := range []struct {
		name string
		args []string
		want int
		says []string
	}{
		{"no interface", []string{"run"}, exitUsage, []string{"<iface>"}},
		{"unknown command", []string{"rum"}, exitUsage, []string{"rum"}},
		{"unknown flag", []string{"run", "--aply", "lo"}, exitUsage, []string{"--aply"}},
		{"unknown policy", []string{"run", "lo", "--policy", "magic"}, exitUsage, []string{`"magic"`, "aimd", "static"}},
		{"unknown policy key", []string{"run", "lo", "--policy", "aimd:steps=4us"}, exitUsage, []string{`"steps"`, "step"}},
		{"policy value without unit", []string{"run", "lo", "--policy", "static:defer=100,flush=50"}, exitUsage, []string{"flush=50", "50us"}},
		{"suspend without deferral", []string{"run", "lo", "--policy", "static:suspend=20ms"}, exitUsage, []string{"suspend", "defer", "flush"}},
		{"SLO without unit", []string{"run", "lo", "--slo", "250"}, exitUsage, []string{"--slo", "unit"}},
		{"SLO of zero", []string{"run", "lo", "--slo", "0s"}, exitUsage, []string{"--slo", "250us"}},
		{"impossible quantile", []string{"run", "lo", "--slo-quantile", "99"}, exitUsage, []string{"--slo-quantile", "0.99"}},
		{"interval too short", []string{"run", "lo", "--interval", "1ms"}, exitUsage, []string{"--interval", "10ms"}},
		{"keep without apply", []string{"run", "lo", "--keep"}, exitUsage, []string{"--keep", "--apply"}},
		{"unknown interface", []string{"run", "nosuch0"}, exitUsage, []string{`"nosuch0"`, "lo"}},
		{"unknown interface in list", []string{"list", "nosuch0"}, exitUsage, []string{`"nosuch0"`, "lo"}},
		{"unknown namespace", []string{"list", "--netns", "nosuchns"}, exitUsage, []string{"nosuchns", "ip netns list"}},
		{"misspelt config key", []string{"run", "lo", "--config", badConfig}, exitUsage, []string{`"sloo"`, "slo"}},
		{"config of a command of commands", []string{"compare", "--config", manyKeys}, exitUsage, []string{`"grid"`, "force, force-conditions", "json, latency"}},
		{"unknown config table", []string{"run", "lo", "--config", unknownTable}, exitUsage, []string{`"rum"`}},
		{"config that is no TOML", []string{"run", "lo", "--config", noTOML}, exitUsage, []string{"line 1", noTOML}},
		{"config without a table", []string{"run", "lo", "--config", noTable}, exitUsage, []string{noTable, `"slo"`, "[run]"}},
		{"config with a list", []string{"run", "lo", "--config", list}, exitUsage, []string{list, "slo", "string"}},
		{"interval too long", []string{"run", "lo", "--interval", "1h"}, exitUsage, []string{"--interval", "1m"}},
		{"defer without flush", []string{"run", "lo", "--policy", "static:defer=100"}, exitUsage, []string{"defer", "without flush"}},
		{"aligning while observing", []string{"run", "lo", "--placement", "align"}, exitUsage, []string{"--apply", "observe"}},
		{"unknown placement", []string{"run", "lo", "--placement", "move"}, exitUsage, []string{"--placement", "align"}},
		{"unknown selector", []string{"doctor", "--app", "memcached"}, exitUsage, []string{"comm=", "pid=", "cgroup="}},
		{"selector of nobody", []string{"doctor", "--app", "comm=nobody-has-this"}, exitUsage, []string{"comm=nobody-has-this"}},
		{"readiness of everything", []string{"doctor", "--app", "all"}, exitUsage, []string{"--app all", "comm=NAME"}},
		{"fix without application", []string{"doctor", "--fix"}, exitUsage, []string{"--fix", "--app"}},
		{"missing config", []string{"run", "lo", "--config", "/nonexistent.toml"}, exitUsage, []string{"--config", "/nonexistent.toml", "no such file", "[run]"}},
		{"config that is a directory", []string{"run", "lo", "--config", "/"}, exitUsage, []string{"--config", "is a directory"}},
		{"state that is a file", []string{"restore", "--state", notAState}, exitUsage, []string{notAState}},
		{"applications that are no selector", []string{"run", "lo", "--apps", "memcached"}, exitUsage, []string{"--apps", "comm=NAME"}},
		{"busypoll set without processes", []string{"busypoll", "set", "--prefer", "on"}, exitUsage, []string{"--pid", "--comm", "--all"}},
		{"busypoll set of two kinds", []string{"busypoll", "set", "--pid", "1", "--all", "--prefer", "on"}, exitUsage, []string{"one of"}},
		{"busypoll set without a value", []string{"busypoll", "set", "--comm", "x"}, exitUsage, []string{"--usecs", "--budget", "--prefer"}},
		{"busypoll set of neither on nor off", []string{"busypoll", "set", "--comm", "x", "--prefer", "yes"}, exitUsage, []string{"--prefer yes", "on or off"}},
		{"busypoll set of a negative time", []string{"busypoll", "set", "--comm", "x", "--usecs", "-1"}, exitUsage, []string{"--usecs"}},
		{"busypoll set of too large a budget", []string{"busypoll", "set", "--comm", "x", "--budget", "99999999"}, exitUsage, []string{"--budget 99999999", "0 to 65535", "64 needs CAP_NET_ADMIN"}},
		{"setting that does not exist", []string{"simulate", "--setting", "nosuch"}, exitUsage, []string{`"nosuch"`, "base, defer10", "defer=100,flush=20us"}},
		{"busypoll set of too long a time", []string{"busypoll", "set", "--comm", "x", "--usecs", "4000000000"}, exitUsage, []string{"--usecs 4000000000", "2147483647"}},
		{"relative control group", []string{"busypoll", "list", "--cgroup", "a.slice"}, exitUsage, []string{"a.slice", "/"}},
		{"process that is not there", []string{"busypoll", "list", "--pid", "4194304"}, exitUsage, []string{"4194304"}},
		{"unknown server", []string{"experiment", "demo", "--server", "apache"}, exitUsage, []string{"--server apache", "built-in", "memcached"}},
		{"server that is always busy", []string{"experiment", "demo", "--server", "memcached-busy"}, exitUsage, []string{"--server memcached-busy", "built-in, memcached, redis"}},
		{"no command", nil, exitUsage, []string{"doctor, list, top, run", "autotune --help"}},
		{"no flag of this command", []string{"run", "lo", "--shard", "1/2"}, exitUsage, []string{"--shard", "autotune run --help"}},
		{"negative duration", []string{"list", "--live", "--duration", "-1s"}, exitUsage, []string{"--duration -1s: it cannot be negative", "autotune list --help"}},
		{"negative number", []string{"compare", "--seeds", "-2"}, exitUsage, []string{"--seeds -2: it cannot be negative", "autotune compare --help"}},
		{"duration that is none", []string{"run", "lo", "--interval", "9999999h"}, exitUsage, []string{"--interval 9999999h: no duration", "250us"}},
		{"number that is none", []string{"simulate", "--seed", "1.5"}, exitUsage, []string{"--seed 1.5: no whole number"}},
		{"quantile that is none", []string{"run", "lo", "--slo-quantile", "x"}, exitUsage, []string{"--slo-quantile x: not a number"}},
		{"flag without its value", []string{"run", "lo", "--policy", "--apply"}, exitUsage, []string{"--policy has no value before --apply"}},
		{"flag without its value at the end", []string{"run", "lo", "--policy"}, exitUsage, []string{"--policy has no value (see"}},
		{"file that is needed", []string{"record", "lo"}, exitUsage, []string{"it needs --output=FILE"}},
		{"window of no length", []string{"list", "--live", "--interval", "0s"}, exitUsage, []string{"--interval 0s", "10ms"}},
		{"target of zero", []string{"compare", "--slo", "0s", "-o", badConfig + ".d"}, exitUsage, []string{"0s"}},
		{"seeds of none", []string{"compare", "--seeds", "0"}, exitUsage, []string{"autotune compare: 0 seeds"}},
		{"one rate", []string{"experiment", "demo", "--rates", "5000"}, exitUsage, []string{"--rates takes two rates", "5000,40000"}},
		{"rates that fall", []string{"experiment", "demo", "--rates", "5000,400"}, exitUsage, []string{"the higher"}},
		{"phase of no length", []string{"experiment", "demo", "--phase", "0s", "-o", badConfig + ".d"}, exitUsage, []string{"0s"}},
		{"load that is none", []string{"simulate", "--load", "x"}, exitUsage, []string{`load "x"`, "600K"}},
		{"comparison that is not there", []string{"compare", "table", "/nosuch"}, exitUsage, []string{"no directory /nosuch"}},
		{"unknown contender", []string{"experiment", "demo", "--contenders", "magic"}, exitUsage, []string{`"magic"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := call(t, tc.args...)
			if code != tc.want {
				t.Errorf("exit code %d, want %d; it said %q", code, tc.want, stderr)
			}
			if strings.Contains(stderr, ": gone") || strings.Contains(stderr, "open: ") || strings.Contains(stderr, "map[") {
				t.Errorf("%q has words that mean nothing to its reader", stderr)
			}
			for _, word := range []string{"EOL", "bit uint", "(short flag)", ": not a load", "not a comparison: "} {
				if strings.Contains(stderr, word) {
					t.Errorf("%q has words of the program", stderr)
				}
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

func TestAServerThatIsMissingCannotBeJudged(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, stderr := call(t, "experiment", "demo", "--server", "memcached", "-o", t.TempDir())
	if code != exitCannot || !strings.Contains(stderr, "apt-get install memcached") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, want %d: %q", code, exitCannot, stderr)
	}
}

func TestHelpIsNoError(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"experiment", "demo", "--help"}} {
		code, stdout, stderr := call(t, args...)
		if code != exitDone || stderr != "" || !strings.Contains(stdout, "Usage: autotune") {
			t.Errorf("autotune %v: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestConfigSetsFlagsAndTheCommandLineWins(t *testing.T) {
	path := t.TempDir() + "/autotune.toml"
	writeText(t, path, "[run]\nslo = \"0s\"\n")
	_, _, stderr := call(t, "run", "nosuch0", "--config", path)
	if !strings.Contains(stderr, "--slo 0s") {
		t.Errorf("the file's SLO was not used: %q", stderr)
	}
	_, _, stderr = call(t, "run", "nosuch0", "--config", path, "--slo", "250us")
	if !strings.Contains(stderr, "nosuch0") {
		t.Errorf("the command line's SLO did not win: %q", stderr)
	}
}

func TestEndedContextEndsACommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"list"}, &out, &errs); code == exitDone {
		t.Errorf("list succeeded under an ended context: %q", out.String())
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHelpOfACommandIsAskedForInEitherWay(t *testing.T) {
	for _, tc := range []struct{ word, flag []string }{
		{[]string{"help"}, []string{"--help"}},
		{[]string{"help", "compare", "grid"}, []string{"compare", "grid", "--help"}},
	} {
		codeWord, word, _ := call(t, tc.word...)
		codeFlag, flag, _ := call(t, tc.flag...)
		if codeWord != exitDone || codeFlag != exitDone || word != flag || !strings.Contains(flag, "Usage: autotune") {
			t.Errorf("%v: exit codes %d and %d\n%s\n%s", tc.word, codeWord, codeFlag, word, flag)
		}
	}
	_, grid, _ := call(t, "compare", "grid", "--help")
	if text := strings.Join(strings.Fields(grid), " "); !strings.Contains(text, "raw rows. By default compare-report.") || strings.Contains(text, ",...,...") {
		t.Errorf("defaults or placeholders are not told in\n%s", grid)
	}
	if _, text, _ := call(t, "compare", "--help"); !strings.Contains(strings.Join(strings.Fields(text), " "), "autotune compare grid --help") {
		t.Errorf("nothing says what compare alone does in\n%s", text)
	}
}

func TestAReaderThatLeavesIsNoNews(t *testing.T) {
	for _, args := range [][]string{
		{"--help"}, {"export", bedRecording}, {"simulate", "--span", "10ms", "--warmup", "0s"}, {"trace", "info", bedRecording, "--json"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd := program(args...)
		cmd.Stdout, cmd.Stderr = w, &errs
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitFailed || errs.String() != "" {
			t.Errorf("%v: %v, it says %q", args, err, errs.String())
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnInterruptionIsSaidInOneWord(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"simulate", "--span", "1000s"}, {"simulate", "--table"}, {"replay", bedRecording, "--simulate", "--policy", "base"},
		{"export", bedRecording}, {"simulate", "fit", "../../testdata/irqsuspend_v6_calibration.csv", "-o", filepath.Join(t.TempDir(), "x.json")},
	} {
		var out, errs bytes.Buffer
		code := run(ctx, args, &out, &errs)
		if code != exitFailed || !strings.HasSuffix(errs.String(), ": interrupted\n") || strings.Count(errs.String(), "interrupted") != 1 {
			t.Errorf("%v: exit code %d, it says %q", args, code, errs.String())
		}
	}
}
