package tuner_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
	"autotune/tuner"
)

// number returns what a guard compared in a decision.
func number(t *testing.T, e tuner.Entry, guard, name string) (tuner.GuardStep, tuner.GuardNumber) {
	t.Helper()
	for _, s := range e.Guards {
		for _, n := range s.Numbers {
			if s.Guard == guard && n.Name == name {
				return s, n
			}
		}
	}
	t.Fatalf("%s compared no %s in %+v", guard, name, e.Guards)
	return tuner.GuardStep{}, tuner.GuardNumber{}
}

func TestTheJournalHasTheStepThatTheSLOLeavesRoomFor(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ask     model.Settings
		guard   string
		verdict model.Verdict
	}{
		{"within it", deferralOf(120 * us), "", tuner.GuardPassed},
		{"beyond it", deferralOf(200 * us), "step-limit", tuner.GuardChanged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(tc.ask, model.PurposeSafety), nil)
			b.run(1, same(steady()))
			step, got := number(t, b.wantEntry(tc.guard, model.VerdictApplied, ""), "step-limit", "gro_flush_timeout_ns")
			want := tuner.GuardNumber{Name: "gro_flush_timeout_ns", Value: float64(tc.ask.GROFlushTimeout), Limit: float64(129 * us)}
			if diff := cmp.Diff(want, got); diff != "" || step.Verdict != tc.verdict {
				t.Errorf("%s, want %s (-want +got):\n%s", step.Verdict, tc.verdict, diff)
			}
		})
	}
}

func TestTheJournalCountsTheWindowsThatATrialCanCompareWith(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	b.run(2, same(steady()))
	other := steady()
	other.packets *= 3
	b.run(2, same(other))
	held := 0
	for _, e := range *b.journal {
		var have, need int
		if n, _ := fmt.Sscanf(e.Why, "%d of %d windows at this load", &have, &need); n < 2 {
			continue
		}
		held++
		_, got := number(t, e, "trial", "windows_to_compare_with")
		want := tuner.GuardNumber{Name: "windows_to_compare_with", Value: float64(have), Limit: float64(need), Least: true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q at %v (-want +got):\n%s", e.Why, e.At, diff)
		}
	}
	if held < 3 {
		t.Errorf("%d decisions were held for want of windows, want 3 at least", held)
	}
}
