package scenarios_test

import (
	"testing"
	"time"

	"autotune/experiments/scenarios"
	"autotune/model/sim"
)

func TestAGivenLoadIsThereForEverySeed(t *testing.T) {
	load := sim.Windows{Each: time.Second, PerSecond: [][]float64{{100, 300}}}
	f, err := scenarios.Given("monday", "what was", 2*time.Second, "d", load)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		s, err := f.Scenario(time.Hour, seed, 2)
		if err != nil || s.Duration != 2*time.Second || s.Name != "monday" {
			t.Fatalf("%+v: %v", s, err)
		}
		path := s.Load.Path(sim.QueueShare{Fraction: 0.1})
		a, _ := path(0)
		b, _ := path(time.Second)
		if a != 200 || b != 600 {
			t.Errorf("%v and %v requests per second, want 200 and 600, twice what was given", a, b)
		}
	}
}

func TestGivenRefusesWhatNoScenarioIs(t *testing.T) {
	for name, tc := range map[string]struct {
		name     string
		duration time.Duration
	}{
		"no name":            {"", time.Second},
		"a name with spaces": {"mon day", time.Second},
		"no time":            {"monday", 0},
		"ten days":           {"monday", 240 * time.Hour},
	} {
		if _, err := scenarios.Given(tc.name, "", tc.duration, "", sim.Constant(1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := scenarios.Name(`mon day/1,"x"`); got != "mon_day_1__x_" {
		t.Errorf("name %q", got)
	}
}
