//go:build linux

package testbed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"autotune/experiments/testbed"
)

// ownerVariable makes the test binary build a bed, tell what it made, and
// wait to be killed.
const ownerVariable = "AUTOTUNE_TEST_BED_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		os.Exit(ownBed())
	}
	os.Exit(m.Run())
}

func ownBed() int {
	bed, err := testbed.New(context.Background(), testbed.Options{Prefix: "killed", Queues: 2, Threaded: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	child := exec.Command("sleep", "60")
	if err := bed.Server().Start(child); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	threads, err := bed.NAPIThreads()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(bed.Server().Name, bed.Client().Name, child.Process.Pid, threads[0])
	_ = child.Wait()
	return 1
}

func TestBedOfAKilledOwnerIsSwept(t *testing.T) {
	testbed.Require(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(executable)
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Process.Kill() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read what the owner made: %v", err)
	}
	fields := strings.Fields(line)
	if len(fields) != 4 {
		t.Fatalf("the owner said %q, want 4 words", line)
	}
	names := fields[:2]
	child, err := strconv.Atoi(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	thread, err := strconv.Atoi(fields[3])
	if err != nil {
		t.Fatal(err)
	}

	if _, err := testbed.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := beds(t, "killed"); !slices.Equal(sorted(got), sorted(names)) {
		t.Fatalf("beds %v while the owner runs, want %v left alone", got, names)
	}

	// The owner stays a zombie until it is waited for, which must not keep
	// its bed.
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var removed []string
	eventually(t, "both namespaces swept", func() bool {
		more, err := testbed.Sweep()
		if err != nil {
			t.Fatal(err)
		}
		removed = append(removed, more...)
		return len(beds(t, "killed")) == 0
	})
	if !slices.Equal(sorted(removed), sorted(names)) {
		t.Errorf("swept %v, want %v", removed, names)
	}
	for what, pid := range map[string]int{"child of the owner": child, "NAPI thread": thread} {
		eventually(t, what+" gone", func() bool { return ended(pid) })
	}
	_ = owner.Wait()
}

func TestNamesThatAreNotOursAreLeftAlone(t *testing.T) {
	testbed.Require(t)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	const name = "/run/netns/autotune-notabed"
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(name) }()
	if _, err := testbed.Sweep(); err != nil {
		t.Fatal(err)
	}
	if !exists(name) {
		t.Errorf("Sweep removed %s", name)
	}
}

func TestNameWithoutANamespaceIsSwept(t *testing.T) {
	testbed.Require(t)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	// Process 1 did not start at that time: its ID was used again.
	const name = "/run/netns/autotune-unbound-1-18446744073709551615-00000000-server"
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(name) }()
	if _, err := testbed.Sweep(); err != nil {
		t.Fatal(err)
	}
	if exists(name) {
		t.Errorf("%s was left", name)
	}
}

// ended reports whether a process is gone or a zombie.
func ended(pid int) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}
