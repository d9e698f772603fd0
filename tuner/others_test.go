package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

func TestWindowsInWhichOthersTakeTheCPUDecideNothing(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
		o.HoldEvery = -1
	})
	run := func(n int, busy time.Duration) (asked int) {
		before := len(b.policy.seen)
		for range n {
			s := b.sample(same(steady()))
			s.CPUs = []model.CPUSample{{CPU: 1, Busy: busy}}
			b.step(s)
		}
		return len(b.policy.seen) - before
	}
	if got := run(8, 500*time.Millisecond); got != 8 {
		t.Errorf("the policy was asked in %d of 8 windows, others took what they usually do", got)
	}
	if got := run(4, time.Second); got != 0 {
		t.Errorf("the policy was asked in %d of 4 windows of which others took half", got)
	}
	b.wantEntry("evidence", model.VerdictHeld, "others took 50% of the CPU more than usual")
	if got := run(4, time.Second); got != 4 {
		t.Errorf("the policy was asked in %d of 4 windows, what others take has become usual", got)
	}
}
