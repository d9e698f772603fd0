package actuate

import (
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func TestSuspensionIsNeverOnWithoutDeferral(t *testing.T) {
	on := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: time.Millisecond, IRQSuspendTimeout: time.Second}
	deferral := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: time.Millisecond}
	for _, tt := range []struct {
		name     string
		from, to model.Settings
		want     []netdev.NAPIUpdate
	}{
		{"nothing to do", on, on, nil},
		{"on: deferral first", model.Settings{}, on, []netdev.NAPIUpdate{update(on, KnobDefer, KnobFlush), update(on, KnobSuspend)}},
		{"off: suspension first", on, model.Settings{}, []netdev.NAPIUpdate{update(model.Settings{}, KnobSuspend), update(model.Settings{}, KnobDefer, KnobFlush)}},
		{"only what changes", deferral, on, []netdev.NAPIUpdate{update(on, KnobSuspend)}},
		{"one knob", deferral, model.Settings{DeferHardIRQs: 100}, []netdev.NAPIUpdate{update(model.Settings{}, KnobFlush)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, steps(tt.from, tt.to)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
