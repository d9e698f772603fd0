package actuate_test

import (
	"bufio"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"autotune/actuate"
)

// TestLiveDeviceIsOwnedAcrossMountNamespaces has two processes that share no
// /run, as in two containers, and so no lock file.
func TestLiveDeviceIsOwnedAcrossMountNamespaces(t *testing.T) {
	b, other := bed(t, 1), bed(t, 1)
	if b.Server().Ifindex != other.Server().Ifindex {
		t.Fatalf("the devices have indexes %d and %d: with different ones the test proves less", b.Server().Ifindex, other.Server().Ifindex)
	}
	root := t.TempDir()
	options := func(namespace, ifname string) actuate.Options {
		return actuate.Options{
			Namespace: actuate.NamespaceRef{Name: namespace}, Ifaces: []string{ifname},
			StateDir: filepath.Join(root, "state2"), RunDir: filepath.Join(root, "run2"),
		}
	}
	cmd := child(t, "apply", b.Server().Name, b.Server().Ifname, filepath.Join(root, "state1"), filepath.Join(root, "run1"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "applied"; {
	}
	for range 3 {
		host, err := actuate.Open(t.Context(), options(b.Server().Name, b.Server().Ifname))
		var locked *actuate.LockedError
		if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
			t.Fatalf("a second run gives %v, want a LockedError with process %d", err, cmd.Process.Pid)
		}
		if host != nil {
			t.Fatal("the second run is open")
		}
	}
	// The same index in another namespace is another device.
	host, err := actuate.Open(t.Context(), options(other.Server().Name, other.Server().Ifname))
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
	kill()
	report, err := actuate.Restore(context.Background(), filepath.Join(root, "state1"), filepath.Join(root, "run1"))
	if err != nil || !report.Settled {
		t.Errorf("restore after the kill: %v\n%s", err, report)
	}
	host, err = actuate.Open(t.Context(), options(b.Server().Name, b.Server().Ifname))
	if err != nil {
		t.Fatalf("after the owner was killed: %v", err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
}
