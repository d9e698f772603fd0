package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"autotune/experiments/demo"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
)

// roleVariable makes the test binary the process of a server or a client.
const roleVariable = "AUTOTUNE_TEST_DEMO"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "server":
		err = workload.RunServer(os.Stdin, os.Stdout)
	case "client":
		err = workload.RunClient(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// commands remembers what it started.
type commands struct {
	mu  sync.Mutex
	all []*exec.Cmd
}

func (c *commands) as(tb testing.TB, role string) func() *exec.Cmd {
	executable, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return func() *exec.Cmd {
		cmd := exec.Command(executable)
		cmd.Env = append(os.Environ(), roleVariable+"="+role)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, cmd)
		return cmd
	}
}

// shortOptions make two rounds of about a second a phase. The load is light
// and the client sleeps, so that the test can share a machine.
func shortOptions(tb testing.TB, tuners demo.Tuners, started *commands) demo.Options {
	phases := []demo.Phase{
		{Name: "low", Load: demo.LoadLow, Rate: 1000, Duration: 800 * time.Millisecond},
		{Name: "high", Load: demo.LoadHigh, Rate: 15000, Duration: 1200 * time.Millisecond},
		{Name: "low again", Load: demo.LoadLow, Rate: 1000, Duration: 1200 * time.Millisecond},
	}
	return demo.Options{
		Contenders: []demo.Contender{{Name: "base"}, {Name: "fixed", Spec: "always"}, {Name: "switching", Spec: "threshold"}},
		Phases:     phases, Rounds: 2, Window: 100 * time.Millisecond, Seed: 5,
		Client:        workload.ClientConfig{Sleep: true},
		Report:        filepath.Join(tb.TempDir(), "report.html"),
		Tuners:        tuners,
		ServerCommand: started.as(tb, "server"), ClientCommand: started.as(tb, "client"),
	}
}

// assertNothingLeft checks that no process, bed or tuner of a run remains.
func assertNothingLeft(t testing.TB, tuners *thresholdTuners, started *commands) {
	t.Helper()
	tuners.mu.Lock()
	defer tuners.mu.Unlock()
	if tuners.running != 0 {
		t.Errorf("%d tuners still run", tuners.running)
	}
	if tuners.started > 0 {
		if _, err := os.Stat(tuners.last.Netns); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("network namespace %s is still there: %v", tuners.last.Netns, err)
		}
	}
	for _, cmd := range started.all {
		if cmd.Process == nil {
			continue
		}
		if err := unix.Kill(cmd.Process.Pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d still runs: %v", cmd.Process.Pid, err)
		}
	}
}

func TestRunLive(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		testbed.Require(t)
		testbed.Alone(t)
		tuners, started := &thresholdTuners{}, &commands{}
		options := shortOptions(t, tuners, started)
		var progress bytes.Buffer
		options.Progress = &progress
		result, err := demo.Run(t.Context(), options)
		t.Logf("%s", progress.String())
		if err != nil {
			t.Fatal(err)
		}
		assertNothingLeft(t, tuners, started)
		if want := 1 + 2*3; tuners.started < want {
			t.Errorf("%d tuners were started, want at least %d: one to calibrate, and one a turn", tuners.started, want)
		}
		if tuners.last.ServerPID == 0 || tuners.last.Ifindex == 0 || tuners.last.Objective.Quantile != 0.9 || tuners.last.Objective.SLO != result.Run.Calibration.Objective {
			t.Errorf("the last tuner was asked %+v", tuners.last)
		}
		if want := 2 * 3 * 3; len(result.Rows) != want {
			t.Fatalf("%d rows, want %d", len(result.Rows), want)
		}
		up, down := map[string]int{}, map[string]int{}
		for _, r := range result.Rows {
			name := fmt.Sprintf("round %d, %s, %s", r.Round, r.Contender, r.Phase)
			if r.Requests == 0 || r.CPUPerRequest == nil || *r.CPUPerRequest <= 0 || r.NAPICPU == nil || *r.NAPICPU == 0 || r.RawP90 == nil {
				t.Errorf("%s: something is not measured: %+v", name, r)
				continue
			}
			want := options.Phases[r.PhaseIndex]
			// A busy machine ends a phase late, and never early.
			if r.Span < want.Duration {
				t.Errorf("%s: lasted %v, want at least %v", name, r.Span, want.Duration)
			}
			// Arrivals are random, and what a stalled client has not looked at
			// when the phase ends is not offered.
			if r.Offered < want.Rate*0.5 || r.Offered > want.Rate*1.2 {
				t.Errorf("%s: offered %.0f requests/s, want about %.0f", name, r.Offered, want.Rate)
			}
			up[r.Contender] += r.Raised
			down[r.Contender] += r.Lowered
			if r.Contender == "fixed" && (r.MeanFlush == nil || *r.MeanFlush != 200*time.Microsecond) {
				t.Errorf("%s: flush timeout %v, want 200us throughout", name, r.MeanFlush)
			}
		}
		if up["base"]+down["base"]+down["fixed"] != 0 || up["fixed"] != 2 || up["switching"] < 2 || down["switching"] < 2 {
			t.Errorf("changes up %v, down %v", up, down)
		}
		for _, file := range []string{options.Report, demo.RecordPath(options.Report)} {
			if info, err := os.Stat(file); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
		record, err := os.Open(demo.RecordPath(options.Report))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = record.Close() }()
		again, err := demo.ReadRecord(record)
		if err != nil || len(again.Rows) != len(result.Rows) || len(again.Windows) != len(result.Windows) || len(again.Windows) == 0 {
			t.Errorf("the record holds %d rows and %d windows of %d and %d: %v", len(again.Rows), len(again.Windows), len(result.Rows), len(result.Windows), err)
		}
		if result.Verdict == nil || result.Verdict.Outcome != demo.Undecided {
			t.Errorf("two rounds were judged %v", result.Verdict)
		}
	})
}

// until calls cancel once what is written holds the text.
type until struct {
	text   string
	cancel context.CancelFunc
	seen   bytes.Buffer
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.seen.Write(p)
	if strings.Contains(u.seen.String(), u.text) {
		u.cancel()
	}
	return n, err
}

var _ io.Writer = (*until)(nil)

func TestRunCancelledLeavesNothingBehind(t *testing.T) {
	testbed.Require(t)
	testbed.Alone(t)
	for _, tt := range []struct {
		name, at string
		rows     int
	}{
		{"while calibrating", "test bed:", 0},
		{"in the second turn", "switching    low ", 3 + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tuners, started := &thresholdTuners{}, &commands{}
			options := shortOptions(t, tuners, started)
			options.Contenders = []demo.Contender{{Name: "base"}, {Name: "switching", Spec: "threshold"}}
			progress := &until{text: tt.at, cancel: cancel}
			options.Progress = progress
			// The seed has the base go first.
			options.Seed = baseFirst(t, options)
			result, err := demo.Run(ctx, options)
			t.Logf("%s", progress.seen.String())
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			assertNothingLeft(t, tuners, started)
			if len(result.Rows) != tt.rows {
				t.Errorf("%d rows, want %d", len(result.Rows), tt.rows)
			}
			if result.Run.Partial == nil || !strings.Contains(*result.Run.Partial, "interrupted") {
				t.Errorf("the result does not say that it is partial: %v", result.Run.Partial)
			}
			_, statErr := os.Stat(options.Report)
			if written := statErr == nil; written != (tt.rows > 0) {
				t.Errorf("report written: %v, with %d rows", written, tt.rows)
			}
			if tt.rows == 0 {
				return
			}
			var table bytes.Buffer
			if err := demo.WriteTable(&table, result); err != nil || !strings.Contains(table.String(), "PARTIAL RESULT: interrupted") {
				t.Errorf("the table does not say that it is partial (%v):\n%s", err, table.String())
			}
		})
	}
}

// baseFirst finds a seed by which the first contender has the first turn.
func baseFirst(t *testing.T, options demo.Options) uint64 {
	t.Helper()
	for seed := range uint64(100) {
		options.Seed = seed
		if demo.Orders(options)[0][0] == options.Contenders[0].Name {
			return seed
		}
	}
	t.Fatal("no seed of 100 has the base go first")
	return 0
}

func TestRunReportsWhatWentWrong(t *testing.T) {
	testbed.Require(t)
	testbed.Alone(t)
	broken := errors.New("broken on purpose")
	tests := []struct {
		name   string
		change func(*demo.Options, *thresholdTuners)
		want   error
		text   string
	}{
		{"a tuner that does not start", func(o *demo.Options, _ *thresholdTuners) {
			o.Contenders[1].Spec, o.Contenders[2].Spec = "novel", "novel"
		}, nil, `unknown policy "novel"`},
		{"originals that are not restored", func(_ *demo.Options, tuners *thresholdTuners) { tuners.failStop = broken }, demo.ErrNotRestored, "broken on purpose"},
		{"a client that ends", func(o *demo.Options, _ *thresholdTuners) {
			o.ClientCommand = func() *exec.Cmd { return exec.Command("/bin/false") }
		}, nil, "load client"},
		{"a server that is not there", func(o *demo.Options, _ *thresholdTuners) {
			o.ServerCommand = func() *exec.Cmd { return exec.Command("/nonexistent/server") }
		}, os.ErrNotExist, "load server"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tuners, started := &thresholdTuners{}, &commands{}
			options := shortOptions(t, tuners, started)
			tt.change(&options, tuners)
			_, err := demo.Run(t.Context(), options)
			if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
			assertNothingLeft(t, tuners, started)
		})
	}
}
