package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate/placement"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// allowedCPUs is the test's own view of where the bed's NAPI thread may run.
func allowedCPUs(t *testing.T, bed *testbed.Bed) (pid int, cpus string) {
	t.Helper()
	threads, err := bed.NAPIThreads()
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) != 1 {
		t.Fatalf("%d NAPI threads, want 1", len(threads))
	}
	thread, err := placement.Host{Procfs: "/proc"}.Thread(threads[0])
	if err != nil {
		t.Fatal(err)
	}
	return thread.TID, model.FormatCPUList(thread.CPUs)
}

func pinThread(t *testing.T, pid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until what is true, or fails the test.
func eventually(t *testing.T, b *background, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-deadline:
			_ = b.cmd.Process.Kill()
			_, stderr := b.wait()
			t.Fatalf("not within 30 s: %s\n%s\n%s", what, strings.Join(b.lines, "\n"), stderr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// steering reads or writes rps_cpus of the server's only queue.
func steering(t *testing.T, bed *testbed.Bed, set string) string {
	t.Helper()
	var text []byte
	err := bed.Server().DoWithSysfs(func() error {
		file := filepath.Join("/sys/class/net", bed.Server().Ifname, "queues/rx-0/rps_cpus")
		if set != "" {
			return os.WriteFile(file, []byte(set), 0o644)
		}
		var err error
		text, err = os.ReadFile(file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// setLink sets the server's end up or down. Unlike the bed's own flap it leaves
// the new NAPI thread where the kernel puts it.
func setLink(t *testing.T, bed *testbed.Bed, flags uint32) {
	t.Helper()
	err := bed.Server().Do(func() error {
		conn, err := rtnetlink.Dial(nil)
		if err != nil {
			return err
		}
		err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(bed.Server().Ifindex), Flags: flags, Change: unix.IFF_UP})
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAlignMovesPollsToTheApplicationAndBack(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed) // the server is on CPU 0
	load.offer(t, "load", 2000)
	thread, _ := allowedCPUs(t, bed)
	pinThread(t, thread, 1)
	steering(t, bed, "2")

	args := []string{"--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms",
		"--policy", "static:defer=50,flush=75us", bed.Server().Ifname}
	b := startRun(t, append([]string{"--placement", "align"}, args...)...)
	eventually(t, b, "the NAPI thread is where the server reads", func() bool {
		_, cpus := allowedCPUs(t, bed)
		return cpus == "0"
	})
	eventually(t, b, "packets are not steered", func() bool { return strings.Trim(steering(t, bed, ""), "0,") == "" })

	// A flap gives the instance a new thread that may run everywhere.
	setLink(t, bed, 0)
	setLink(t, bed, unix.IFF_UP)
	renewed, _ := allowedCPUs(t, bed)
	if renewed == thread {
		t.Fatalf("the link flap kept thread %d: nothing is tested", thread)
	}
	eventually(t, b, "the new NAPI thread is placed", func() bool {
		pid, cpus := allowedCPUs(t, bed)
		return pid == renewed && cpus == "0"
	})

	eventually(t, b, "the run tells of the new instance", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(strings.Join(b.lines, "\n"), `"kind":"rebind"`)
	})

	// Another writer has the last word.
	pinThread(t, renewed, 1)
	eventually(t, b, "the run yields", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(strings.Join(b.lines, "\n"), "another writer")
	})
	code, stderr := b.stop(os.Interrupt)
	if code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, cpus := allowedCPUs(t, bed); cpus != "1" {
		t.Errorf("after the run the thread is on CPU %s, want 1, where another writer put it", cpus)
	}
	if got := strings.TrimLeft(steering(t, bed, ""), "0,"); got != "2" {
		t.Errorf("after the run packets are steered to mask %q, want 2", got)
	}
}

func TestARestoreUndoesPlacementAfterAKillAtAnyInstant(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 2000)
	thread, _ := allowedCPUs(t, bed)
	pinThread(t, thread, 1)
	steering(t, bed, "1")
	where := func() map[string]string {
		_, cpus := allowedCPUs(t, bed)
		return map[string]string{"thread": cpus, "steering": steering(t, bed, "")}
	}
	originals := where()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	moved := 0
	const kills = 8
	for i := range kills {
		state := t.TempDir()
		b := startRun(t, "--apply", "--placement", "align", "--netns", bed.Server().Name, "--state", state, "--interval", "10ms",
			"--policy", "static:defer=40,flush=55us", bed.Server().Ifname)
		if i%2 == 0 {
			eventually(t, b, "the thread is moved", func() bool { return where()["thread"] == "0" })
		}
		<-time.After(time.Duration(random.Int64N(int64(700 * time.Millisecond))))
		b.stop(unix.SIGKILL)
		if diff := cmp.Diff(originals, where()); diff != "" {
			moved++
		}
		if code, stdout, stderr := call(t, "restore", "--state", state, "--json"); code != exitDone {
			t.Fatalf("seed %d, kill %d: restore: exit code %d: %s%s", seed, i, code, stdout, stderr)
		}
		if diff := cmp.Diff(originals, where()); diff != "" {
			t.Fatalf("seed %d, kill %d: after the restore (-original +now):\n%s", seed, i, diff)
		}
	}
	if moved < kills/2 {
		t.Errorf("only %d of %d kills left something moved: restore was hardly tested", moved, kills)
	}
}

func TestObservingPlacementMovesNothing(t *testing.T) {
	bed := newBed(t, 1)
	load := newLoad(t, bed)
	load.offer(t, "load", 2000)
	thread, _ := allowedCPUs(t, bed)
	pinThread(t, thread, 1)
	b := startRun(t, "--placement", "observe", "--netns", bed.Server().Name, "--interval", "50ms", "--policy", "base", bed.Server().Ifname)
	eventually(t, b, "it says what it would move", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(strings.Join(b.lines, "\n"), fmt.Sprintf("NAPI thread %d goes to CPU 0", thread))
	})
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, cpus := allowedCPUs(t, bed); cpus != "1" {
		t.Errorf("the thread is on CPU %s, want 1 as before", cpus)
	}
}
