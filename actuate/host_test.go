package actuate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"
)

// machine is an in-memory system with one device.
type machine struct {
	*memkernel.System
	ns     *memkernel.Namespace
	device *memkernel.Device
	root   string
}

func newMachine(t *testing.T, queues int, kind memkernel.Driver) *machine {
	m := &machine{System: memkernel.New(), root: t.TempDir()}
	m.ns = m.AddNamespace("n")
	m.device = m.ns.AddDevice("dev0", queues, kind)
	return m
}

func (m *machine) options(state string) actuate.Options {
	return actuate.Options{
		System: m.System, Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: filepath.Join(m.root, state), RunDir: filepath.Join(m.root, "run"),
	}
}

func (m *machine) want(s model.Settings) model.Config {
	return model.Config{m.device.Queue(0): s}
}

// crashed leaves the state of a run that applied s and was killed.
func (m *machine) crashed(t *testing.T, state string, s model.Settings) {
	t.Helper()
	c := actuate.NewCrashable(nil)
	if err := c.Open(context.Background(), m.System, m.options(state)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Host.Apply(context.Background(), m.want(s)); err != nil {
		t.Fatal(err)
	}
	c.Crash()
}

func (m *machine) restore(t *testing.T, state string) actuate.Report {
	t.Helper()
	report, err := actuate.RestoreOn(context.Background(), m.System, filepath.Join(m.root, state), filepath.Join(m.root, "run"))
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return report
}

func outcomes(r actuate.Report) []actuate.Outcome {
	var out []actuate.Outcome
	for _, k := range r.Knobs {
		out = append(out, k.Outcome)
	}
	return out
}

func TestALiveRunIsNotDisturbed(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	h, err := actuate.Open(context.Background(), m.options("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apply(context.Background(), m.want(tuned)); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"a", "b"} {
		_, err := actuate.Open(context.Background(), m.options(state))
		var locked *actuate.LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("second run with state %s: %v", state, err)
		}
	}
	_, err = actuate.RestoreOn(context.Background(), m.System, m.options("a").StateDir, m.options("a").RunDir)
	var locked *actuate.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("restore: %v", err)
	}
	if got := m.device.Settings(0); got != tuned {
		t.Errorf("disturbed: %v", got)
	}
	if report, err := h.Restore(context.Background()); err != nil || !report.Settled {
		t.Fatalf("%v\n%s", err, report)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	noState(t, m.options("a"))
}

func TestTunedValuesAreNeverTakenForOriginals(t *testing.T) {
	original := model.Settings{DeferHardIRQs: 3}
	for _, state := range []string{"a", "b"} {
		t.Run("next run with state "+state, func(t *testing.T) {
			m := newMachine(t, 1, memkernel.Veth())
			m.device.Write(0, original)
			m.crashed(t, "a", tuned)
			h, err := actuate.Open(context.Background(), m.options(state))
			if err != nil {
				t.Fatal(err)
			}
			if got := h.Originals()[m.device.Queue(0)]; got != original {
				t.Errorf("original %v, want %v", got, original)
			}
			if len(h.Recovered()) != 1 {
				t.Errorf("recovered %v", h.Recovered())
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, spoil := range map[string]func(string) error{
		"unreadable": func(dir string) error { return os.WriteFile(filepath.Join(dir, "baseline.json"), []byte("{"), 0o600) },
		"deleted":    os.RemoveAll,
	} {
		t.Run("refused where the other state is "+name, func(t *testing.T) {
			m := newMachine(t, 1, memkernel.Veth())
			m.crashed(t, "a", tuned)
			if err := spoil(m.options("a").StateDir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := actuate.Open(context.Background(), m.options("b"))
				if err == nil || !strings.Contains(err.Error(), m.options("a").StateDir) || !strings.Contains(err.Error(), "delete") {
					t.Errorf("open: %v", err)
				}
			}
		})
	}
}

func TestARecordOfAnotherDeviceWithTheSameNumbersIsNoObstacle(t *testing.T) {
	for name, happens := range map[string]func(*machine){
		"another namespace": func(m *machine) { m.ReplaceNamespace(m.ns) },
		"another boot":      func(m *machine) { m.Reboot() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 1, memkernel.Veth())
			m.crashed(t, "a", tuned)
			if err := os.RemoveAll(m.options("a").StateDir); err != nil {
				t.Fatal(err)
			}
			happens(m)
			h, err := actuate.Open(context.Background(), m.options("b"))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestApplyFailuresAreNamedByQueue(t *testing.T) {
	for _, tt := range []struct {
		name    string
		happens func(*machine)
		want    model.Settings
		is      error
	}{
		{"beyond the bounds", func(*machine) {}, model.Settings{DeferHardIRQs: 1, GROFlushTimeout: time.Second}, model.ErrOutOfBounds},
		{"link down", func(m *machine) { m.device.Down() }, tuned, model.ErrLinkDown},
		{"interface gone", func(m *machine) { m.device.Remove() }, tuned, model.ErrGone},
		{"namespace gone", func(m *machine) { m.DeleteNamespace(m.ns) }, tuned, model.ErrGone},
		{"foreign write", func(m *machine) { m.device.Write(0, model.Settings{DeferHardIRQs: 77}) }, tuned, model.ErrForeignWrite},
		{"busy", func(m *machine) { m.Fault = failing(memkernel.OpSet, model.ErrBusy) }, tuned, model.ErrBusy},
		{"not permitted", func(m *machine) { m.Fault = failing(memkernel.OpSet, model.ErrReadOnly) }, tuned, model.ErrReadOnly},
		{"gone between list and write", func(m *machine) { m.Fault = failing(memkernel.OpNAPI, model.ErrGone) }, tuned, model.ErrGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, 1, memkernel.Veth())
			h, err := actuate.Open(context.Background(), m.options("a"))
			if err != nil {
				t.Fatal(err)
			}
			tt.happens(m)
			before := m.device.Settings(0)
			_, err = h.Apply(context.Background(), m.want(tt.want))
			var queueErr *model.QueueError
			if !errors.Is(err, tt.is) || !errors.As(err, &queueErr) || queueErr.Queue != m.device.Queue(0) {
				t.Errorf("apply: %v", err)
			}
			if got := m.device.Settings(0); got != before {
				t.Errorf("written: %v", got)
			}
			m.Fault = nil
			if _, err := h.Restore(context.Background()); err != nil {
				t.Error(err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func failing(op memkernel.Op, err error) func(memkernel.Op) error {
	return func(got memkernel.Op) error {
		if got == op {
			return err
		}
		return nil
	}
}

func TestForeignWriteWhileTheIntentIsMadeDurable(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	theirs := model.Settings{DeferHardIRQs: 77}
	c := actuate.NewCrashable(func(step string) {
		if step == "fsync intent.json" {
			m.device.Write(0, theirs)
		}
	})
	if err := c.Open(context.Background(), m.System, m.options("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Host.Apply(context.Background(), m.want(tuned)); !errors.Is(err, model.ErrForeignWrite) {
		t.Errorf("apply: %v", err)
	}
	mustRestore(t, &c.Host)
	if got := m.device.Settings(0); got != theirs {
		t.Errorf("left at %v, want %v", got, theirs)
	}
	if err := c.Host.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOneBadQueueDoesNotStopTheOthers(t *testing.T) {
	m := newMachine(t, 3, memkernel.Virtio())
	h, err := actuate.Open(context.Background(), m.options("a"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := model.Settings{DeferHardIRQs: 77}
	m.device.Write(1, theirs)
	want := model.Config{}
	for i := range 3 {
		want[m.device.Queue(i)] = tuned
	}
	got, err := h.Apply(context.Background(), want)
	if !errors.Is(err, model.ErrForeignWrite) {
		t.Errorf("apply: %v", err)
	}
	want[m.device.Queue(1)] = theirs
	wantConfig(t, "applied", want, got)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnUnconfirmedWriteIsStillOurs(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	h, err := actuate.Open(context.Background(), m.options("a"))
	if err != nil {
		t.Fatal(err)
	}
	// The write takes effect, and neither its reply nor the read-back comes.
	lost := false
	m.Fault = func(op memkernel.Op) error {
		lost = lost || op == memkernel.OpSetDone
		if lost {
			return model.ErrBusy
		}
		return nil
	}
	if _, err := h.Apply(context.Background(), m.want(model.Settings{DeferHardIRQs: 5})); !errors.Is(err, model.ErrBusy) {
		t.Fatalf("apply: %v", err)
	}
	m.Fault = nil
	mustApply(t, h, m.want(model.Settings{DeferHardIRQs: 6}))
	mustRestore(t, h)
	if got := m.device.Settings(0); got != (model.Settings{}) {
		t.Errorf("left at %v", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusals(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	m.ns.AddStacked("bond0", "bond", "eth1", "eth2")
	down := m.ns.AddDevice("down0", 1, memkernel.Veth())
	down.Down()
	for _, tt := range []struct {
		name   string
		change func(*actuate.Options)
		is     error
		text   string
	}{
		{"unknown interface", func(o *actuate.Options) { o.Ifaces = []string{"eth9"} }, model.ErrGone, "eth9"},
		{"unknown namespace", func(o *actuate.Options) { o.Namespace.Name = "x" }, model.ErrGone, "x"},
		{"a bond", func(o *actuate.Options) { o.Ifaces = []string{"bond0"} }, actuate.ErrStacked, "eth1 eth2"},
		{"down, and nothing else", func(o *actuate.Options) { o.Ifaces = []string{"down0"} }, model.ErrLinkDown, "down0"},
		{"no interface", func(o *actuate.Options) { o.Ifaces = nil }, nil, "no interface"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := m.options("a")
			tt.change(&o)
			_, err := actuate.Open(context.Background(), o)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("open: %v", err)
			}
			noState(t, o)
		})
	}
	t.Run("down beside one that is up", func(t *testing.T) {
		o := m.options("a")
		o.Ifaces = []string{"down0", "dev0"}
		h, err := actuate.Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		napis, err := h.NAPIs(context.Background())
		if len(napis) != 1 || !errors.Is(err, model.ErrLinkDown) || !strings.Contains(err.Error(), "down0") {
			t.Errorf("%v, %v", napis, err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
