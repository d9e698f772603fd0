package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

func TestReadiness(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	context := func(prefer bool, ids ...uint32) []model.AppSample {
		return []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: prefer, NAPIIDs: ids}}}}
	}
	polling := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * us, BusyPoll: model.BusyPoll{Span: 64 * us, Budget: 64, Prefer: true}}
	// What is left of the two without suspension and busy polling.
	deferral := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	alone := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * us}
	selected := func(apps []model.AppSample) []model.AppSample {
		apps[0].Selected = true
		return apps
	}
	tests := []struct {
		name     string
		settings model.Settings
		apps     []model.AppSample
		why      string // empty when allowed
		// rest is what an order comes to that is not carried out as a whole.
		rest model.Settings
	}{
		{"a context of this NAPI that prefers busy polling allows it", suspend, context(true, 8193), "", suspend},
		{"no preference forbids it", suspend, context(false, 8193), "no application was seen to prefer busy polling on NAPI 8193", deferral},
		{"a mixed context forbids it", suspend, context(true, 8193, 8194), "mixes sockets", deferral},
		{"a context of another NAPI forbids it", suspend, context(true, 8194), "no application was seen to prefer", deferral},
		{"no application forbids it", suspend, []model.AppSample{}, "no application was seen to prefer", deferral},
		{"unobserved applications forbid it", suspend, nil, "were not observed", deferral},
		{"busy polling is set on selected applications", polling, selected(context(false, 8193)), "", polling},
		{"and not on those that prefer it by themselves", polling, context(true, 8193), "usecs=64µs,budget=64,prefer=on refused: applications prefer busy polling by themselves", alone},
		{"nor where there is none", polling, []model.AppSample{}, "no application was seen to prefer", alone},
		{"it needs defer", model.Settings{GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}, context(true, 8193), "no effect without defer and flush", model.Settings{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, hold, func(o *tuner.Options) { o.Policy = policy.NewStatic(tc.settings) })
			s := b.sample(same(steady()))
			s.Apps = tc.apps
			b.step(s)
			b.wantState(tc.rest)
			if tc.why == "" {
				return
			}
			if tc.rest != (model.Settings{}) {
				e := b.wantEntry("readiness", model.VerdictApplied, "by deferral alone, ")
				if e.Proposed != tc.settings || e.To != tc.rest {
					t.Errorf("ordered %v, applied %v", e.Proposed, e.To)
				}
				s = b.sample(same(steady()))
				s.Apps = tc.apps
				b.step(s)
				b.wantState(tc.rest)
			}
			b.wantEntry("readiness", model.VerdictRefused, tc.why)
		})
	}
}

func TestReadinessRefusesAMoveThatIsToBeJudgedByItsEffect(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeCost), nil)
	for range 6 {
		s := b.sample(same(steady()))
		s.Apps = []model.AppSample{}
		b.step(s)
	}
	b.wantState(model.Settings{})
	b.wantEntry("readiness", model.VerdictRefused, "no application was seen to prefer")
}

func TestReadinessTakesSuspendBackWhenTheApplicationLeaves(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeOrder), nil)
	apps := []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: true, NAPIIDs: []uint32{8193}}}}}
	s := b.sample(same(steady()))
	s.Apps = apps
	b.step(s)
	b.wantState(suspend)
	for range 2 {
		s = b.sample(same(steady()))
		s.Apps = []model.AppSample{}
		b.step(s)
	}
	b.wantState(model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us})
	b.wantEntry("readiness", model.VerdictApplied, "suspend is taken back")
}
