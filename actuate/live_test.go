package actuate_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/netdev"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"golang.org/x/sys/unix"
)

// bed makes a test bed, or says why the test cannot be run.
func bed(t testing.TB, queues int) *testbed.Bed {
	t.Helper()
	testbed.Require(t)
	b, err := testbed.New(context.Background(), testbed.Options{Prefix: "actuate", Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func liveOptions(t *testing.T, b *testbed.Bed) actuate.Options {
	dir := t.TempDir()
	return actuate.Options{
		Namespace: actuate.NamespaceRef{Name: b.Server().Name}, Ifaces: []string{b.Server().Ifname},
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
	}
}

func mustOpen(t *testing.T, o actuate.Options) *actuate.Host {
	t.Helper()
	h, err := actuate.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// present reads the settings by a socket of its own.
func present(t *testing.T, b *testbed.Bed) model.Config {
	t.Helper()
	out := model.Config{}
	for _, n := range instances(t, b) {
		out[n.Queue] = n.Settings
	}
	return out
}

func instances(t *testing.T, b *testbed.Bed) []model.NAPI {
	t.Helper()
	h, err := actuate.Open(context.Background(), actuate.Options{
		Namespace: actuate.NamespaceRef{Name: b.Server().Name}, Ifaces: []string{b.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	napis, err := h.NAPIs(context.Background())
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	return napis
}

// writeNAPI is what another process would do by netlink.
func writeNAPI(t *testing.T, b *testbed.Bed, id uint32, s model.Settings) {
	t.Helper()
	err := b.Server().Do(func() error {
		c, err := netdev.New(netdev.Options{})
		if err != nil {
			return err
		}
		return errors.Join(c.SetNAPI(id, netdev.NAPIUpdate{
			DeferHardIRQs: &s.DeferHardIRQs, GROFlushTimeout: &s.GROFlushTimeout, IRQSuspendTimeout: &s.IRQSuspendTimeout,
		}), c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func writeSysfs(t *testing.T, b *testbed.Bed, name string, v uint64) {
	t.Helper()
	err := b.Server().DoWithSysfs(func() error {
		return os.WriteFile(filepath.Join("/sys/class/net", b.Server().Ifname, name), []byte(strconv.FormatUint(v, 10)), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func uniform(c model.Config, s model.Settings) model.Config {
	out := maps.Clone(c)
	for q := range out {
		out[q] = s
	}
	return out
}

func wantConfig(t *testing.T, what string, want, got model.Config) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var tuned = model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond}

func mustApply(t *testing.T, h *actuate.Host, want model.Config) {
	t.Helper()
	got, err := h.Apply(context.Background(), want)
	if err != nil {
		t.Fatal(err)
	}
	wantConfig(t, "applied", want, got)
}

func mustRestore(t *testing.T, h *actuate.Host) actuate.Report {
	t.Helper()
	report, err := h.Restore(context.Background())
	if err != nil || !report.Settled {
		t.Fatalf("restore: %v\n%s", err, report)
	}
	return report
}

func noState(t *testing.T, o actuate.Options) {
	t.Helper()
	for _, dir := range []string{o.StateDir, o.RunDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
		}
	}
}

// BenchmarkLiveNAPIs is what a window costs with 8 queues.
func BenchmarkLiveNAPIs(b *testing.B) {
	place := bed(b, 8)
	h, err := actuate.Open(context.Background(), actuate.Options{
		Namespace: actuate.NamespaceRef{Name: place.Server().Name}, Ifaces: []string{place.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if napis, err := h.NAPIs(context.Background()); err != nil || len(napis) != 8 {
			b.Fatalf("%d NAPIs, %v", len(napis), err)
		}
	}
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
}

func TestLiveSetReadBackRestore(t *testing.T) {
	b := bed(t, 3)
	// Originals that differ from the defaults and from each other.
	for i, n := range instances(t, b) {
		writeNAPI(t, b, n.ID, model.Settings{DeferHardIRQs: uint32(i), GROFlushTimeout: time.Duration(i) * 7919})
	}
	originals := present(t, b)
	o := liveOptions(t, b)
	h := mustOpen(t, o)
	wantConfig(t, "originals", originals, h.Originals())
	napis, err := h.NAPIs(context.Background())
	if err != nil || len(napis) != 3 {
		t.Fatalf("%d NAPIs, %v; want 3", len(napis), err)
	}
	for i, n := range napis {
		if n.Queue.Index != i || n.Mapping != model.MappingPosition || n.Driver != "veth" || n.Queue.Netns != b.Server().Inode || i > 0 && n.ID <= napis[i-1].ID {
			t.Errorf("NAPI %d: %+v", i, n)
		}
	}
	for _, s := range []model.Settings{
		tuned,
		{DeferHardIRQs: 1, GROFlushTimeout: 10 * time.Millisecond, IRQSuspendTimeout: time.Second},
		{DeferHardIRQs: model.MaxDeferHardIRQs, GROFlushTimeout: 200 * time.Microsecond},
		{},
		tuned,
	} {
		mustApply(t, h, uniform(originals, s))
		wantConfig(t, "seen by another", uniform(originals, s), present(t, b))
	}
	_, err = h.Apply(context.Background(), uniform(originals, model.Settings{DeferHardIRQs: 1, GROFlushTimeout: 11 * time.Millisecond}))
	if !errors.Is(err, model.ErrOutOfBounds) {
		t.Errorf("out of bounds: %v", err)
	}
	wantConfig(t, "after a refusal", uniform(originals, tuned), present(t, b))

	mustRestore(t, h)
	wantConfig(t, "restored", originals, present(t, b))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	noState(t, o)
}

func TestLiveLinkFlapRenumbers(t *testing.T) {
	b := bed(t, 2)
	originals := present(t, b)
	o := liveOptions(t, b)
	h := mustOpen(t, o)
	mustApply(t, h, uniform(originals, tuned))
	if err := b.LinkFlap(context.Background()); err != nil {
		t.Fatal(err)
	}
	// veth reuses the structures: the suspend timeout is still there.
	stale := model.Settings{IRQSuspendTimeout: tuned.IRQSuspendTimeout}
	wantConfig(t, "after the flap", uniform(originals, stale), present(t, b))
	if _, err := h.NAPIs(context.Background()); err != nil {
		t.Fatal(err)
	}
	events, dropped := h.Events()
	if len(events) != 2 || dropped != 0 {
		t.Fatalf("%d rebinds and %d dropped, want 2 and 0", len(events), dropped)
	}
	for _, e := range events {
		if e.NewID <= e.OldID || e.Found != stale {
			t.Errorf("rebind %v", e)
		}
	}
	mustApply(t, h, uniform(originals, tuned))
	if err := b.LinkFlap(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustRestore(t, h)
	wantConfig(t, "restored after another flap", originals, present(t, b))
}

func TestLiveCrashThenLinkFlap(t *testing.T) {
	b := bed(t, 2)
	// The originals are not the device-level values that new instances take.
	for _, n := range instances(t, b) {
		writeNAPI(t, b, n.ID, model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 7919})
	}
	originals := present(t, b)
	o := liveOptions(t, b)
	h := actuate.NewCrashable(nil)
	if err := h.Open(context.Background(), actuate.Live{}, o); err != nil {
		t.Fatal(err)
	}
	mustApply(t, &h.Host, uniform(originals, tuned))
	h.Crash()
	if err := b.LinkFlap(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		report, err := actuate.Restore(context.Background(), o.StateDir, o.RunDir)
		if err != nil || !report.Settled {
			t.Fatalf("restore: %v\n%s", err, report)
		}
		wantConfig(t, "restored", originals, present(t, b))
	}
	noState(t, o)
}

func TestLiveLinkDownKeepsTheState(t *testing.T) {
	b := bed(t, 1)
	originals := present(t, b)
	o := liveOptions(t, b)
	h := mustOpen(t, o)
	mustApply(t, h, uniform(originals, tuned))
	setLink(t, b, false)
	_, err := h.NAPIs(context.Background())
	if !errors.Is(err, model.ErrLinkDown) {
		t.Errorf("list while down: %v", err)
	}
	_, err = h.Apply(context.Background(), uniform(originals, model.Settings{}))
	if !errors.Is(err, model.ErrLinkDown) {
		t.Errorf("apply while down: %v", err)
	}
	report, err := h.Restore(context.Background())
	if err != nil || report.Settled || report.Knobs[0].Outcome != actuate.OutcomeLinkDown {
		t.Fatalf("restore while down: %v\n%s", err, report)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := actuate.Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "autotune restore") {
		t.Errorf("open while down: %v", err)
	}
	setLink(t, b, true)
	report, err = actuate.Restore(context.Background(), o.StateDir, o.RunDir)
	if err != nil || !report.Settled {
		t.Fatalf("restore: %v\n%s", err, report)
	}
	wantConfig(t, "restored when up", originals, present(t, b))
	noState(t, o)
}

func TestLiveInterfaceDeleted(t *testing.T) {
	b := bed(t, 1)
	originals := present(t, b)
	o := liveOptions(t, b)
	h := mustOpen(t, o)
	mustApply(t, h, uniform(originals, tuned))
	deleteLink(t, b)
	_, err := h.Apply(context.Background(), uniform(originals, model.Settings{}))
	var queueErr *model.QueueError
	if !errors.Is(err, model.ErrGone) || !errors.As(err, &queueErr) {
		t.Errorf("apply: %v", err)
	}
	report := mustRestore(t, h)
	if report.Knobs[0].Outcome != actuate.OutcomeGone || !strings.Contains(report.String(), b.Server().Ifname) {
		t.Errorf("report: %s", report)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	noState(t, o)
}

func TestLiveNamespaceDeleted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		crash bool
	}{{"while running", false}, {"after a crash", true}} {
		t.Run(tt.name, func(t *testing.T) {
			b := bed(t, 1)
			originals := present(t, b)
			o := liveOptions(t, b)
			h := actuate.NewCrashable(nil)
			if err := h.Open(context.Background(), actuate.Live{}, o); err != nil {
				t.Fatal(err)
			}
			mustApply(t, &h.Host, uniform(originals, tuned))
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if !tt.crash {
				_, err := h.Host.Apply(context.Background(), uniform(originals, model.Settings{}))
				var queueErr *model.QueueError
				if !errors.Is(err, model.ErrGone) || !errors.As(err, &queueErr) {
					t.Errorf("apply: %v", err)
				}
				mustRestore(t, &h.Host)
			} else {
				h.Crash()
			}
			if err := h.Host.Close(); err != nil && !tt.crash {
				t.Fatal(err)
			}
			report, err := actuate.Restore(context.Background(), o.StateDir, o.RunDir)
			if err != nil || !report.Settled {
				t.Fatalf("restore: %v\n%s", err, report)
			}
			if tt.crash && (len(report.Knobs) != 3 || report.Knobs[0].Outcome != actuate.OutcomeGone) {
				t.Errorf("report:\n%s", report)
			}
			noState(t, o)
		})
	}
}

func TestLiveForeignWriteByNetlink(t *testing.T) {
	b := bed(t, 2)
	originals := present(t, b)
	h := mustOpen(t, liveOptions(t, b))
	mustApply(t, h, uniform(originals, tuned))
	theirs := model.Settings{DeferHardIRQs: 7, GROFlushTimeout: tuned.GROFlushTimeout, IRQSuspendTimeout: tuned.IRQSuspendTimeout}
	first := instances(t, b)[0]
	writeNAPI(t, b, first.ID, theirs)

	next := uniform(originals, model.Settings{DeferHardIRQs: 50, GROFlushTimeout: 20 * time.Microsecond})
	for range 2 {
		got, err := h.Apply(context.Background(), next)
		var queueErr *model.QueueError
		if !errors.Is(err, model.ErrForeignWrite) || !errors.As(err, &queueErr) || queueErr.Queue != first.Queue {
			t.Fatalf("apply: %v", err)
		}
		for _, value := range []string{"defer=100", "defer=7"} {
			if !strings.Contains(err.Error(), value) {
				t.Errorf("%q does not say %s", err, value)
			}
		}
		want := maps.Clone(next)
		want[first.Queue] = theirs
		wantConfig(t, "beside another writer", want, got)
	}
	report := mustRestore(t, h)
	want := maps.Clone(originals)
	want[first.Queue] = model.Settings{DeferHardIRQs: 7}
	wantConfig(t, "restored around the other writer's knob", want, present(t, b))
	foreign := 0
	for _, k := range report.Knobs {
		if k.Outcome == actuate.OutcomeForeign {
			foreign++
			if k.Queue != first.Queue || k.Knob != actuate.KnobDefer || *k.Found != 7 {
				t.Errorf("foreign knob %+v", k)
			}
		}
	}
	if foreign != 1 {
		t.Errorf("%d foreign knobs, want 1:\n%s", foreign, report)
	}
}

func TestLiveForeignWriteBySysfs(t *testing.T) {
	b := bed(t, 2)
	originals := present(t, b)
	h := mustOpen(t, liveOptions(t, b))
	mustApply(t, h, uniform(originals, tuned))
	writeSysfs(t, b, "napi_defer_hard_irqs", 9)
	theirs := uniform(originals, model.Settings{DeferHardIRQs: 9, GROFlushTimeout: tuned.GROFlushTimeout, IRQSuspendTimeout: tuned.IRQSuspendTimeout})
	got, err := h.Apply(context.Background(), uniform(originals, model.Settings{}))
	if !errors.Is(err, model.ErrForeignWrite) {
		t.Fatalf("apply: %v", err)
	}
	wantConfig(t, "after a sysfs write", theirs, got)
	if len(h.Yielded()) != 2 {
		t.Errorf("yielded %v, want both queues", h.Yielded())
	}
	// Instances made anew take the value that somebody ordered for the
	// device: it must not pass for the kernel's own.
	if err := b.LinkFlap(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustRestore(t, h)
	wantConfig(t, "restored", uniform(originals, model.Settings{DeferHardIRQs: 9}), present(t, b))
}

func TestLiveWithoutCapability(t *testing.T) {
	b := bed(t, 1)
	originals := present(t, b)
	h := mustOpen(t, liveOptions(t, b))
	err := actuate.OnThread(func() error {
		if err := dropCapability(unix.CAP_NET_ADMIN); err != nil {
			return err
		}
		_, err := h.Apply(context.Background(), uniform(originals, tuned))
		return err
	})
	if !errors.Is(err, model.ErrReadOnly) || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("apply: %v", err)
	}
	wantConfig(t, "unchanged", originals, present(t, b))
	mustApply(t, h, uniform(originals, tuned))
	mustRestore(t, h)
}

func TestLiveObserveWritesNothing(t *testing.T) {
	b := bed(t, 1)
	originals := present(t, b)
	o := liveOptions(t, b)
	o.ReadOnly = true
	h := mustOpen(t, o)
	got, err := h.Apply(context.Background(), uniform(originals, tuned))
	if err != nil {
		t.Fatal(err)
	}
	wantConfig(t, "active", originals, got)
	wantConfig(t, "present", originals, present(t, b))
	for _, dir := range []string{o.StateDir, o.RunDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made", dir)
		}
	}
}

func TestLiveStackedInterfaceNamesItsLowerDevice(t *testing.T) {
	b := bed(t, 1)
	mode := driver.MacvlanModeBridge
	withRoute(t, b, func(conn *rtnetlink.Conn) error {
		return conn.Link.New(&rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
			Name: "stacked0", Type: uint32(b.Server().Ifindex),
			Info: &rtnetlink.LinkInfo{Kind: "macvlan", Data: &driver.Macvlan{Mode: &mode}},
		}})
	})
	o := liveOptions(t, b)
	o.Ifaces = []string{"stacked0"}
	_, err := actuate.Open(context.Background(), o)
	if !errors.Is(err, actuate.ErrStacked) || !strings.Contains(err.Error(), "macvlan") || !strings.Contains(err.Error(), b.Server().Ifname) {
		t.Errorf("open: %v", err)
	}
	noState(t, o)
}

// dropCapability takes a capability from the calling thread.
func dropCapability(capability uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[capability/32].Effective &^= 1 << (capability % 32)
	return unix.Capset(&header, &data[0])
}
