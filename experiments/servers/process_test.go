package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"autotune/experiments/testbed"
)

// named returns the program of that name.
func named(t *testing.T, name string) Program {
	t.Helper()
	for _, p := range Programs("/proc/self/exe") {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no program %q", name)
	return Program{}
}

func TestAProgramThatIsMissingSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, want := range map[string]string{
		"memcached": "apt-get install memcached", "redis": "apt-get install redis-server", "nginx": "apt-get install nginx-light",
	} {
		if err := named(t, name).Available(); !errors.Is(err, ErrCannotRun) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrCannotRun with %q", name, err, want)
		}
	}
	if err := named(t, "net/http").Available(); err != nil {
		t.Errorf("net/http comes with the program, but %v", err)
	}
}

// liveBed makes a bed for a program that CI has.
func liveBed(t *testing.T, p Program) *testbed.Bed {
	t.Helper()
	testbed.Require(t)
	if err := p.Available(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	bed, err := testbed.New(context.WithoutCancel(t.Context()), testbed.Options{Prefix: "servers", Threaded: true, Realtime: true, ClientCPU: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

func TestAProcessIsRealTimeOnItsCPUAndLeavesNothing(t *testing.T) {
	program := named(t, "memcached")
	bed := liveBed(t, program)
	p, err := Start(t.Context(), bed, program, serverCPU)
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(p.PID(), &set); err != nil || set.Count() != 1 || !set.IsSet(serverCPU) {
		t.Errorf("affinity %v, %v", set, err)
	}
	attr, err := unix.SchedGetAttr(p.PID(), 0)
	if err != nil || attr.Policy != unix.SCHED_FIFO {
		t.Errorf("scheduling %+v, %v", attr, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil || !strings.Contains(string(status), "Uid:\t0\t0\t0\t0\n") {
		t.Errorf("it changed its user, and so outlives whoever started it: %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := unix.Kill(p.PID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process still runs: %v", err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestAProcessThatEndsByItselfIsAnError(t *testing.T) {
	program := named(t, "memcached")
	bed := liveBed(t, program)
	p, err := Start(t.Context(), bed, program, serverCPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "ended unasked: signal: killed") {
		t.Errorf("stop: got %v", err)
	}
}
