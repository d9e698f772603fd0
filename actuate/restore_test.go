package actuate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRestoreByKnob(t *testing.T) {
	original := model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 11, IRQSuspendTimeout: 0}
	for _, tt := range []struct {
		name    string
		kind    memkernel.Driver
		happens func(*machine)
		want    []actuate.Outcome
		after   model.Settings
		open    bool
	}{
		{
			name: "nothing happened since", kind: memkernel.Veth(), happens: func(*machine) {},
			want: []actuate.Outcome{"restored", "restored", "restored"}, after: original,
		},
		{
			name: "somebody restored it by hand", kind: memkernel.Veth(),
			happens: func(m *machine) { m.device.Write(0, original) },
			want:    []actuate.Outcome{"unchanged", "unchanged", "unchanged"}, after: original,
		},
		{
			name: "another writer has one knob", kind: memkernel.Veth(),
			happens: func(m *machine) {
				m.device.Write(0, model.Settings{DeferHardIRQs: tuned.DeferHardIRQs, GROFlushTimeout: 777, IRQSuspendTimeout: tuned.IRQSuspendTimeout})
			},
			want: []actuate.Outcome{"restored", "foreign", "restored"}, after: model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 777},
		},
		{
			name: "made anew with the defaults and a stale suspend timeout", kind: memkernel.Veth(),
			happens: func(m *machine) { m.device.Down(); m.device.Up() },
			want:    []actuate.Outcome{"restored", "restored", "restored"}, after: original,
		},
		{
			name: "made anew without a stale value", kind: memkernel.Driver{},
			happens: func(m *machine) { m.device.Down(); m.device.Up() },
			want:    []actuate.Outcome{"restored", "restored", "unchanged"}, after: original,
		},
		{
			name: "kept over a flap", kind: memkernel.Virtio(),
			happens: func(m *machine) { m.device.Down(); m.device.Up() },
			want:    []actuate.Outcome{"restored", "restored", "restored"}, after: original,
		},
		{
			name: "made anew after somebody wrote the device-level values", kind: memkernel.Veth(),
			happens: func(m *machine) {
				m.device.WriteSysfs(actuate.Defaults{DeferHardIRQs: 9, GROFlushTimeout: 99})
				m.device.Down()
				m.device.Up()
			},
			want: []actuate.Outcome{"foreign", "foreign", "restored"}, after: model.Settings{DeferHardIRQs: 9, GROFlushTimeout: 99},
		},
		{
			name: "the interface is down", kind: memkernel.Virtio(),
			happens: func(m *machine) { m.device.Down() },
			want:    []actuate.Outcome{"link-down", "link-down", "link-down"}, after: tuned, open: true,
		},
		{
			name: "the interface is gone", kind: memkernel.Veth(),
			happens: func(m *machine) { m.device.Remove() },
			want:    []actuate.Outcome{"gone", "gone", "gone"}, after: tuned,
		},
		{
			name: "the index is another device's now", kind: memkernel.Veth(),
			happens: func(m *machine) { m.device.Become("other0", "02:ff:ff:ff:ff:ff") },
			want:    []actuate.Outcome{"gone", "gone", "gone"}, after: tuned,
		},
		{
			name: "the address was changed", kind: memkernel.Veth(),
			happens: func(m *machine) { m.device.SetMAC("02:ff:ff:ff:ff:ff") },
			want:    []actuate.Outcome{"restored", "restored", "restored"}, after: original,
		},
		{
			name: "the namespace is gone", kind: memkernel.Veth(),
			happens: func(m *machine) { m.DeleteNamespace(m.ns) },
			want:    []actuate.Outcome{"gone", "gone", "gone"}, after: tuned,
		},
		{
			name: "another namespace has the number", kind: memkernel.Veth(),
			happens: func(m *machine) { m.ReplaceNamespace(m.ns) },
			want:    []actuate.Outcome{"gone", "gone", "gone"}, after: tuned,
		},
		{
			name: "the kernel refuses", kind: memkernel.Veth(),
			happens: func(m *machine) {
				m.Fault = func(op memkernel.Op) error {
					if op == memkernel.OpSet {
						return fmt.Errorf("napi-set: %w: %w", unix.EPERM, model.ErrReadOnly)
					}
					return nil
				}
			},
			want: []actuate.Outcome{"failed", "failed", "failed"}, after: tuned, open: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, 1, tt.kind)
			m.device.Write(0, original)
			m.crashed(t, "a", tuned)
			tt.happens(m)
			report := m.restore(t, "a")
			if diff := cmp.Diff(tt.want, outcomes(report)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s\n%s", diff, report)
			}
			if got := m.device.Settings(0); got != tt.after {
				t.Errorf("left at %v, want %v", got, tt.after)
			}
			if report.Settled == tt.open {
				t.Errorf("settled %v\n%s", report.Settled, report)
			}
			// Once more is harmless, and knows what the first left to do.
			m.Fault = nil
			again := m.restore(t, "a")
			if tt.open && len(again.Knobs) == 0 || !tt.open && len(again.Knobs) != 0 {
				t.Errorf("once more:\n%s", again)
			}
		})
	}
}

func TestRestoreAfterARebootWritesNothing(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	m.crashed(t, "a", tuned)
	m.Reboot()
	m.device.Write(0, tuned)
	report := m.restore(t, "a")
	if !report.Settled || len(report.Knobs) != 0 || !strings.Contains(report.Note, "started anew") {
		t.Errorf("report %+v", report)
	}
	if got := m.device.Settings(0); got != tuned {
		t.Errorf("written: %v", got)
	}
	if _, err := os.Stat(filepath.Join(m.root, "a", "baseline.json.earlier-boot")); err != nil {
		t.Errorf("the state was not set aside: %v", err)
	}
}

func TestOriginalsBeyondTheBoundsComeBack(t *testing.T) {
	m := newMachine(t, 1, memkernel.Veth())
	original := model.Settings{DeferHardIRQs: 1, GROFlushTimeout: 5 * time.Second}
	m.device.Write(0, original)
	h, err := actuate.Open(context.Background(), m.options("a"))
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, h, m.want(tuned))
	mustApply(t, h, m.want(original))
	mustApply(t, h, m.want(tuned))
	mustRestore(t, h)
	if got := m.device.Settings(0); got != original {
		t.Errorf("left at %v", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}
