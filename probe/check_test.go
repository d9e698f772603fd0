package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestPollFormat(t *testing.T) {
	var expected map[string]json.RawMessage
	if err := json.Unmarshal(readTestdata(t, "tracefs", "napi_poll.format.expected.json"), &expected); err != nil {
		t.Fatal(err)
	}
	for generation, file := range map[string]string{
		"A": "napi_poll.format.A_no_work_budget",
		"B": "napi_poll.format.B_work_before_name",
		"C": "napi_poll.format.C_name_before_work",
	} {
		t.Run(file, func(t *testing.T) {
			var want struct{ Napi, Work, Budget *int }
			if err := json.Unmarshal(expected[generation], &want); err != nil {
				t.Fatal(err)
			}
			data := readTestdata(t, "tracefs", file)
			fields, err := parseFormat(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			for name, offset := range map[string]*int{"napi": want.Napi, "work": want.Work, "budget": want.Budget} {
				field, ok := fields[name]
				if ok != (offset != nil) {
					t.Errorf("field %s present: %v, want %v", name, ok, offset != nil)
				} else if ok && field.offset != *offset {
					t.Errorf("field %s at %d, want %d", name, field.offset, *offset)
				}
			}
			err = checkPollFormat(bytes.NewReader(data))
			if want.Work != nil && err != nil {
				t.Errorf("refused: %v", err)
			}
			if want.Work == nil && (!errors.Is(err, errNoPollOutcome) || !strings.Contains(err.Error(), "work, budget")) {
				t.Errorf("error %v, want %v naming work and budget", err, errNoPollOutcome)
			}
		})
	}
	for _, text := range []string{"field:int work;\toffset:x;\tsize:4;", "field:int work;\toffset:4;", "field:;offset:1;size:1;"} {
		if fields, err := parseFormat(strings.NewReader(text)); err == nil {
			t.Errorf("format %q was read as %v, want an error", text, fields)
		}
	}
}

func FuzzParseFormat(f *testing.F) {
	for _, name := range []string{"A_no_work_budget", "B_work_before_name", "C_name_before_work"} {
		f.Add(readTestdata(f, "tracefs", "napi_poll.format."+name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := parseFormat(bytes.NewReader(data))
		if err != nil {
			return
		}
		for name, field := range fields {
			if name == "" || field.size <= 0 || field.offset < 0 {
				t.Errorf("field %q: %+v", name, field)
			}
		}
	})
}

// hostRoot is a directory that stands for /.
func hostRoot(tb testing.TB, name string, data []byte) string {
	tb.Helper()
	p := fakeProc{tb.TempDir()}
	p.write(tb, name, data)
	return p.root
}

func TestLockdownFinding(t *testing.T) {
	for _, tt := range []struct {
		level string
		want  model.FindingState
		says  string
	}{
		{"none", model.FindingOK, "level none"},
		{"integrity", model.FindingOK, "level integrity"},
		{"confidentiality", model.FindingDegraded, "level confidentiality"},
	} {
		t.Run(tt.level, func(t *testing.T) {
			root := hostRoot(t, "sys/kernel/security/lockdown", readTestdata(t, "sys", "lockdown."+tt.level))
			got := checker{root}.lockdown()
			if len(got) != 1 || got[0].State != tt.want || !strings.Contains(got[0].Detail, tt.says) {
				t.Errorf("findings %+v, want one that is %s and says %q", got, tt.want, tt.says)
			}
			if tt.want == model.FindingDegraded && (got[0].Consequence == "" || got[0].Remedy == "") {
				t.Errorf("finding %+v has no consequence or remedy", got[0])
			}
		})
	}
	t.Run("no securityfs", func(t *testing.T) {
		got := checker{t.TempDir()}.lockdown()
		if len(got) != 1 || got[0].State != model.FindingUnknown || !strings.Contains(got[0].Detail, "not known") || got[0].Remedy == "" {
			t.Errorf("findings %+v, want one that is unknown, says that the level is not known, and what to do", got)
		}
	})
	t.Run("an unknown level", func(t *testing.T) {
		root := hostRoot(t, "sys/kernel/security/lockdown", []byte("none [total]\n"))
		got := checker{root}.lockdown()
		if len(got) != 1 || got[0].State != model.FindingUnknown {
			t.Errorf("findings %+v, want one that is unknown", got)
		}
	})
}

func TestUserNamespaceFinding(t *testing.T) {
	for _, tt := range []struct {
		name, uidMap string
		want         model.FindingState
	}{
		{"the initial one", "         0          0 4294967295\n", model.FindingOK},
		{"a container's", "         0     100000      65536\n", model.FindingDegraded},
		{"a user's own", "      1000       1000          1\n", model.FindingDegraded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checker{hostRoot(t, "proc/self/uid_map", []byte(tt.uidMap))}.userNamespace()
			if len(got) != 1 || got[0].State != tt.want || (tt.want == model.FindingOK) != (got[0].Remedy == "") {
				t.Errorf("findings %+v, want one that is %s", got, tt.want)
			}
		})
	}
}

func TestARefusedProbeSaysWhatToDo(t *testing.T) {
	noTypes := checker{t.TempDir()}
	types := checker{hostRoot(t, "sys/kernel/btf/vmlinux", nil)}
	locked := checker{hostRoot(t, "sys/kernel/btf/vmlinux", nil)}
	fakeProc(locked).write(t, "sys/kernel/security/lockdown", readTestdata(t, "sys", "lockdown.confidentiality"))
	for _, tt := range []struct {
		name   string
		c      checker
		signal string
		err    error
		says   string
	}{
		{"no type information", noTypes, signalPolls, unix.ENOENT, "CONFIG_DEBUG_INFO_BTF"},
		{"no socket tracepoints", types, signalSocketReads, unix.ENOENT, "6.3"},
		{"no syscall tracepoints", types, signalEpollReturns, unix.ENOENT, "CONFIG_FTRACE_SYSCALLS"},
		{"no other tracepoint", types, signalTimers, unix.ENOENT, "CONFIG_TRACEPOINTS"},
		{"a timer's program in lockdown", locked, signalTimers, unix.EINVAL, "lockdown=integrity"},
		{"no socket tracepoints in lockdown", locked, signalSocketReads, unix.ENOENT, "6.3"},
		{"refused", types, signalTimers, unix.EPERM, "CAP_BPF"},
	} {
		if got := tt.c.remedy(tt.signal, tt.err); !strings.Contains(got, tt.says) {
			t.Errorf("%s: the remedy is %q, which does not mention %s", tt.name, got, tt.says)
		}
	}
}

func TestTracefsMountFinding(t *testing.T) {
	for _, tt := range []struct {
		name, mounts string
		want         model.FindingState
		says         []string
	}{
		{
			"mounted nowhere", string(readTestdata(t, "sys", "mountinfo.none")),
			model.FindingDegraded, []string{"not mounted on /sys/kernel/tracing"},
		},
		{
			"only under another root", string(readTestdata(t, "sys", "mountinfo.tracefs_under_host")),
			model.FindingDegraded, []string{"not mounted on /sys/kernel/tracing", "/host/sys/kernel/tracing"},
		},
		{
			"where it belongs", "47 46 0:12 / /sys/kernel/tracing rw shared:5 master:6 - tracefs tracefs rw\n",
			model.FindingOK, []string{"mounted on /sys/kernel/tracing"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checker{hostRoot(t, "proc/self/mountinfo", []byte(tt.mounts))}.tracefsMount()
			if got.State != tt.want {
				t.Errorf("state %s, want %s", got.State, tt.want)
			}
			for _, says := range tt.says {
				if !strings.Contains(got.Detail, says) {
					t.Errorf("detail %q does not say %q", got.Detail, says)
				}
			}
			if got.State != model.FindingOK && !strings.Contains(got.Consequence, "do not need it") {
				t.Errorf("consequence %q does not say what does without", got.Consequence)
			}
		})
	}
}

func TestMountPoints(t *testing.T) {
	got, err := mountPoints(strings.NewReader(`1 0 0:1 / /with\040blank\134 rw - tracefs x rw`+"\n"), "tracefs")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`/with blank\`}, got); diff != "" {
		t.Errorf("mount points (-want +got):\n%s", diff)
	}
	for _, text := range []string{"1 0 0:1 / /x rw tracefs", "1 0 - tracefs"} {
		if got, err := mountPoints(strings.NewReader(text), "tracefs"); err == nil {
			t.Errorf("mountinfo %q was read as %q, want an error", text, got)
		}
	}
}

func TestVersionFinding(t *testing.T) {
	for release, want := range map[string]model.FindingState{
		"6.18.44-fc": model.FindingOK,
		"6.13.0":     model.FindingOK,
		"6.12.9":     model.FindingDegraded,
		"5.8.0":      model.FindingDegraded,
		"5.7.19":     model.FindingMissing,
		"4.18.0-el8": model.FindingMissing,
		"what":       model.FindingDegraded,
		"7.0.0":      model.FindingOK,
	} {
		if got := versionFinding(model.Finding{}, release)[0]; got.State != want {
			t.Errorf("Linux %s is %s, want %s", release, got.State, want)
		}
	}
}

func TestCapabilityFindings(t *testing.T) {
	states := func(mask uint64) map[string]model.FindingState {
		status := fmt.Sprintf("Name:\tx\nCapPrm:\t%016x\nCapEff:\t%016x\n", ^uint64(0), mask)
		out := make(map[string]model.FindingState)
		for _, f := range (checker{hostRoot(t, "proc/self/status", []byte(status))}).capabilities() {
			out[f.Name] = f.State
		}
		return out
	}
	const ok, degraded = model.FindingOK, model.FindingDegraded
	for _, tt := range []struct {
		name    string
		mask    uint64
		want    map[string]model.FindingState
		lacking []string
	}{
		{
			"none", 0,
			map[string]model.FindingState{
				"CAP_BPF": degraded, "CAP_PERFMON": degraded,
				"CAP_SYS_ADMIN": degraded, "CAP_SYS_PTRACE": degraded, "CAP_SYS_RESOURCE": ok,
			},
			[]string{"CAP_BPF", "CAP_PERFMON"},
		},
		{
			"CAP_SYS_ADMIN includes two others", 1 << unix.CAP_SYS_ADMIN,
			map[string]model.FindingState{
				"CAP_BPF": ok, "CAP_PERFMON": ok,
				"CAP_SYS_ADMIN": ok, "CAP_SYS_PTRACE": degraded, "CAP_SYS_RESOURCE": ok,
			},
			nil,
		},
		{
			"just enough to observe", 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON,
			map[string]model.FindingState{
				"CAP_BPF": ok, "CAP_PERFMON": ok,
				"CAP_SYS_ADMIN": degraded, "CAP_SYS_PTRACE": degraded, "CAP_SYS_RESOURCE": ok,
			},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, states(tt.mask)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.lacking, lackingForBPF(tt.mask)); diff != "" {
				t.Errorf("lacking for BPF (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHonestKeepsTheErrnoAndDropsTheGuess(t *testing.T) {
	err := honest(fmt.Errorf("load program: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM))
	if got, want := err.Error(), "load program: operation not permitted"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v does not hold EPERM", err)
	}
	if got := errnoName(err); got == nil || *got != "EPERM" {
		t.Errorf("errno %v, want EPERM", got)
	}
}

func TestCheckFindsThisHostWorking(t *testing.T) {
	testbed.Require(t)
	for _, f := range Check(t.Context()) {
		// Virtual machines often have no counters, and CAP_SYS_PTRACE and
		// the like are not needed by any probe.
		if f.Area == areaProbe && f.State != model.FindingOK {
			t.Errorf("%s is %s: %s", f.Name, f.State, f.Detail)
		}
		if f.State != model.FindingOK && (f.Consequence == "" || f.Remedy == "") {
			t.Errorf("%s is %s without a consequence or remedy", f.Name, f.State)
		}
		if strings.Contains(f.Detail, "MEMLOCK") {
			t.Errorf("%s blames memlock: %s", f.Name, f.Detail)
		}
	}
}

// checkAsNobody is the role of a process that checks without privileges.
const checkAsNobody = "check"

func TestCheckNamesTheMissingCapabilities(t *testing.T) {
	testbed.Require(t)
	for _, tt := range []struct {
		name   string
		held   []uintptr
		remedy string
	}{
		{"none held", nil, "CAP_BPF and CAP_PERFMON"},
		{"CAP_BPF held", []uintptr{unix.CAP_BPF}, "with CAP_PERFMON"},
		{"CAP_PERFMON held", []uintptr{unix.CAP_PERFMON}, "with CAP_BPF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			probes := 0
			for _, f := range checkWith(t, tt.held) {
				if strings.Contains(strings.ToUpper(f.Detail), "MEMLOCK") {
					t.Errorf("%s blames memlock: %s", f.Name, f.Detail)
				}
				if f.Area != areaProbe {
					continue
				}
				probes++
				if f.State == model.FindingOK {
					t.Errorf("%s works without privileges: %s", f.Name, f.Detail)
				}
				// System call tracepoints need tracefs mounted first.
				if f.Errno == nil || *f.Errno != "EPERM" {
					t.Errorf("%s: errno %v, want EPERM (%s)", f.Name, f.Errno, f.Detail)
				}
				if f.Name != signalCost && !strings.Contains(f.Remedy, tt.remedy) {
					t.Errorf("%s: remedy %q does not name the capabilities", f.Name, f.Remedy)
				}
			}
			if probes == 0 {
				t.Error("no probe among the findings")
			}
		})
	}
}

// CAP_SYS_ADMIN is not needed for what decisions rest on.
func TestTwoCapabilitiesAreEnoughForMostProbes(t *testing.T) {
	testbed.Require(t)
	want := map[string]model.FindingState{}
	for _, s := range signals() {
		want[s.name] = model.FindingOK
	}
	// One needs a mount of tracefs, the other an account of all programs.
	want[signalEpollReturns], want[signalCost] = model.FindingDegraded, model.FindingDegraded
	got := map[string]model.FindingState{}
	for _, f := range checkWith(t, []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}) {
		if _, ok := want[f.Name]; ok && f.Area == areaProbe {
			got[f.Name] = f.State
			if f.State != model.FindingOK && (f.Consequence == "" || f.Remedy == "") {
				t.Errorf("%s has no consequence or remedy: %+v", f.Name, f)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("probes (-want +got):\n%s", diff)
	}
}

// checkWith returns the findings of a user without any capabilities but those
// held.
func checkWith(t *testing.T, held []uintptr) []model.Finding {
	t.Helper()
	// The binary may lie where another user cannot reach it.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "check")
	copyFile(t, self, binary)
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleVariable+"="+checkAsNobody)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: held}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("check without capabilities: %v: %s", err, stderr.String())
	}
	var findings []model.Finding
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatal(err)
	}
	return findings
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	in, err := os.Open(from)
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		tb.Fatal(err)
	}
}
