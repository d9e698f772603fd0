package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

func TestStaticOrdersPublishedCases(t *testing.T) {
	const ms = time.Millisecond
	suspend20 := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond, IRQSuspendTimeout: 20 * ms}
	preferring := suspend20
	preferring.BusyPoll = model.BusyPoll{Budget: 64, Prefer: true}
	napibusy := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond, BusyPoll: model.BusyPoll{Span: 64 * time.Microsecond, Budget: 64, Prefer: true}}
	tests := []struct {
		name, spec string
		ready      model.Readiness
		want       model.Settings
	}{
		{"interrupts", "static:case=base", model.Readiness{}, model.Settings{}},
		{"deferral", "static:case=defer50", model.Readiness{}, model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}},
		{"suspension of a selected application", "static:case=suspend20", model.Readiness{Ready: true, Steered: true}, preferring},
		{"suspension of an application that prefers by itself", "static:case=suspend20", model.Readiness{Ready: true}, suspend20},
		// The readiness guard refuses it, with the reason.
		{"suspension of nobody", "static:case=suspend20", model.Readiness{Why: "no application"}, preferring},
		{"busy polling", "static:case=napibusy", model.Readiness{Ready: true}, napibusy},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := model.Features{Active: model.Settings{DeferHardIRQs: 7, GROFlushTimeout: ms}, Suspension: tc.ready}
			d := parse(t, tc.spec).Decide(f)
			if diff := cmp.Diff(tc.want, d.Settings); diff != "" || d.Purpose != model.PurposeOrder {
				t.Errorf("purpose %s, settings (-want +got):\n%s", d.Purpose, diff)
			}
			f.Active = d.Settings
			if d := parse(t, tc.spec).Decide(f); d.Purpose != model.PurposeHold {
				t.Errorf("once in place it still asks for %v: %s", d.Settings, d.Why)
			}
		})
	}
}
