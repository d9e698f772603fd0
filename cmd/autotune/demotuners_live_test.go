package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"autotune/actuate/busypoll"
	"autotune/experiments/demo"
	"autotune/experiments/servers"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
	"autotune/tuner"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// contextWatch looks at the server's epoll contexts before, during and after
// every turn, past the tuners that it passes everything on to.
type contextWatch struct {
	demo.Tuners
	// preferred is called, from the tuner, when a context prefers busy polling.
	preferred func()

	mu    sync.Mutex
	pid   int
	turns []*watchedTurn
}

type watchedTurn struct {
	demo.Tuning
	watch         *contextWatch
	contender     string
	before, after map[int]busypoll.Params
	// samples were taken, and in preferring of them a context preferred busy
	// polling.
	samples, preferring int
}

func (w *contextWatch) Start(ctx context.Context, r demo.TuningRequest) (demo.Tuning, error) {
	before, err := readContexts(r.ServerPID)
	if err != nil {
		return nil, err
	}
	turn := &watchedTurn{watch: w, contender: r.Contender, before: before}
	w.mu.Lock()
	w.pid, w.turns = r.ServerPID, append(w.turns, turn)
	w.mu.Unlock()
	observe := r.Observe
	r.Observe = func(s model.Sample, entries []tuner.Entry) {
		observe(s, entries)
		now, err := readContexts(r.ServerPID)
		w.mu.Lock()
		defer w.mu.Unlock()
		turn.samples++
		if err == nil && preferring(now) > 0 {
			turn.preferring++
			w.preferred()
		}
	}
	turn.Tuning, err = w.Tuners.Start(ctx, r)
	return turn, err
}

func (t *watchedTurn) Stop(ctx context.Context) error {
	err := t.Tuning.Stop(ctx)
	after, readErr := readContexts(t.watch.pid)
	t.after = after
	return errors.Join(err, readErr)
}

// readContexts is contextsOf for any goroutine.
func readContexts(pid int) (map[int]busypoll.Params, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	out := map[int]busypoll.Params{}
	for _, entry := range fds {
		var fd int
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name()))
		if _, scanErr := fmt.Sscan(entry.Name(), &fd); err != nil || scanErr != nil || target != "anon_inode:[eventpoll]" {
			continue
		}
		if out[fd], err = (busypoll.Live{}).Get(busypoll.Handle{PID: pid, FD: fd, Kind: busypoll.KindEpoll}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// judgeMemcached runs one round of base and suspension on memcached, light and
// with a client that sleeps, so that it can share a machine. It can be
// interrupted as soon as a context prefers busy polling.
func judgeMemcached(t testing.TB, interrupt bool) (demo.Result, *contextWatch, error) {
	t.Helper()
	requireMemcached(t)
	testbed.Require(t)
	testbed.Alone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	preferred := func() {}
	if interrupt {
		preferred = cancel
	}
	memcached := servers.Programs("")[0]
	watch := &contextWatch{Tuners: newDemoTuners(t.TempDir(), t.Output()), preferred: preferred}
	result, err := demo.Run(ctx, demo.Options{
		Program:    &memcached,
		Contenders: []demo.Contender{{Name: "base"}, {Name: "suspension", Spec: "static:case=suspend50"}},
		Phases: []demo.Phase{
			{Name: "low", Load: demo.LoadLow, Rate: 2000, Duration: 2000 * time.Millisecond},
			{Name: "high", Load: demo.LoadHigh, Rate: 15000, Duration: 2500 * time.Millisecond},
		},
		Rounds: 1, Calibration: time.Second, Client: workload.ClientConfig{Sleep: true}, Progress: t.Output(), Tuners: watch,
		ClientCommand: func() *exec.Cmd { return program("experiment", "client") },
	})
	if watch.pid == 0 {
		t.Fatalf("nothing was tuned: %v", err)
	}
	if killErr := unix.Kill(watch.pid, 0); !errors.Is(killErr, unix.ESRCH) {
		t.Errorf("memcached, process %d, still runs: %v", watch.pid, killErr)
	}
	for _, turn := range watch.turns {
		if len(turn.before) == 0 {
			t.Errorf("%s: memcached has no epoll context", turn.contender)
		}
		if diff := cmp.Diff(turn.before, turn.after); diff != "" {
			t.Errorf("%s: contexts after the turn (-before +after):\n%s", turn.contender, diff)
		}
	}
	return result, watch, err
}

func TestTheJudgeSteersMemcachedInATurnThatSuspendsAndPutsItBack(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		result, watch, err := judgeMemcached(t, false)
		if err != nil {
			t.Fatal(err)
		}
		if !result.Run.Server.Steered || result.Run.Server.GapsLogged || result.Run.Server.Name != "memcached" {
			t.Errorf("the record's server is %+v", result.Run.Server)
		}
		steered := 0
		for _, turn := range watch.turns {
			if turn.contender == "base" && turn.preferring > 0 {
				t.Errorf("contexts prefer busy polling in %d of %d samples of the base", turn.preferring, turn.samples)
			}
			if turn.contender == "suspension" {
				steered += turn.preferring
			}
		}
		if steered == 0 {
			t.Error("no context preferred busy polling in the turn that suspends")
		}
		polls := map[string]uint64{}
		for _, r := range result.Rows {
			if r.ApplicationPolls == nil || r.Requests == 0 || r.CPUPerRequest == nil {
				t.Errorf("%s, %s: something is not measured: %+v", r.Contender, r.Phase, r)
				continue
			}
			polls[r.Contender] += *r.ApplicationPolls
		}
		if polls["base"] != 0 || polls["suspension"] == 0 {
			t.Errorf("polls by the application: %v, want none of the base and some with suspension", polls)
		}
	})
}

func TestTheJudgeInterruptedWhileMemcachedIsSteeredPutsItBack(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		_, watch, err := judgeMemcached(t, true)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if last := watch.turns[len(watch.turns)-1]; last.preferring == 0 {
			t.Errorf("%s was interrupted before a context was steered", last.contender)
		}
	})
}
