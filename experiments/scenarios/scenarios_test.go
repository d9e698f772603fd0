package scenarios_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/scenarios"
	"autotune/model/sim"
)

func TestShippedFilesSayWhatTheSimulatorsOwnScenariosDo(t *testing.T) {
	want := sim.ScenarioNames()
	slices.Sort(want)
	if diff := cmp.Diff(want, scenarios.Names()); diff != "" {
		t.Fatalf("names (-simulator +files):\n%s", diff)
	}
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			file, err := scenarios.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if file.Name != name || file.About == "" {
				t.Errorf("it calls itself %q, about %q", file.Name, file.About)
			}
			for _, duration := range []time.Duration{15 * time.Second, time.Minute, 7 * time.Minute} {
				for seed := range uint64(3) {
					got, err := file.Scenario(duration, seed, 1)
					if err != nil {
						t.Fatal(err)
					}
					want, err := sim.ScenarioByName(name, duration, seed)
					if err != nil {
						t.Fatal(err)
					}
					same(t, got, want)
				}
			}
		})
	}
}

// same walks two loads change by change.
func same(t *testing.T, got, want sim.Scenario) {
	t.Helper()
	if got.Duration != want.Duration {
		t.Fatalf("duration %v, want %v", got.Duration, want.Duration)
	}
	share := sim.QueueShare{Index: 2, Fraction: 0.25}
	g, w := got.Load.Path(share), want.Load.Path(share)
	for at := time.Duration(0); at < want.Duration; {
		gotRate, gotUntil := g(at)
		wantRate, wantUntil := w(at)
		// The mean time of the modulated process is a share of the duration
		// and may be rounded by a nanosecond.
		if gotRate != wantRate || (gotUntil-wantUntil).Abs() > time.Microsecond {
			t.Fatalf("at %v: %v until %v, want %v until %v", at, gotRate, gotUntil, wantRate, wantUntil)
		}
		at = max(gotUntil, wantUntil)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecordingHoldsEachRateUntilTheNext(t *testing.T) {
	path := write(t, "monday.toml", "name = \"monday\"\nload = \"monday.csv\"\nduration = \"30s\"\n")
	csv := filepath.Join(filepath.Dir(path), "monday.csv")
	if err := os.WriteFile(csv, []byte("t_s,load_kqps\n0,100\n2.5,300\n10,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := scenarios.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.Scenario(time.Minute, 1, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if s.Duration != 30*time.Second {
		t.Errorf("duration %v, want the file's own 30s", s.Duration)
	}
	walk := s.Load.Path(sim.QueueShare{Fraction: 0.5})
	type piece struct {
		At, Until time.Duration
		Rate      float64
	}
	var got []piece
	for at := time.Duration(0); at < 20*time.Second; {
		rate, until := walk(at)
		got = append(got, piece{at, min(until, time.Hour), rate})
		at = until
	}
	want := []piece{
		{0, 2500 * time.Millisecond, 25e3},
		{2500 * time.Millisecond, 10 * time.Second, 75e3},
		{10 * time.Second, time.Hour, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
	before := file.Digest
	if err := os.WriteFile(csv, []byte("t_s,load_kqps\n0,100\n2.5,301\n10,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err = scenarios.Load(path); err != nil || file.Digest == before {
		t.Errorf("digest %s (error %v) did not change with the recording", file.Digest, err)
	}
}

func TestBadFilesAreRefusedByFileAndLine(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		says       []string
	}{
		{"unknown key", "name = \"x\"\n\n[steps]\nkqsp = [1]\neach = \"1s\"\n", []string{"bad.toml:4", "kqsp"}},
		{"unknown table", "name = \"x\"\n[stairs]\nkqps = 1\n", []string{"bad.toml:", "stairs"}},
		{"no TOML", "name = \n", []string{"bad.toml:1"}},
		{"wrong type", "name = \"x\"\n[constant]\nkqps = \"fast\"\n", []string{"bad.toml:3"}},
		{"no name", "[constant]\nkqps = 1\n", []string{"name"}},
		{"name with space", "name = \"a b\"\n[constant]\nkqps = 1\n", []string{"a b"}},
		{"no load", "name = \"x\"\n", []string{"constant", "load"}},
		{"two loads", "name = \"x\"\n[constant]\nkqps = 1\n[steps]\nkqps = [1]\neach = \"1s\"\n", []string{"constant and steps"}},
		{"missing value", "name = \"x\"\n[steps]\nkqps = [1]\n", []string{"[steps]", "each"}},
		{"time without unit", "name = \"x\"\n[steps]\nkqps = [1]\neach = \"10\"\n", []string{"each", "10s"}},
		{"negative load", "name = \"x\"\n[constant]\nkqps = -1\n", []string{"kqps", "-1"}},
		{"not a number", "name = \"x\"\n[constant]\nkqps = nan\n", []string{"kqps"}},
		{"burst after its end", "name = \"x\"\n[mixed]\nmean_kqps = 1\namplitude_kqps = 1\nperiod = \"1s\"\nnoise_kqps = 1\nfloor_kqps = 1\nburst_kqps = 1\nburst_from = 0.9\nburst_to = 0.5\npieces = 10\n", []string{"burst_from"}},
		{"no such recording", "name = \"x\"\nload = \"nosuch.csv\"\n", []string{"nosuch.csv"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := scenarios.Load(write(t, "bad.toml", tc.text))
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not mention %q", err, part)
				}
			}
		})
	}
	if _, err := scenarios.Load("nosuch"); !errors.Is(err, scenarios.ErrUnknown) {
		t.Errorf("error %v, want ErrUnknown", err)
	}
}

func TestBadRecordingsAreRefusedByFileAndLine(t *testing.T) {
	for _, tc := range []struct {
		name, text, says string
	}{
		{"other header", "t,load\n0,1\n", "r.csv:1"},
		{"not a number", "t_s,load_kqps\n0,1\n1,fast\n", "r.csv:3"},
		{"negative", "t_s,load_kqps\n0,-1\n", "r.csv:2"},
		{"not ascending", "t_s,load_kqps\n0,1\n5,1\n5,2\n", "r.csv:4"},
		{"not from zero", "t_s,load_kqps\n1,1\n", "r.csv:2"},
		{"third column", "t_s,load_kqps\n0,1,2\n", "r.csv:2"},
		{"no rows", "t_s,load_kqps\n", "no rows"},
		{"empty", "", "no rows"},
		{"open quote", "t_s,load_kqps\n0,\"1\n", "r.csv"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, "s.toml", "name = \"x\"\nload = \"r.csv\"\n")
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "r.csv"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := scenarios.Load(path)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one that mentions %s", err, tc.says)
			}
		})
	}
}
