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

// What others take again and again is what the queue has to live with, however
// short each time is.
func TestOthersSpoilAFifthOfTheWindowsAtMost(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
	})
	run := func(n int, busy time.Duration) {
		for range n {
			s := b.sample(same(steady()))
			s.CPUs = []model.CPUSample{{CPU: 1, Busy: busy}}
			b.step(s)
		}
	}
	run(8, 450*time.Millisecond)
	before := len(b.policy.seen)
	const bursts = 20
	for range bursts {
		run(3, time.Second)
		run(3, 450*time.Millisecond)
	}
	// Of these windows four are at once.
	if asked, least := len(b.policy.seen)-before, bursts*6*4/5-4; asked < least {
		t.Errorf("the policy was asked in %d of %d windows, want at least %d", asked, bursts*6, least)
	}
}

// What fills the CPU after a move that was granted without a trial, and makes
// packets dearer, may be the move.
func TestWhatAGrantedMoveMadeDearerIsNotOfOthers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cost  time.Duration
		asked bool
	}{
		{"dearer", 30 * us, true},
		{"no dearer", 15 * us, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(25 * us))
			b := newBench(t, 1, p.decide, func(o *tuner.Options) {
				o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
			})
			step := func(show func(model.Queue, model.Settings) window, busy time.Duration) {
				s := b.sample(show)
				s.CPUs = []model.CPUSample{{CPU: 1, Busy: busy}}
				b.step(s)
			}
			for range 20 {
				if step(p.show, 500*time.Millisecond); b.kernel.state[testQueue(0)] != (model.Settings{}) {
					break
				}
			}
			b.wantState(deferralOf(25 * us))
			b.wantNoEntry("trial", model.VerdictHeld)
			step(p.show, 500*time.Millisecond)
			before := len(b.policy.seen)
			step(func(q model.Queue, s model.Settings) window {
				w := p.show(q, s)
				w.cost = tc.cost
				return w
			}, time.Second)
			if asked := len(b.policy.seen) > before; asked != tc.asked {
				t.Errorf("the policy was asked: %v, want %v", asked, tc.asked)
			}
		})
	}
}
