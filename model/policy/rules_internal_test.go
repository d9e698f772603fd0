package policy

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestSettingsFor(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	deferred := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	suspended := deferred
	suspended.IRQSuspendTimeout = 20 * ms
	steered := suspended
	steered.BusyPoll = model.BusyPoll{Budget: 64, Prefer: true}
	short := suspended
	short.IRQSuspendTimeout = 8 * ms
	tests := []struct {
		name   string
		mode   model.Mode
		flush  time.Duration
		ready  model.Readiness
		active model.Settings
		want   model.Settings
	}{
		{"interrupts", model.ModeInterrupts, 50 * us, model.Readiness{Ready: true}, suspended, model.Settings{}},
		{"no timeout", model.ModeSuspension, 0, model.Readiness{Ready: true}, suspended, model.Settings{}},
		{"deferral", model.ModeDeferral, 50 * us, model.Readiness{Ready: true, Steered: true}, suspended, deferred},
		{"suspension", model.ModeSuspension, 50 * us, model.Readiness{Ready: true}, model.Settings{}, suspended},
		{"suspension of a selected application", model.ModeSuspension, 50 * us, model.Readiness{Ready: true, Steered: true}, model.Settings{}, steered},
		{"suspension of nobody", model.ModeSuspension, 50 * us, model.Readiness{Why: "nobody"}, model.Settings{}, deferred},
		{"a suspend timeout in the safe range stays", model.ModeSuspension, 50 * us, model.Readiness{Ready: true}, short, short},
		{"one outside does not", model.ModeSuspension, 50 * us, model.Readiness{Ready: true}, model.Settings{IRQSuspendTimeout: ms}, suspended},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := model.Features{Active: tc.active, Suspension: tc.ready}
			if diff := cmp.Diff(tc.want, settingsFor(tc.mode, tc.flush, f)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeferralIsBackAtInterruptsWithinTwoMilliseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flush := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "flush"))
		n := deferFor(flush)
		if n < 5 || n > 100 {
			t.Fatalf("%d empty polls", n)
		}
		if n > 5 && time.Duration(n)*flush > deferredFor {
			t.Fatalf("%d empty polls of %v last %v", n, flush, time.Duration(n)*flush)
		}
	})
}

func TestNearestChoice(t *testing.T) {
	c := choices(gridMost)
	if c[0] != 0 || c[1] != gridStart || c[len(c)-1] != gridMost {
		t.Fatalf("choices %v", c)
	}
	for i, flush := range c {
		if got := nearest(c, flush); got != i {
			t.Errorf("nearest to %v is %v", flush, c[got])
		}
	}
	if got := nearest(c, time.Nanosecond); got != 1 {
		t.Errorf("nearest to 1ns is %v; only zero is plain interrupts", c[got])
	}
	if got := nearest(c, math.MaxInt64); got != len(c)-1 {
		t.Errorf("nearest to the largest is %v", c[got])
	}
}
