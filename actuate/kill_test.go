package actuate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/model"
)

// childMode makes the test binary a process that the tests can kill.
const childMode = "ACTUATE_TEST_CHILD"

func TestMain(m *testing.M) {
	mode, ok := os.LookupEnv(childMode)
	if !ok {
		os.Exit(m.Run())
	}
	if err := runChild(mode); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares the test binary to run as another process. It is copied where
// any user may run it.
func child(t *testing.T, mode string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "actuate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "child")
	if err := errors.Join(os.WriteFile(binary, data, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	return cmd
}

func runChild(mode string) error {
	switch mode {
	case "check":
		return json.NewEncoder(os.Stdout).Encode(actuate.Check(context.Background()))
	case "apply":
		return applyForever(actuate.Live{}, os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	case "apply device-wide":
		return applyForever(old{}, os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	case "hold contexts":
		return holdContexts()
	case "set contexts":
		return setContextsForever(os.Args[1], os.Args[2], os.Args[3:])
	default:
		return fmt.Errorf("unknown mode %q", mode)
	}
}

// applyForever changes all knobs of all queues as fast as it can.
func applyForever(system actuate.System, namespace, ifname, stateDir, runDir string) error {
	h, err := actuate.Open(context.Background(), actuate.Options{
		System: system, Namespace: actuate.NamespaceRef{Name: namespace}, Ifaces: []string{ifname}, StateDir: stateDir, RunDir: runDir,
	})
	if err != nil {
		return err
	}
	fmt.Println("open")
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for turn := 0; ; turn++ {
		want := model.Config{}
		var one model.Settings
		for q := range h.Originals() {
			if h.Scope() == actuate.ScopeNAPI || one == (model.Settings{}) {
				one = model.Settings{
					DeferHardIRQs:     rng.Uint32N(model.MaxDeferHardIRQs),
					GROFlushTimeout:   time.Duration(rng.Int64N(int64(10 * time.Millisecond))),
					IRQSuspendTimeout: time.Duration(rng.Int64N(2)) * time.Duration(rng.Int64N(int64(time.Second))),
				}
			}
			if h.Scope() == actuate.ScopeDevice {
				one.IRQSuspendTimeout = 0
			}
			want[q] = one
		}
		if _, err := h.Apply(context.Background(), want); err != nil {
			return err
		}
		if turn == 0 {
			fmt.Println("applied")
		}
	}
}

// TestLiveKillAtRandomInstants kills a process that applies in a loop, 50
// times, and restores: by the command's own function, or by the next process,
// which has another state directory every other time.
func TestLiveKillAtRandomInstants(t *testing.T) {
	b := bed(t, 2)
	for i, n := range instances(t, b) {
		writeNAPI(t, b, n.ID, model.Settings{DeferHardIRQs: uint32(5 + i), GROFlushTimeout: 7919, IRQSuspendTimeout: time.Duration(i) * 104729})
	}
	originals := present(t, b)
	root := t.TempDir()
	runDir := filepath.Join(root, "run")
	template := child(t, "apply")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	changed := 0
	for round := range 50 {
		stateDir := filepath.Join(root, fmt.Sprintf("state%d", round%2))
		cmd := exec.Command(template.Path, b.Server().Name, b.Server().Ifname, stateDir, runDir)
		cmd.Env = template.Env
		// Half of them in the middle of the loop, the others while it starts.
		after := [4]string{"applied", "open", "applied", ""}[round%4]
		killAt(t, cmd, after, time.Duration(rng.Int64N(int64(25*time.Millisecond))))

		for _, dir := range []string{"state0", "state1"} {
			if _, err := actuate.LoadState(filepath.Join(root, dir)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if diffs(originals, present(t, b)) {
			changed++
		}
		if rng.IntN(3) == 0 && round < 49 {
			continue // the next process has to restore, and finds the originals
		}
		for _, dir := range []string{"state0", "state1"} {
			report, err := actuate.Restore(context.Background(), filepath.Join(root, dir), runDir)
			if err != nil || !report.Settled {
				t.Fatalf("round %d: restore %s: %v\n%s", round, dir, err, report)
			}
		}
		wantConfig(t, fmt.Sprintf("round %d", round), originals, present(t, b))
		if t.Failed() {
			return
		}
	}
	if changed < 20 {
		t.Errorf("only %d of 50 kills left something to restore: this proves little", changed)
	}
	t.Logf("%d of 50 kills left something to restore", changed)
}

func diffs(a, b model.Config) bool {
	for q, s := range a {
		if b[q] != s {
			return true
		}
	}
	return false
}

// killAt starts cmd and kills it after a delay from the moment that it says a
// word, or from its start for no word.
func killAt(t *testing.T, cmd *exec.Cmd, word string, delay time.Duration) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for word != "" && lines.Scan() && lines.Text() != word {
	}
	<-time.After(delay)
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("kill: %v", err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the child ended by itself: %v: %s", err, stderr.String())
	}
}
