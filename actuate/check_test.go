package actuate_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"autotune/actuate"
	"autotune/experiments/testbed"
	"autotune/model"
)

func names(findings []model.Finding, keep func(model.Finding) bool) []string {
	var out []string
	for _, f := range findings {
		if keep(f) {
			out = append(out, f.Name)
		}
	}
	return out
}

func TestLiveCheckFindsEverythingHere(t *testing.T) {
	testbed.Require(t)
	before := namespaces(t)
	findings := actuate.Check(context.Background())
	for _, f := range findings {
		// The attribute came with 6.17; live tests run from 6.13 on.
		if f.State != model.FindingOK && f.Name != "napi-get threaded" {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []string{
		"CAP_NET_ADMIN", "family", "dev-get", "queue-get", "napi-get", "napi-get defer-hard-irqs", "napi-get gro-flush-timeout",
		"napi-get irq-suspend-timeout", "napi-get threaded", "napi-set", "sysfs defaults", "device-wide (sysfs)", "epoll busy-poll parameters",
	} {
		if !slices.Contains(names(findings, func(model.Finding) bool { return true }), want) {
			t.Errorf("no finding %q", want)
		}
	}
	if after := namespaces(t); after != before {
		t.Errorf("%q is the namespace now, it was %q", after, before)
	}
}

func namespaces(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLiveCheckWithoutPrivileges runs as a user that may make no namespace and
// set nothing.
func TestLiveCheckWithoutPrivileges(t *testing.T) {
	testbed.Require(t)
	cmd := child(t, "check")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: false}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var findings []model.Finding
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	states := map[string]model.FindingState{}
	for _, f := range findings {
		states[f.Name] = f.State
		if f.State != model.FindingOK && (f.Errno == nil || *f.Errno != "EPERM" || f.Consequence == "" || strings.HasPrefix(f.Remedy, "boot")) {
			t.Errorf("%+v", f)
		}
	}
	want := map[string]model.FindingState{
		"CAP_NET_ADMIN": model.FindingMissing, "family": model.FindingOK, "dev-get": model.FindingOK,
		"device-wide (sysfs)": model.FindingDegraded,
		"scratch device":      model.FindingDegraded, "napi-get": model.FindingOK, "napi-set": model.FindingMissing,
		"epoll busy-poll parameters": model.FindingOK,
	}
	for name, state := range want {
		if states[name] != state {
			t.Errorf("%s: %q, want %q", name, states[name], state)
		}
	}
}
