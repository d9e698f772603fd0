package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
)

// ErrCannotRun is wrapped where the machine lacks what a run needs.
var ErrCannotRun = errors.New("the demo cannot run here")

// ErrNotRestored is wrapped where a tuner could not put the originals back.
// The test bed, and the settings with it, are removed all the same.
var ErrNotRestored = errors.New("the originals were not restored")

// stopWait bounds how long ending something may take once a run is over.
const stopWait = 10 * time.Second

// Run makes a test bed, fixes the SLO by the base alone, lets the contenders
// take turns, and judges. Progress and the report are written on the way; the
// table is for the caller to write ([WriteTable]).
//
// Where ctx ends first, the error wraps its cause and the result holds what
// was complete until then, marked as partial; the report is written for it
// too. In any case settings are restored, processes have ended and the bed is
// removed when Run returns.
func Run(ctx context.Context, options Options) (Result, error) {
	options, err := options.withDefaults()
	if err != nil {
		return Result{}, err
	}
	machine, err := thisMachine()
	if err != nil {
		return Result{}, err
	}
	e := &experiment{
		options:  options,
		progress: &progress{w: options.Progress, terminal: options.Terminal},
		started:  time.Now(),
		result: Result{Run: RunInfo{
			Started: time.Now().UTC().Truncate(time.Second), Machine: machine, Seed: options.Seed,
			Contenders: options.Contenders, Judged: options.Judged, Phases: options.Phases,
			Rounds: options.Rounds, Window: options.Window, Quick: options.Quick,
			Orders: orders(options), Parameters: options.Parameters, Server: serverInfo(options.Program),
		}},
	}
	runErr := e.run(ctx)
	e.progress.end()
	e.result.Run.Took = time.Since(e.started)
	// What goes wrong at the end, when all was measured, does not make the
	// result less than whole.
	if runErr != nil && len(e.result.Rows) < e.phases() {
		why := "failed: " + strings.ReplaceAll(runErr.Error(), "\n", "; ")
		if ctx.Err() != nil {
			why = fmt.Sprintf("interrupted after %v, with %d of %d phases complete", e.result.Run.Took.Round(time.Second), len(e.result.Rows), e.phases())
		}
		e.result.Run.Partial = &why
	}
	e.result.judge()
	if len(e.result.Rows) == 0 || options.Report == "" {
		return e.result, runErr
	}
	return e.result, errors.Join(runErr, e.write())
}

// orders draws the contenders' order for each round, never twice the same in
// a row.
func orders(options Options) [][]string {
	random := rand.New(rand.NewPCG(options.Seed, 0x6f72646572))
	var out [][]string
	for range options.Rounds {
		var order []string
		for {
			order = order[:0:0]
			for _, i := range random.Perm(len(options.Contenders)) {
				order = append(order, options.Contenders[i].Name)
			}
			if len(out) == 0 || !slices.Equal(order, out[len(out)-1]) {
				break
			}
		}
		out = append(out, order)
	}
	return out
}

// experiment is a run under way.
type experiment struct {
	options  Options
	progress *progress
	started  time.Time
	result   Result

	bed     *testbed.Bed
	server  server
	client  *workload.Client
	threads []int
	meter   *meter
	// found is what the queues were set to before anything was tuned.
	found model.Config

	// clock guards what the time left is estimated from.
	clock     sync.Mutex
	turns     int
	turnsTook time.Duration
	turnBegan time.Time
}

// run owns what must be undone. Everything is made with a context that
// outlives ctx: the end of ctx stops the load, and then things end in order.
func (e *experiment) run(ctx context.Context) (err error) {
	lasting := context.WithoutCancel(ctx)
	if e.options.Program != nil {
		if err := e.options.Program.Available(); err != nil {
			return fmt.Errorf("%w: %w", ErrCannotRun, err)
		}
	}
	serverCPU, clientCPU, err := twoCPUs()
	if err != nil {
		return err
	}
	e.bed, err = testbed.New(lasting, testbed.Options{
		Prefix: "demo", Threaded: true, Realtime: e.options.Program != nil && e.options.Program.Realtime, ServerCPU: serverCPU, ClientCPU: clientCPU,
	})
	if err != nil {
		return fmt.Errorf("make the test bed: %w", err)
	}
	defer func() {
		if closeErr := e.bed.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove the test bed: %w", closeErr))
		}
	}()
	e.threads, err = e.bed.NAPIThreads()
	if err != nil {
		return fmt.Errorf("find the NAPI's thread: %w", err)
	}
	if len(e.threads) == 0 {
		return fmt.Errorf("%w: the NAPI of %s has no thread, whose CPU time is part of the measure", ErrCannotRun, e.bed.Server().Ifname)
	}

	e.server, err = e.startServer(lasting, serverCPU, clientCPU)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(lasting, stopWait)
		defer cancel()
		err = errors.Join(err, e.server.Stop(stop))
	}()
	e.meter = newMeter(e.server.PID(), e.threads, serverCPU)

	client := e.options.Client
	client.Addr = e.server.Addr()
	client.CPU, client.RuntimeCPU, client.Interval = clientCPU, clientCPU, e.options.Window
	client.Seed = e.options.Seed
	if e.options.Program != nil {
		client.Exchange = &e.options.Program.Exchange
	}
	e.client, err = workload.StartClient(lasting, workload.Launch{Command: apart(e.options.ClientCommand()), Start: e.bed.Client().Start}, client, e.meter.interval)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(lasting, stopWait)
		defer cancel()
		_, stopErr := e.client.Stop(stop)
		err = errors.Join(err, stopErr)
	}()
	e.result.Run.Nice = loadNice
	if err := prioritise(slices.Concat([]int{e.server.PID(), e.client.PID()}, e.threads)...); err != nil {
		// It only helps against noise.
		e.result.Run.Nice = 0
		e.progress.done("other processes can disturb the load: %v", err)
	}
	e.progress.done("test bed: veth %s, NAPI thread and server on CPU %d, client on CPU %d", e.bed.Server().Ifname, serverCPU, clientCPU)

	if err := e.calibrate(ctx); err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	for i, order := range e.result.Run.Orders {
		for turn, name := range order {
			at := slices.IndexFunc(e.options.Contenders, func(c Contender) bool { return c.Name == name })
			e.clock.Lock()
			e.turnBegan = time.Now()
			e.clock.Unlock()
			if err := e.turn(ctx, i+1, turn+1, e.options.Contenders[at]); err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, name, err)
			}
			e.clock.Lock()
			e.turns++
			e.turnsTook += time.Since(e.turnBegan)
			e.clock.Unlock()
		}
	}
	return nil
}

// request says what every tuner of this run is to tune.
func (e *experiment) request(c Contender, objective model.Objective, o *observation) TuningRequest {
	server := e.bed.Server()
	return TuningRequest{
		Contender: c.Name, Spec: c.Spec, Objective: objective, Window: e.options.Window,
		Netns: server.Path, Ifname: server.Ifname, Ifindex: server.Ifindex, ServerPID: e.server.PID(),
		Steer:   e.options.Program != nil,
		Observe: o.take,
	}
}

// tuned runs fn while the contender's tuner is at work, and stops the tuner
// whatever happens.
func (e *experiment) tuned(ctx context.Context, c Contender, objective model.Objective, o *observation, fn func() error) (err error) {
	lasting := context.WithoutCancel(ctx)
	tuning, err := e.options.Tuners.Start(lasting, e.request(c, objective, o))
	if err != nil {
		return fmt.Errorf("start the tuner: %w", err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(lasting, stopWait)
		defer cancel()
		if stopErr := tuning.Stop(stop); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrNotRestored, stopErr))
		}
	}()
	return fn()
}

// idle is the phase between turns, which offers no load.
const idle = "idle"

// phases is the number of phases in the whole run.
func (e *experiment) phases() int {
	return len(e.options.Phases) * len(e.options.Contenders) * e.options.Rounds
}

// left estimates the time to the end by the turns that are to come and the
// time that turns have taken so far.
func (e *experiment) left() time.Duration {
	e.clock.Lock()
	defer e.clock.Unlock()
	var turn time.Duration
	for _, p := range e.options.Phases {
		turn += p.Duration
	}
	if e.turns > 0 {
		turn = e.turnsTook / time.Duration(e.turns)
	}
	all := len(e.options.Contenders) * e.options.Rounds
	return turn*time.Duration(all-e.turns) - time.Since(e.turnBegan)
}

// write keeps report and record.
func (e *experiment) write() error {
	if err := writeFile(e.options.Report, func(f *os.File) error { return WriteReport(f, e.result) }); err != nil {
		return err
	}
	return writeFile(RecordPath(e.options.Report), func(f *os.File) error { return WriteRecord(f, e.result) })
}

// RecordPath returns where the record of a report is kept: beside it, with the
// extension .jsonl.
func RecordPath(report string) string {
	return strings.TrimSuffix(report, filepath.Ext(report)) + ".jsonl"
}

func writeFile(path string, write func(*os.File) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
