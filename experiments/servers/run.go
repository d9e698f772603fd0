package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/probe/trace"
)

// ErrCannotRun is wrapped where this host lacks something that the experiment
// needs.
var ErrCannotRun = errors.New("cannot run here")

// Contender is one way to treat a server.
type Contender struct {
	Name string
	// Policy is the spec that autotune run applies; empty runs nothing. Apps
	// tells that the server is named with --apps.
	Policy string
	Apps   bool
}

// Contenders returns the three that are compared: the first is the reference.
func Contenders() []Contender {
	return []Contender{
		{Name: "untouched"},
		{Name: "deferral", Policy: "static:case=defer50"},
		{Name: "suspension", Policy: "static:case=suspend50", Apps: true},
	}
}

// Options says what to measure.
type Options struct {
	Programs []Program
	// Rounds is how often each contender takes its turn; 5 or more for
	// intervals.
	Rounds int
	// Settle and Span are the times before and of a measurement.
	Settle, Span time.Duration
	Seed         uint64
	// Self is the path of autotune.
	Self string
	// Client returns the command of the load client.
	Client func() *exec.Cmd
	// Progress is told what goes on, a line at a time.
	Progress func(format string, args ...any)
}

// Row is one contender's turn.
type Row struct {
	Program   string `json:"program"`
	Contender string `json:"contender"`
	Round     int    `json:"round"`
	// Rate is 0 where each connection asked as soon as it was answered.
	Rate     float64 `json:"offered_per_s"`
	Achieved float64 `json:"achieved_per_s"`
	// P50Us to P99Us are the client's, without requests that overlap a
	// scheduling gap; Excluded is the share of those.
	P50Us    float64 `json:"p50_us"`
	P90Us    float64 `json:"p90_us"`
	P99Us    float64 `json:"p99_us"`
	Excluded float64 `json:"excluded_share"`
	// CPUPerRequestUs is that of the server and the NAPI thread.
	CPUPerRequestUs float64 `json:"cpu_per_request_us"`
	// BusyShare is the share of packets that the application polled itself,
	// and Expired how often the suspend timeout ended; null where nothing
	// watched.
	BusyShare *float64 `json:"application_polled_share"`
	Expired   *uint64  `json:"suspensions_expired"`
	// Advice was given before the first round.
	Advice Advice `json:"advice"`
}

const serverCPU, clientCPU = 0, 1

// Run measures every program, one after the other. The rows that were complete
// are returned also with an error.
func Run(ctx context.Context, o Options) (rows []Row, err error) {
	for _, p := range o.Programs {
		got, err := o.program(ctx, p)
		rows = append(rows, got...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return rows, nil
}

// program measures one server in a bed of its own.
func (o Options) program(ctx context.Context, p Program) (rows []Row, err error) {
	if err := p.Available(); err != nil {
		return nil, err
	}
	bed, err := testbed.New(ctx, testbed.Options{Prefix: "applications", Threaded: true, Realtime: p.Realtime, ServerCPU: serverCPU, ClientCPU: clientCPU})
	if err != nil {
		return nil, fmt.Errorf("%w: make a test bed: %w", ErrCannotRun, err)
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	dir, err := os.MkdirTemp("", "autotune-applications-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := Start(ctx, bed, p, serverCPU)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopErr := server.Stop(context.WithoutCancel(ctx))
		if stopErr == nil {
			err = server.explain(err)
		}
		err = errors.Join(err, stopErr)
	}()
	client, err := workload.StartClient(ctx, workload.Launch{Command: o.Client(), Start: bed.Client().Start}, workload.ClientConfig{
		Addr: server.Addr(), CPU: clientCPU, RuntimeCPU: clientCPU, Connections: p.Connections, Nice: -10, Seed: o.Seed, Exchange: &p.Exchange,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("start the client: %w", err)
	}
	if _, err := client.Phase(ctx, p.phase("advice", true)); err != nil {
		return nil, err
	}
	if err := sleep(ctx, o.Settle); err != nil {
		return nil, err
	}
	advice, err := o.advise(ctx, server.PID())
	if err != nil {
		return nil, err
	}
	contenders := Contenders()
	for round := range o.Rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			o.Progress("%s%s, round %d of %d: %s", p.Name, p.load(), round+1, o.Rounds, c.Name)
			t := turn{Options: o, bed: bed, client: client, program: p, pid: server.PID(), contender: c, round: round, dir: dir}
			row, err := t.run(ctx)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", c.Name, err)
			}
			row.Advice = advice
			rows = append(rows, row)
		}
	}
	_, err = client.Stop(ctx)
	return rows, err
}

// turn is one contender's measurement.
type turn struct {
	Options
	bed       *testbed.Bed
	client    *workload.Client
	program   Program
	pid       int
	contender Contender
	round     int
	dir       string
}

func (t *turn) run(ctx context.Context) (row Row, err error) {
	row = Row{Program: t.program.Name, Contender: t.contender.Name, Round: t.round, Rate: t.program.Rate}
	name := fmt.Sprintf("%s %d", t.contender.Name, t.round)
	// The tuner takes a queue that carries traffic: of an application that
	// receives nothing it cannot tell that it receives there.
	if _, err := t.client.Phase(ctx, t.program.phase("before "+name, true)); err != nil {
		return row, err
	}
	var tuner *tuning
	if t.contender.Policy != "" {
		if tuner, err = t.tune(ctx); err != nil {
			return row, err
		}
		defer func() {
			if tuner != nil {
				err = errors.Join(err, tuner.stop())
			}
		}()
	}
	if err := sleep(ctx, t.Settle); err != nil {
		return row, err
	}
	before, err := t.cpu()
	if err != nil {
		return row, err
	}
	if _, err := t.client.Phase(ctx, t.program.phase(name, false)); err != nil {
		return row, err
	}
	if err := sleep(ctx, t.Span); err != nil {
		return row, err
	}
	after, err := t.cpu()
	if err != nil {
		return row, err
	}
	if _, err := t.client.Phase(ctx, workload.Phase{Name: "after " + name}); err != nil {
		return row, err
	}
	if tuner != nil {
		ended := tuner
		tuner = nil
		if err := ended.stop(); err != nil {
			return row, err
		}
		if err := ended.watched(&row); err != nil {
			return row, err
		}
	}
	sum := workload.Summarize(t.client.Intervals(), name)
	if sum.Completed == 0 {
		return row, errors.New("no request was answered")
	}
	us := func(q float64) float64 { return float64(sum.Latency.Quantile(q)) / 1e3 }
	row.Achieved, row.P50Us, row.P90Us, row.P99Us = sum.AchievedRate, us(0.5), us(0.9), us(0.99)
	row.Excluded = float64(sum.Excluded) / float64(sum.Completed)
	row.CPUPerRequestUs = float64(after-before) / 1e3 / float64(sum.Completed)
	return row, nil
}

// cpu returns the CPU time of server and NAPI thread.
func (t *turn) cpu() (time.Duration, error) {
	threads, err := t.bed.NAPIThreads()
	if err != nil {
		return 0, err
	}
	return workload.CPUTime(append(threads, t.pid)...)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tuning is an autotune run.
type tuning struct {
	cmd   *exec.Cmd
	trace string
	said  *bytes.Buffer
}

// tune starts autotune run as a user would, and returns once it has applied the
// policy.
func (t *turn) tune(ctx context.Context) (*tuning, error) {
	file := filepath.Join(t.dir, fmt.Sprintf("%s-%d.trace.zst", t.contender.Name, t.round))
	args := []string{
		"run", t.bed.Server().Ifname, "--netns", t.bed.Server().Path, "--apply", "--json", "--policy", t.contender.Policy,
		"--interval", "250ms", "--state", filepath.Join(t.dir, "state"), "--trace", file,
	}
	if t.contender.Apps {
		args = append(args, "--apps", fmt.Sprintf("pid=%d", t.pid))
	}
	run := &tuning{cmd: exec.CommandContext(ctx, t.Self, args...), trace: file, said: new(bytes.Buffer)}
	run.cmd.Stderr = run.said
	run.cmd.Cancel = func() error { return run.cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := run.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := run.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", t.Self, err)
	}
	if err := applied(stdout); err != nil {
		return nil, errors.Join(fmt.Errorf("autotune %s: %w; it said: %.500s", strings.Join(args, " "), err, run.said), run.stop())
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return run, nil
}

// applied reads the decisions of a run until one was applied.
func applied(stdout io.Reader) error {
	why := "nothing"
	scan := bufio.NewScanner(stdout)
	for n := 0; scan.Scan() && n < 100; n++ {
		var line struct {
			Verdict string `json:"verdict"`
			Why     string `json:"why"`
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			return fmt.Errorf("line %.100q: %w", scan.Bytes(), err)
		}
		if line.Verdict == "applied" {
			return nil
		}
		why = line.Verdict + ": " + line.Why
	}
	return fmt.Errorf("it did not apply the policy, the last decision was %q (%w)", why, errors.Join(scan.Err()))
}

func (r *tuning) stop() error {
	_ = r.cmd.Process.Signal(os.Interrupt)
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("autotune run: %w; it said: %.500s", err, r.said)
	}
	return nil
}

// watched fills in what the run's probes saw.
func (r *tuning) watched(row *Row) (err error) {
	reader, err := trace.Open(r.trace, trace.ReaderOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close(), os.Remove(r.trace)) }()
	var busy, all, expired uint64
	for n := 0; ; n++ {
		s, err := reader.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n < 2 {
			continue // before the policy was applied
		}
		for i := range s.Queues {
			q := &s.Queues[i]
			busy += q.Busy.Packets
			all += q.Polls().Packets
			if q.Suspension != nil {
				expired += q.Suspension.Expired
			}
		}
	}
	if all > 0 {
		share := float64(busy) / float64(all)
		row.BusyShare, row.Expired = &share, &expired
	}
	return nil
}
