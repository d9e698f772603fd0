package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// kills is how often the run is killed; the seed is printed with a failure.
const kills = 50

func TestRestoreUndoesARunThatWasKilledAtAnyInstant(t *testing.T) {
	bed := newBed(t, 2)
	load := newLoad(t, bed)
	load.offer(t, "load", 5000)
	k := newKernel(t, bed)
	originals := k.mark()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	tuned, claimed := 0, 0
	for i := range kills {
		state := t.TempDir()
		// A static policy writes in the first window, some 300 ms after the
		// start; a random one goes on writing.
		policy, latest := "static:defer=40,flush=55us", 600*time.Millisecond
		if i%2 == 1 {
			policy, latest = fmt.Sprintf("random:seed=%d", i), 1500*time.Millisecond
		}
		b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "10ms",
			"--slo", "10s", "--slo-quantile", "0.5", "--policy", policy, bed.Server().Ifname)
		earliest := 200 * time.Millisecond
		if i%4 == 1 {
			// Whatever the machine takes to start, some are killed while they tune.
			b.await("it was set", applied)
			earliest, latest = 0, 200*time.Millisecond
		}
		timer := time.NewTimer(earliest + time.Duration(random.Int64N(int64(latest))))
		<-timer.C
		b.stop(unix.SIGKILL)

		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			tuned++
		}
		if checkWhole(t, state) {
			claimed++
		}
		if code, stdout, stderr := call(t, "restore", "--state", state, "--json"); code != exitDone {
			t.Fatalf("seed %d, kill %d: restore: exit code %d: %s%s", seed, i, code, stdout, stderr)
		}
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			t.Fatalf("seed %d, kill %d: settings after restore (-original +now):\n%s", seed, i, diff)
		}
	}
	t.Logf("of %d kills, %d left a state and %d left tuned values", kills, claimed, tuned)
	if tuned < kills/5 {
		t.Errorf("only %d of %d kills left tuned values: restore was hardly tested", tuned, kills)
	}
}

// checkWhole fails the test when a state file is half-written, and reports
// whether there are originals to restore.
func checkWhole(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(data) {
			t.Errorf("%s is half-written: %q", e.Name(), data)
		}
		found = true
	}
	return found
}
