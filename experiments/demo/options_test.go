package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/workload"
)

type noTuners struct{}

func (noTuners) Start(context.Context, TuningRequest) (Tuning, error) {
	return nil, errors.New("must not be started")
}

func usable() Options {
	command := func() *exec.Cmd { return exec.Command("/nonexistent") }
	return Options{Tuners: noTuners{}, ServerCommand: command, ClientCommand: command}
}

func TestOptionsDefaults(t *testing.T) {
	got, err := usable().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if got.Rounds != MinRounds || got.Judged != "autotune" || got.Window != 125*time.Millisecond || got.SLOFactor != 2 {
		t.Errorf("rounds %d, judged %q, window %v, factor %v", got.Rounds, got.Judged, got.Window, got.SLOFactor)
	}
	// What is promised: five minutes, set-up and changes of turn included,
	// for which two seconds each are set aside.
	var took time.Duration
	for _, p := range got.Phases {
		took += p.Duration
	}
	turns := time.Duration(got.Rounds * len(got.Contenders))
	if total := took*turns + got.Calibration + (turns+1)*2*time.Second; total > 5*time.Minute {
		t.Errorf("a run of defaults takes %v, want at most 5m", total)
	}
	quick := usable()
	quick.Quick = true
	if got, err = quick.withDefaults(); err != nil || got.Rounds != 1 {
		t.Errorf("quick: %d rounds, %v", got.Rounds, err)
	}
}

func TestRunRefusesOptions(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"a base that moves", func(o *Options) { o.Contenders = []Contender{{"a", "aimd"}, {"b", "aimd"}} }, "must hold still"},
		{"one contender", func(o *Options) { o.Contenders = []Contender{{Name: "base"}} }, "nothing to compare"},
		{"a name twice", func(o *Options) { o.Contenders = []Contender{{Name: "base"}, {"base", "aimd"}} }, `"base" is empty or taken`},
		{"an unknown name to judge", func(o *Options) { o.Judged = "nobody" }, `"nobody" cannot be judged`},
		{"the base to judge", func(o *Options) { o.Judged = "base" }, `"base" cannot be judged`},
		{"a phase twice", func(o *Options) { o.Phases = append(DefaultPhases(), DefaultPhases()...) }, "taken"},
		{"an unknown load", func(o *Options) { o.Phases = []Phase{{"p", "middle", 1, time.Second}} }, `load "middle"`},
		{"no rate", func(o *Options) { o.Phases = []Phase{{"p", LoadLow, 0, time.Second}} }, "0 requests per second"},
		{"a phase of two windows", func(o *Options) { o.Phases = []Phase{{"p", LoadLow, 1, time.Second / 4}} }, "at least four windows"},
		{"negative rounds", func(o *Options) { o.Rounds = -1 }, "-1 rounds"},
		{"a window too short", func(o *Options) { o.Window = time.Millisecond }, "at least 50ms"},
		{"a factor that the base breaks", func(o *Options) { o.SLOFactor = 1 }, "more than 1"},
		{"a short calibration", func(o *Options) { o.Calibration = time.Millisecond }, "calibration of 1ms"},
		{"no tuners", func(o *Options) { o.Tuners = nil }, "no Tuners"},
		{"no commands", func(o *Options) { o.ClientCommand = nil }, "no command"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := usable()
			tt.change(&options)
			_, err := Run(t.Context(), options)
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrOptions with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
		})
	}
}

func TestOrders(t *testing.T) {
	options, err := usable().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	options.Rounds, options.Seed = 50, 9
	got := orders(options)
	if diff := cmp.Diff(got, orders(options)); diff != "" {
		t.Errorf("the same seed gives other orders:\n%s", diff)
	}
	options.Seed = 10
	if cmp.Equal(got, orders(options)) {
		t.Error("another seed gives the same orders")
	}
	firsts := map[string]int{}
	for i, order := range got {
		sorted := slices.Sorted(slices.Values(order))
		if diff := cmp.Diff([]string{"autotune", "base", "fixed 200us"}, sorted); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", i+1, diff)
		}
		if i > 0 && slices.Equal(order, got[i-1]) {
			t.Errorf("round %d repeats the order of the one before", i+1)
		}
		firsts[order[0]]++
	}
	for name, n := range firsts {
		if n < 8 {
			t.Errorf("%s is first in %d of 50 rounds", name, n)
		}
	}
}

func TestCalibration(t *testing.T) {
	options, err := usable().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	window := func(p90 time.Duration, completed, excluded uint64) workload.ClientInterval {
		latency := workload.NewLatency()
		// The client's histogram cannot be filled from outside but as JSON.
		if p90 > 0 {
			latency = latencyOf(t, p90)
		}
		return workload.ClientInterval{Phase: calibrationPhase, End: options.Window, Completed: completed, ExcludedServer: excluded, Latency: latency}
	}
	settling, stub, other := window(10*time.Second, 100, 0), window(10*time.Second, 100, 0), window(10*time.Second, 100, 0)
	settling.Settling, stub.End, other.Phase = true, options.Window/4, idle
	busy := window(10*time.Second, 100, 60)
	good := []workload.ClientInterval{
		window(200*time.Microsecond, 100, 10), window(180*time.Microsecond, 100, 10), window(400*time.Microsecond, 100, 10),
	}
	tests := []struct {
		name      string
		intervals []workload.ClientInterval
		delay     *time.Duration
		base      time.Duration
		objective time.Duration
	}{
		{"the median of windows", good, nil, 200 * time.Microsecond, 400 * time.Microsecond},
		{"what is no whole window is left out", append([]workload.ClientInterval{settling, stub, other}, good...), nil, 200 * time.Microsecond, 400 * time.Microsecond},
		{"a busy window is left out", append([]workload.ClientInterval{busy}, good...), nil, 200 * time.Microsecond, 400 * time.Microsecond},
		{"what the server does not see comes off", good, pointer(150 * time.Microsecond), 200 * time.Microsecond, 350 * time.Microsecond},
		{"a server that sees more than the client gets no more", good, pointer(250 * time.Microsecond), 200 * time.Microsecond, 400 * time.Microsecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := newCalibration(tt.intervals, options, tt.delay)
			if err != nil {
				t.Fatal(err)
			}
			const tolerance = 5 * time.Microsecond // of the client's histogram
			for _, v := range []struct {
				name      string
				got, want time.Duration
			}{{"base p90", c.BaseP90, tt.base}, {"SLO", c.SLO, 2 * tt.base}, {"objective", c.Objective, tt.objective}} {
				if d := v.got - v.want; d.Abs() > 2*tolerance {
					t.Errorf("%s: got %v, want %v", v.name, v.got, v.want)
				}
			}
			if c.SLO != 2*c.BaseP90 {
				t.Errorf("SLO %v is not twice %v", c.SLO, c.BaseP90)
			}
		})
	}
	for name, intervals := range map[string][]workload.ClientInterval{
		"no window": nil, "busy": {busy, busy, good[0]}, "nothing answered": {window(0, 0, 0)},
	} {
		if _, err := newCalibration(intervals, options, nil); !errors.Is(err, ErrCannotRun) {
			t.Errorf("%s: got %v, want ErrCannotRun", name, err)
		}
	}
}

// latencyOf returns a histogram that holds one value, or the next greater one
// that it can tell.
func latencyOf(t *testing.T, value time.Duration) *workload.Latency {
	t.Helper()
	for index := range 8192 {
		latency := workload.NewLatency()
		if err := json.Unmarshal(fmt.Appendf(nil, "[[%d,1]]", index), latency); err != nil {
			t.Fatal(err)
		}
		if latency.Quantile(0.5) >= value {
			return latency
		}
	}
	t.Fatalf("no bucket holds %v", value)
	return nil
}
