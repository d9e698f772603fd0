package tuner_test

import (
	"math"
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// prophet knows what each flush timeout costs and delays at 20,000 packets per
// second, and may lie about it.
type prophet struct {
	truth func(model.Settings) window
	// lie changes a forecast before it is told.
	lie func(model.Settings, *model.Forecast)
	// moves are proposed in turn, each once the one before is in place and was
	// seen for a window; after is the number of windows before the first.
	moves []model.Settings
	after int
	// purpose is that of all moves.
	purpose model.Purpose

	windows int
}

func knowing(moves ...model.Settings) *prophet {
	return &prophet{
		truth: func(s model.Settings) window {
			w := steady()
			w.cost = 20*us - s.GROFlushTimeout/10
			w.delay += s.GROFlushTimeout / 2
			return w
		},
		lie: func(model.Settings, *model.Forecast) {}, moves: moves, after: 4, purpose: model.PurposeCost,
	}
}

func (p *prophet) foresee(s model.Settings) *model.Forecast {
	w := p.truth(s)
	f := &model.Forecast{
		PacketRate: float64(w.packets), CostPerPacket: w.cost, CostError: 0.02, Delay: w.delay, DelayError: w.delay / 20, Utilisation: 0.5,
	}
	p.lie(s, f)
	return f
}

func (p *prophet) decide(f model.Features) model.Decision {
	p.windows++
	if p.windows > p.after && len(p.moves) > 0 {
		next := p.moves[0]
		if f.Active == next {
			p.moves = p.moves[1:]
		} else {
			return model.Decision{Settings: next, Purpose: p.purpose, Why: "foreseen", Forecast: p.foresee(next)}
		}
	}
	return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: "nothing to do", Forecast: p.foresee(f.Active)}
}

func (p *prophet) show(_ model.Queue, s model.Settings) window { return p.truth(s) }

func (b *bench) wantNoEntry(guard string, v model.Verdict) {
	b.t.Helper()
	if e, ok := b.journal.find(guard, v); ok {
		b.t.Errorf("guard %s says at %v: %s", guard, e.At, e.Why)
	}
}

func TestForecastsThatHoldMakeTrialsUnnecessary(t *testing.T) {
	p := knowing(deferralOf(25*us), deferralOf(50*us), deferralOf(100*us))
	b := newBench(t, 1, p.decide, nil)
	// Four windows, then for each move one that settles and one that is seen.
	b.run(4+3*3, p.show)
	b.wantState(deferralOf(100 * us))
	b.wantNoEntry("trial", model.VerdictHeld)
	b.wantNoEntry("trial", model.VerdictKept)
}

func TestForecastsForWhatAHeldMoveLeavesEarnCredit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		said    bool
		granted bool
	}{
		{"said", true, true},
		{"not said", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(25 * us))
			p.after = 0
			decide := func(f model.Features) model.Decision {
				d := p.decide(f)
				if tc.said && d.Purpose != model.PurposeHold {
					d.Otherwise = p.foresee(f.Active)
				}
				return d
			}
			b := newBench(t, 1, decide, func(o *tuner.Options) { o.Trial.Reference = 6 })
			b.run(5, p.show)
			want := model.Settings{}
			if tc.granted {
				want = deferralOf(25 * us)
			}
			b.wantState(want)
		})
	}
}

func TestForecastsEarnNothing(t *testing.T) {
	tests := []struct {
		name   string
		lie    func(model.Settings, *model.Forecast)
		change func(*tuner.Options)
	}{
		{"that are wrong about the delay", func(_ model.Settings, f *model.Forecast) { f.Delay = f.Delay * 3 / 2 }, nil},
		{"that are wrong about the cost", func(_ model.Settings, f *model.Forecast) { f.CostPerPacket = f.CostPerPacket * 3 / 2 }, nil},
		{"that allow for any delay", func(_ model.Settings, f *model.Forecast) { f.DelayError = time.Second }, nil},
		{"that allow for any cost", func(_ model.Settings, f *model.Forecast) { f.CostError = 10 }, nil},
		{"that are no numbers", func(_ model.Settings, f *model.Forecast) { f.CostError, f.PacketRate = math.NaN(), math.NaN() }, nil},
		{"for a load that never came", func(_ model.Settings, f *model.Forecast) { f.PacketRate = 1e6 }, nil},
		{"where credit is turned off", func(model.Settings, *model.Forecast) {}, func(o *tuner.Options) { o.Trial.Credit = -1 }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(25*us), deferralOf(50*us))
			p.lie = tc.lie
			b := newBench(t, 1, p.decide, tc.change)
			b.run(8, p.show)
			b.wantState(deferralOf(25 * us))
			b.wantEntry("trial", model.VerdictHeld, "measuring")
		})
	}
}

func TestAGrantedMoveIsTakenBackWhenItsForecastsFail(t *testing.T) {
	p := knowing(deferralOf(50 * us))
	honest := p.truth
	p.truth = func(s model.Settings) window {
		w := honest(s)
		if s.GROFlushTimeout > 0 {
			w.cost = 30 * us
		}
		return w
	}
	p.lie = func(s model.Settings, f *model.Forecast) {
		if s.GROFlushTimeout > 0 {
			f.CostPerPacket = 15 * us
		}
	}
	b := newBench(t, 1, p.decide, nil)
	b.run(4+2, p.show)
	b.wantState(deferralOf(50 * us))
	b.run(3, p.show)
	b.wantState(model.Settings{})
	e := b.wantEntry("trial", model.VerdictReverted, "the forecasts failed in 2 windows")
	if e.Purpose != model.PurposeReturn {
		t.Errorf("it was taken back for %s", e.Purpose)
	}
	b.run(2, p.show)
	last := b.policy.seen[len(b.policy.seen)-1].Outcome
	for i := len(b.policy.seen) - 1; i >= 0 && last.Verdict != model.VerdictReverted; i-- {
		last = b.policy.seen[i].Outcome
	}
	if last.Verdict != model.VerdictReverted || math.Abs(last.CostChange-0.5) > 0.01 {
		t.Errorf("the policy was told %+v, want reverted with a cost change of 0.5", last)
	}
}

func TestAForecastIsCarriedOverToTheLoadThatCame(t *testing.T) {
	for _, tc := range []struct {
		name       string
		elasticity float64
		granted    bool
	}{
		{"by the right elasticity", -0.5, true},
		{"by a wrong one", 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(50 * us))
			p.after = 8
			windows := 0
			show := func(q model.Queue, s model.Settings) window {
				w := p.show(q, s)
				if windows++; windows%2 == 0 {
					// Load moves in every window.
					w.packets = 30_000
					w.cost = time.Duration(float64(w.cost) * math.Pow(1.5, -0.5))
				}
				return w
			}
			p.lie = func(_ model.Settings, f *model.Forecast) { f.CostElasticity = tc.elasticity }
			b := newBench(t, 1, p.decide, func(o *tuner.Options) { o.Cooldown.Rise = 10 })
			b.run(12, show)
			b.wantState(deferralOf(50 * us))
			_, tried := b.journal.find("trial", model.VerdictHeld)
			if tried == tc.granted {
				t.Errorf("on trial: %v", tried)
			}
		})
	}
}

func TestASafeMoveOutlivesAChangeOfLoad(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	windows := 0
	b.run(8, func(_ model.Queue, s model.Settings) window {
		w := steady()
		w.delay = 400 * us
		if s.GROFlushTimeout > 0 {
			w.delay = 200 * us
		}
		if windows++; windows > 3 {
			w.packets *= 2
		}
		return w
	})
	b.wantState(deferralOf(50 * us))
	b.wantNoEntry("trial", model.VerdictAborted)
}

// What answers a jump of load is held against the window of the jump, not against
// the quiet before it.
func TestAnAnswerToAJumpOfLoadStaysWhereItHelped(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		taken bool
	}{
		{"less delay than in the jump", 400 * us, false},
		{"more delay than in the jump", 700 * us, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(25 * us))
			p.purpose, p.after = model.PurposeSafety, 8
			honest := p.truth
			p.truth = func(s model.Settings) window {
				w := honest(s)
				if p.windows >= 7 {
					w.packets *= 2
					w.delay = 600 * us
					if s == deferralOf(25*us) {
						w.delay = tc.after
					}
				}
				return w
			}
			p.lie = func(s model.Settings, f *model.Forecast) {
				if s == deferralOf(25*us) {
					f.Delay, f.DelayError = 200*us, 10*us
				}
			}
			b := newBench(t, 1, p.decide, func(o *tuner.Options) { o.Cooldown.Rise = 10 })
			b.kernel.state[b.queues[0]] = deferralOf(50 * us)
			b.run(13, p.show)
			if _, taken := b.journal.find("trial", model.VerdictReverted); taken != tc.taken {
				t.Errorf("taken back: %v, want %v", taken, tc.taken)
			}
		})
	}
}

func TestATrustedForecastMayLowerTheTimeoutOfAFullCPU(t *testing.T) {
	for _, tc := range []struct {
		name        string
		utilisation float64
		want        time.Duration
	}{
		{"where it foresees room", 0.85, 60 * us},
		{"but not where it foresees none", 0.95, 100 * us},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := knowing(deferralOf(60 * us))
			p.purpose = model.PurposeSafety
			p.truth = func(s model.Settings) window {
				w := steady()
				w.delay += 2 * s.GROFlushTimeout
				return w
			}
			p.lie = func(_ model.Settings, f *model.Forecast) { f.Utilisation = tc.utilisation }
			b := newBench(t, 1, p.decide, func(o *tuner.Options) {
				o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
			})
			b.kernel.state[b.queues[0]] = deferralOf(100 * us)
			for range 8 {
				s := b.sample(p.show)
				s.CPUs = []model.CPUSample{{CPU: 1, Busy: 850 * time.Millisecond}}
				b.step(s)
			}
			b.wantState(deferralOf(tc.want))
		})
	}
}

// A policy that foretells well while it waits, and then moves at random with
// forecasts to match its wishes, is stopped within the windows of an audit.
func TestAFalseProphetIsStopped(t *testing.T) {
	p := knowing()
	p.lie = func(s model.Settings, f *model.Forecast) {
		if s.GROFlushTimeout > 0 {
			f.Delay = 100 * us
		}
	}
	for i := range 40 {
		p.moves = append(p.moves, deferralOf(time.Duration(100+10*i)*us))
	}
	b := newBench(t, 1, p.decide, nil)
	late := 0
	b.run(200, func(q model.Queue, s model.Settings) window {
		w := p.show(q, s)
		w.delay = 100*us + 3*s.GROFlushTimeout
		if w.delay > 250*us {
			late++
		}
		return w
	})
	// Three reverts within 60 windows blow the breaker.
	if late > 60 {
		t.Errorf("%d of 200 windows were above the SLO", late)
	}
}
