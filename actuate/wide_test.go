package actuate_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/actuate/netdev"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

var (
	wide   = model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}
	narrow = model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 30 * time.Microsecond}
)

func newOldMachine(t *testing.T, queues int, era memkernel.Era) *machine {
	m := newMachine(t, queues, memkernel.Veth())
	m.Era = era
	return m
}

func (m *machine) all(queues int, s model.Settings) model.Config {
	out := model.Config{}
	for i := range queues {
		out[m.device.Queue(i)] = s
	}
	return out
}

// TestErrnoMatrixDecidesTheScope goes through the rows of the field's table
// that ask for the device-wide mode.
func TestErrnoMatrixDecidesTheScope(t *testing.T) {
	var rows []struct{ Op, Means, Do string }
	readJSON(t, "netdev/testdata/errno_matrix.json", &rows)
	eras := map[string]memkernel.Era{
		"CTRL_GETFAMILY netdev": memkernel.EraNone, "napi-get dump": memkernel.EraNone,
		"napi-get reply without attrs 5/6": memkernel.EraList, "napi-set": memkernel.EraList,
	}
	n := 0
	for _, row := range rows {
		if !strings.HasPrefix(row.Do, "sysfs") {
			continue
		}
		n++
		t.Run(row.Means, func(t *testing.T) {
			era, known := eras[row.Op]
			if !known {
				t.Fatalf("no era shows %q", row.Op)
			}
			m := newOldMachine(t, 2, era)
			h := mustOpen(t, m.options("a"))
			if h.Scope() != actuate.ScopeDevice || !errors.Is(h.DeviceWide(), netdev.ErrUnsupported) {
				t.Errorf("scope %q because of %v", h.Scope(), h.DeviceWide())
			}
			mustApply(t, h, m.all(2, wide))
			napis, err := h.NAPIs(context.Background())
			if err != nil || len(napis) != 2 {
				t.Fatalf("%v, %v", napis, err)
			}
			for _, napi := range napis {
				if measured := napi.ID != 0; measured != (era == memkernel.EraList) {
					t.Errorf("NAPI ID %d, mapping %q", napi.ID, napi.Mapping)
				}
			}
			mustRestore(t, h)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			noState(t, m.options("a"))
		})
	}
	if n != 4 {
		t.Errorf("%d rows ask for sysfs, want 4", n)
	}
	if h := mustOpen(t, newMachine(t, 1, memkernel.Veth()).options("a")); h.Scope() != actuate.ScopeNAPI || h.DeviceWide() != nil {
		t.Errorf("a kernel with napi-set: scope %q because of %v", h.Scope(), h.DeviceWide())
	}
}

func TestDeviceWideRefusals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		want    [2]model.Settings
		happens func(*machine)
		is      error
		text    string
	}{
		{"queues that differ", [2]model.Settings{wide, narrow}, nil, actuate.ErrOneSetting, "queue 0 is to have defer=100,flush=50µs while queue 1"},
		{"suspension", [2]model.Settings{tuned, tuned}, nil, actuate.ErrNoSuspend, "6.13"},
		{"beyond the bounds", [2]model.Settings{{DeferHardIRQs: 1, GROFlushTimeout: time.Second}, {DeferHardIRQs: 1, GROFlushTimeout: time.Second}}, nil, model.ErrOutOfBounds, "10ms"},
		{"beyond the kernel's own limit", [2]model.Settings{{DeferHardIRQs: 1 << 31}, {DeferHardIRQs: 1 << 31}}, nil, model.ErrOutOfBounds, "2147483647"},
		{"another writer", [2]model.Settings{wide, wide}, func(m *machine) { m.device.WriteSysfs(actuate.Defaults{DeferHardIRQs: 77}) }, model.ErrForeignWrite, "defer=77"},
		{"not permitted", [2]model.Settings{wide, wide}, func(m *machine) { m.Fault = failing(memkernel.OpSet, model.ErrReadOnly) }, model.ErrReadOnly, "sysfs"},
		{"down", [2]model.Settings{wide, wide}, func(m *machine) { m.device.Down() }, model.ErrLinkDown, "down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newOldMachine(t, 2, memkernel.EraList)
			h := mustOpen(t, m.options("a"))
			if tt.happens != nil {
				tt.happens(m)
			}
			before := m.device.Settings(1)
			_, err := h.Apply(context.Background(), model.Config{m.device.Queue(0): tt.want[0], m.device.Queue(1): tt.want[1]})
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("apply: %v", err)
			}
			for i := range 2 {
				if !strings.Contains(err.Error(), m.device.Queue(i).String()) {
					t.Errorf("%v does not name queue %d", err, i)
				}
			}
			if now := m.device.Settings(1); now != before {
				t.Errorf("changed from %v to %v", before, now)
			}
			m.Fault = nil
		})
	}
}

func TestDeviceWideQueuesFollowTheOneThatIsSet(t *testing.T) {
	m := newOldMachine(t, 3, memkernel.EraList)
	h := mustOpen(t, m.options("a"))
	got, err := h.Apply(context.Background(), m.want(wide))
	if err != nil {
		t.Fatal(err)
	}
	wantConfig(t, "applied to one queue", m.all(3, wide), got)
	leads := map[model.Queue]model.Queue{}
	for i := range 3 {
		leads[m.device.Queue(i)] = m.device.Queue(0)
	}
	if diff := cmp.Diff(leads, h.Leads()); diff != "" {
		t.Errorf("leads (-want +got):\n%s", diff)
	}
}

// TestDeviceWideOriginalThatCannotBePutBack has a count that only a kernel with
// CVE-2024-50018 takes.
func TestDeviceWideOriginalThatCannotBePutBack(t *testing.T) {
	m := newOldMachine(t, 1, memkernel.EraNone)
	theirs := actuate.Defaults{DeferHardIRQs: 1 << 31}
	m.device.WriteSysfs(theirs)
	h := mustOpen(t, m.options("a"))
	if _, err := h.Apply(context.Background(), m.want(wide)); !errors.Is(err, model.ErrReadOnly) || !strings.Contains(err.Error(), "2147483648") {
		t.Errorf("apply: %v", err)
	}
}

func TestDeviceWideRestoreByKnob(t *testing.T) {
	original := actuate.Defaults{DeferHardIRQs: 3, GROFlushTimeout: 11}
	for _, tt := range []struct {
		name    string
		happens func(*machine)
		want    []actuate.Outcome
		after   model.Settings
	}{
		{"nothing happened since", func(*machine) {}, []actuate.Outcome{"restored", "restored"}, asSettings(original)},
		{"another writer has one knob", func(m *machine) {
			m.device.WriteSysfs(actuate.Defaults{DeferHardIRQs: 9, GROFlushTimeout: wide.GROFlushTimeout})
		}, []actuate.Outcome{"foreign", "restored"}, model.Settings{DeferHardIRQs: 9, GROFlushTimeout: 11}},
		{"the link is down", func(m *machine) { m.device.Down() }, []actuate.Outcome{"restored", "restored"}, asSettings(original)},
		{"the link flapped", func(m *machine) { m.device.Down(); m.device.Up() }, []actuate.Outcome{"restored", "restored"}, asSettings(original)},
		{"the interface is gone", func(m *machine) { m.device.Remove() }, []actuate.Outcome{"gone", "gone"}, wide},
		{"the index is another device's now", func(m *machine) { m.device.Become("other0", "02:ff:ff:ff:ff:ff") }, []actuate.Outcome{"gone", "gone"}, wide},
		{"the namespace is gone", func(m *machine) { m.DeleteNamespace(m.ns) }, []actuate.Outcome{"gone", "gone"}, wide},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newOldMachine(t, 2, memkernel.EraNone)
			m.device.WriteSysfs(original)
			m.crashed(t, "a", wide)
			tt.happens(m)
			report := m.restore(t, "a")
			if diff := cmp.Diff(tt.want, outcomes(report)); diff != "" || !report.Settled {
				t.Errorf("settled %v, outcomes (-want +got):\n%s\n%s", report.Settled, diff, report)
			}
			for _, k := range report.Knobs {
				if k.Queue.Index != actuate.WholeDevice || k.NAPIID != nil || !strings.Contains(k.String(), "dev0 all queues") {
					t.Errorf("%+v: %s", k, k)
				}
			}
			if got := m.device.Settings(1); got != tt.after {
				t.Errorf("left at %v, want %v", got, tt.after)
			}
		})
	}
}

func asSettings(d actuate.Defaults) model.Settings {
	return model.Settings{DeferHardIRQs: d.DeferHardIRQs, GROFlushTimeout: d.GROFlushTimeout}
}

// TestLiveDeviceWide works through real sysfs in a namespace, and reads what
// came of it by netlink, of which the host under test knows nothing.
func TestLiveDeviceWide(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lists bool
	}{{"instances are listed", true}, {"instances are not listed", false}} {
		t.Run(tt.name, func(t *testing.T) {
			b := bed(t, 2)
			writeSysfs(t, b, "napi_defer_hard_irqs", 5)
			writeSysfs(t, b, "gro_flush_timeout", 7919)
			originals := present(t, b)
			wantConfig(t, "before", uniform(originals, model.Settings{DeferHardIRQs: 5, GROFlushTimeout: 7919}), originals)
			o := liveOptions(t, b)
			o.System = old{lists: tt.lists}
			h := mustOpen(t, o)
			if h.Scope() != actuate.ScopeDevice {
				t.Fatalf("scope %q", h.Scope())
			}
			mustApply(t, h, uniform(originals, wide))
			wantConfig(t, "by netlink", uniform(originals, wide), present(t, b))

			if _, err := h.Apply(context.Background(), uniform(originals, tuned)); !errors.Is(err, actuate.ErrNoSuspend) {
				t.Errorf("suspension: %v", err)
			}
			// Another writer, and what is left after it.
			writeSysfs(t, b, "gro_flush_timeout", 4242)
			if _, err := h.Apply(context.Background(), uniform(originals, narrow)); !errors.Is(err, model.ErrForeignWrite) || len(h.Yielded()) != 2 {
				t.Errorf("foreign write: %v; yielded %v", err, h.Yielded())
			}
			report := mustRestore(t, h)
			if diff := cmp.Diff([]actuate.Outcome{"restored", "foreign"}, outcomes(report)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			wantConfig(t, "at the end", uniform(originals, model.Settings{DeferHardIRQs: 5, GROFlushTimeout: 4242}), present(t, b))
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			noState(t, o)
		})
	}
}

// TestLiveDeviceWideKillAtRandomInstants is
// [TestLiveKillAtRandomInstants] for a kernel that sets whole devices. Every
// other restore is by a kernel that can set single instances.
func TestLiveDeviceWideKillAtRandomInstants(t *testing.T) {
	b := bed(t, 2)
	writeSysfs(t, b, "napi_defer_hard_irqs", 5)
	writeSysfs(t, b, "gro_flush_timeout", 7919)
	originals := present(t, b)
	root := t.TempDir()
	runDir := filepath.Join(root, "run")
	template := child(t, "apply device-wide")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))
	changed := 0
	const rounds = 25
	for round := range rounds {
		stateDir := filepath.Join(root, "state")
		cmd := exec.Command(template.Path, b.Server().Name, b.Server().Ifname, stateDir, runDir)
		cmd.Env = template.Env
		killAt(t, cmd, [4]string{"applied", "open", "applied", ""}[round%4], time.Duration(rng.Int64N(int64(25*time.Millisecond))))
		if _, err := actuate.LoadState(stateDir); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if diffs(originals, present(t, b)) {
			changed++
		}
		system := actuate.System(actuate.Live{})
		if round%2 == 0 {
			system = old{}
		}
		report, err := actuate.RestoreOn(context.Background(), system, stateDir, runDir)
		if err != nil || !report.Settled {
			t.Fatalf("round %d: restore: %v\n%s", round, err, report)
		}
		wantConfig(t, "restored", originals, present(t, b))
		if t.Failed() {
			return
		}
	}
	if changed < rounds/3 {
		t.Errorf("only %d of %d kills left something to restore: this proves little", changed, rounds)
	}
	t.Logf("%d of %d kills left something to restore", changed, rounds)
}

func TestStateOfADeviceWideRunSaysSo(t *testing.T) {
	m := newOldMachine(t, 2, memkernel.EraNone)
	m.crashed(t, "a", wide)
	data, err := os.ReadFile(filepath.Join(m.root, "a", "baseline.json"))
	if err != nil {
		t.Fatal(err)
	}
	var base struct {
		Devices []struct {
			Scope  string
			Queues []struct{ Index int }
		}
	}
	if err := json.Unmarshal(data, &base); err != nil {
		t.Fatal(err)
	}
	if d := base.Devices[0]; d.Scope != "device" || len(d.Queues) != 1 || d.Queues[0].Index != actuate.WholeDevice {
		t.Errorf("%s", data)
	}
}

// agree reports whether a device that is set as a whole can have all that is
// wanted.
func agree(want model.Config) bool {
	var first *model.Settings
	for _, s := range want {
		if first == nil {
			first = &s
		}
		if s != *first || s.IRQSuspendTimeout != 0 {
			return false
		}
	}
	return true
}

// BenchmarkLiveDeviceWideNAPIs is what a window costs where sysfs is read.
func BenchmarkLiveDeviceWideNAPIs(b *testing.B) {
	namespace := bed(b, 2).Server()
	h, err := actuate.Open(context.Background(), actuate.Options{
		System: old{lists: true}, Namespace: actuate.NamespaceRef{Name: namespace.Name}, Ifaces: []string{namespace.Ifname}, ReadOnly: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for b.Loop() {
		if _, err := h.NAPIs(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
