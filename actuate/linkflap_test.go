package actuate_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// TestLinkFlapSamples goes through the field's listings of one NAPI instance
// before and after it was set and its link flapped.
func TestLinkFlapSamples(t *testing.T) {
	set := model.Settings{DeferHardIRQs: 100}
	for _, tt := range []struct {
		file    string
		kind    memkernel.Driver
		rebinds int
	}{
		{"4_up_driver_with_config.json", memkernel.Driver{Persistent: true}, 0},
		{"4_up_driver_without_config.json", memkernel.Driver{}, 1},
	} {
		t.Run(tt.file, func(t *testing.T) {
			m := newMachine(t, 1, tt.kind)
			wantSample(t, m, "1_before.json")
			h, err := actuate.Open(context.Background(), m.options("a"))
			if err != nil {
				t.Fatal(err)
			}
			mustApply(t, h, m.want(set))
			wantSample(t, m, "2_after_set.json")
			m.device.Down()
			wantSample(t, m, "3_down.json")
			if _, err := h.Apply(context.Background(), m.want(set)); !errors.Is(err, model.ErrLinkDown) {
				t.Errorf("apply while down: %v", err)
			}
			m.device.Up()
			wantSample(t, m, tt.file)
			if _, err := h.NAPIs(context.Background()); err != nil {
				t.Fatal(err)
			}
			events, _ := h.Events()
			if len(events) != tt.rebinds {
				t.Errorf("rebinds %v, want %d", events, tt.rebinds)
			}
			// The saved original stays, and the setting only comes back when
			// it is wanted.
			if got := h.Originals()[m.device.Queue(0)]; got != (model.Settings{}) {
				t.Errorf("original %v", got)
			}
			mustApply(t, h, m.want(set))
			mustRestore(t, h)
			if got := m.device.Settings(0); got != (model.Settings{}) {
				t.Errorf("left at %v", got)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// wantSample compares the device with a listing of the field: its values, and
// by how much its ID has moved.
func wantSample(t *testing.T, m *machine, file string) {
	t.Helper()
	type listing struct {
		Defer   uint32        `json:"defer-hard-irqs"`
		Flush   time.Duration `json:"gro-flush-timeout"`
		Suspend time.Duration `json:"irq-suspend-timeout"`
		ID      uint32        `json:"id"`
	}
	var want []listing
	readJSON(t, filepath.Join("testdata/linkflap", file), &want)
	napis, err := m.ns.NAPIs(m.device.Link().Index)
	if err != nil {
		t.Fatal(err)
	}
	var got []listing
	for _, n := range napis {
		got = append(got, listing{*n.DeferHardIRQs, *n.GROFlushTimeout, *n.IRQSuspendTimeout, n.ID - 8193 + 65})
	}
	if len(want) == 0 {
		want = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
	defaults, err := m.ns.Defaults(m.device.Link())
	if err != nil || defaults != (actuate.Defaults{}) {
		t.Errorf("%s: device-level values %v, %v; the sample reads 0 in every step", file, defaults, err)
	}
}
