package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestApplyingWithoutTheCapabilityIsRefusedBeforeAnythingRuns(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	state := t.TempDir()
	var out, errs bytes.Buffer
	code := make(chan int)
	go func() {
		// The thread ends with this goroutine, and its lack of privilege too.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Error(err)
		}
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &data[0]); err != nil {
			t.Error(err)
		}
		code <- run(t.Context(), []string{"run", "--apply", "--netns", bed.Server().Name, "--state", state,
			"--policy", "static:defer=50,flush=75us", bed.Server().Ifname}, &out, &errs)
	}()
	if got := <-code; got != exitCannot {
		t.Errorf("exit code %d, want %d", got, exitCannot)
	}
	if said := errs.String(); !strings.Contains(said, "CAP_NET_ADMIN") || strings.Contains(said, "tuning") || out.Len() > 0 {
		t.Errorf("it said %q and printed %q; want a word on CAP_NET_ADMIN, and no start", said, out.String())
	}
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-before +after):\n%s", diff)
	}
	if left := stateFiles(t, state); len(left) > 0 {
		t.Errorf("state left behind: %v", left)
	}
}
