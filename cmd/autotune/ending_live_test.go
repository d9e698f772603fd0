package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// awaitSettings waits until the kernel has settings other than before.
func (k *kernel) awaitChange(before map[uint32]model.Settings) {
	k.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for cmp.Equal(before, k.settings()) {
		select {
		case <-tick.C:
		case <-deadline.C:
			k.t.Fatal("nothing was changed within 20 s")
		}
	}
}

// Every way to end a run, short of SIGKILL, puts the originals back.
func TestEveryEndPutsTheOriginalsBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		// end ends the run; unread is the read end of its standard output.
		end  func(t *testing.T, cmd *exec.Cmd, unread *os.File)
		code int
	}{
		{"lost terminal", signalled(unix.SIGHUP), exitDone},
		{"quit key", signalled(unix.SIGQUIT), exitDone},
		{"closed output", func(t *testing.T, _ *exec.Cmd, unread *os.File) {
			if err := unread.Close(); err != nil {
				t.Error(err)
			}
		}, exitFailed},
		{"a reader that stalls", func(t *testing.T, cmd *exec.Cmd, _ *os.File) {
			// Far more than a pipe and the outlet hold.
			timer := time.NewTimer(4 * time.Second)
			<-timer.C
			signalled(unix.SIGTERM)(t, cmd, nil)
		}, exitFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bed := newBed(t, 1)
			k := newKernel(t, bed)
			originals := k.mark()
			unread, stdout, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unread.Close() }()
			interval := "50ms"
			if strings.Contains(tc.name, "stalls") {
				interval = "10ms"
			}
			cmd := program("run", "--json", "--verbose", "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(),
				"--interval", interval, "--policy", "static:defer=40,flush=55us", bed.Server().Ifname)
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := stdout.Close(); err != nil {
				t.Fatal(err)
			}
			k.awaitChange(originals)
			tc.end(t, cmd, unread)
			timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tc.code {
				t.Errorf("ended with %v, want exit code %d: %s", cmd.ProcessState, tc.code, stderr.String())
			}
			if diff := cmp.Diff(originals, k.settings()); diff != "" {
				t.Errorf("settings after the run (-original +now):\n%s", diff)
			}
		})
	}
}

func signalled(signal unix.Signal) func(*testing.T, *exec.Cmd, *os.File) {
	return func(t *testing.T, cmd *exec.Cmd, _ *os.File) {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Error(err)
		}
	}
}

func TestAnInterfaceThatIsDownDoesNotStopTheOthers(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	if out, err := exec.Command("ip", "-n", bed.Server().Name, "link", "add", "down0", "type", "veth", "peer", "name", "down1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "50ms",
		"--policy", "static:defer=40,flush=55us", bed.Server().Ifname, "down0")
	b.await("the one that is up was set", applied)
	code, stderr := b.stop(os.Interrupt)
	if code != exitDone || !strings.Contains(stderr, "left out for now") {
		t.Errorf("exit code %d, want %d and a word about down0: %s", code, exitDone, stderr)
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-original +now):\n%s", diff)
	}
}

func TestAChangedAddressDoesNotHideTheDevice(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	run := func(state string) *background {
		b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", state, "--interval", "50ms",
			"--policy", "static:defer=40,flush=55us", bed.Server().Ifname)
		b.await("it was set", applied)
		return b
	}
	change := func(n int) {
		t.Helper()
		address := fmt.Sprintf("02:00:00:00:00:%02d", n)
		if out, err := exec.Command("ip", "-n", bed.Server().Name, "link", "set", bed.Server().Ifname, "address", address).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	check := func(after string) {
		t.Helper()
		if diff := cmp.Diff(originals, k.settings()); diff != "" {
			t.Errorf("settings after %s (-original +now):\n%s", after, diff)
		}
	}

	b := run(t.TempDir())
	change(1)
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	check("Ctrl-C")

	state := t.TempDir()
	b = run(state)
	change(2)
	b.stop(unix.SIGKILL)
	if code, _, stderr := call(t, "restore", "--state", state); code != exitDone {
		t.Errorf("restore: exit code %d: %s", code, stderr)
	}
	check("restore")

	b = run(t.TempDir())
	change(3)
	b.stop(unix.SIGKILL)
	b = run(t.TempDir())
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	check("a second run")
}
