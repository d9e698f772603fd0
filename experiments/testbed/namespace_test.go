//go:build linux

package testbed_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"autotune/experiments/testbed"
)

func ownNamespace(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestDoRunsInsideAndLeavesNothingInside(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "inside"})
	outside := ownNamespace(t)
	// Many at once, so that thread reuse would show.
	var group sync.WaitGroup
	for i := range 64 {
		ns := []*testbed.Namespace{bed.Server(), bed.Client()}[i%2]
		group.Go(func() {
			err := ns.Do(func() error {
				if got, want := ownNamespace(t), fmt.Sprintf("net:[%d]", ns.Inode); got != want {
					return fmt.Errorf("inside %s: in %s, want %s", ns.Name, got, want)
				}
				_, err := net.InterfaceByName(ns.Ifname)
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if got := ownNamespace(t); got != outside {
				t.Errorf("after Do: in %s, want %s", got, outside)
			}
		})
	}
	group.Wait()
	for _, ns := range []*testbed.Namespace{bed.Server(), bed.Client()} {
		eventually(t, "no thread left in "+ns.Name, func() bool { return threadsIn(t, ns.Inode) == 0 })
	}
}

func TestSysfsIsTheNamespacesOwn(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "sysfs", Threaded: true})
	err := bed.Server().DoWithSysfs(func() error {
		data, err := os.ReadFile("/sys/class/net/server0/threaded")
		if err == nil && strings.TrimSpace(string(data)) != "1" {
			err = fmt.Errorf("threaded is %q, want 1", data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if exists("/sys/class/net/server0") {
		t.Error("the host's sysfs shows the bed's interface")
	}
}

func TestStartedProcessIsInsideAndEndsWithTheBed(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "start"})
	var out bytes.Buffer
	short := exec.Command("readlink", "/proc/self/ns/net")
	short.Stdout = &out
	if err := bed.Client().Start(short); err != nil {
		t.Fatal(err)
	}
	if err := short.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(out.String()), fmt.Sprintf("net:[%d]", bed.Client().Inode); got != want {
		t.Errorf("started in %s, want %s", got, want)
	}

	long := exec.Command("sleep", "60")
	if err := bed.Server().Start(long); err != nil {
		t.Fatal(err)
	}
	if err := bed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := long.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v, want it killed with its bed", err)
	}
	if err := bed.Server().Start(exec.Command("true")); err == nil {
		t.Error("a process was started in a closed bed")
	}
}

func TestProgramThatDoesNotExistIsAnError(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "nothing"})
	if err := bed.Server().Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("a program that does not exist was started")
	}
}
