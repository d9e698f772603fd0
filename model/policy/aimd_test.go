package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
	"autotune/model/policy"
)

const us = time.Microsecond

func features(rate float64, active model.Settings) model.Features {
	return model.Features{
		Queue: model.Queue{Netns: 1, Ifindex: 2}, Span: time.Second, Windows: 1,
		Active: active, PacketRate: rate, Utilisation: 0.5, CostPerPacket: 20 * us,
		Quantile: 100 * us, Median: 50 * us, Objective: model.Objective{SLO: 250 * us, Quantile: 0.99},
	}
}

// settle shows the policy a load until it knows the setting there.
func settle(p model.Policy, rate float64, active model.Settings) model.Decision {
	var d model.Decision
	for range 8 {
		d = p.Decide(features(rate, active))
		if d.Purpose != model.PurposeHold {
			break
		}
	}
	return d
}

func parse(t testing.TB, spec string) model.Policy {
	t.Helper()
	p, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// told returns features with the outcome of a move.
func told(rate float64, active model.Settings, v model.Verdict, from, to model.Settings, purpose model.Purpose) model.Features {
	f := features(rate, active)
	f.Outcome = model.Outcome{Verdict: v, From: from, To: to, Purpose: purpose}
	return f
}

func TestAIMDClimbsFromStart(t *testing.T) {
	d := settle(parse(t, "aimd:start=50us"), 40_000, model.Settings{})
	want := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	if d.Purpose != model.PurposeCost || d.Settings != want {
		t.Errorf("proposed %v for %s, want %v for cost", d.Settings, d.Purpose, want)
	}
}

func TestAIMDBeginsWhereATimeoutGathersPackets(t *testing.T) {
	p := parse(t, "aimd:start=20us,max=1ms")
	if d := settle(p, 16_000, model.Settings{}); d.Settings.GROFlushTimeout != 125*us {
		t.Errorf("at 16K packets/s began with %v, want 125us", d.Settings)
	}
	p = parse(t, "aimd:start=20us,max=1ms")
	d := settle(p, 10_000, model.Settings{})
	if d.Purpose != model.PurposeHold || !strings.Contains(d.Why, "SLO 250µs allow") {
		t.Errorf("at 10K packets/s, where 200us would break the SLO, proposed %v: %s", d.Settings, d.Why)
	}
	p = parse(t, "aimd:max=400us")
	for range 3 {
		d = p.Decide(batches(40_000, 1.6))
	}
	if d.Settings.GROFlushTimeout != 80*us {
		t.Errorf("at 40K packets/s in polls of 1.6 began with %v, want 80us", d.Settings)
	}
	p = parse(t, "aimd")
	d = settle(p, 5_000, model.Settings{})
	if d.Purpose != model.PurposeHold || !strings.Contains(d.Why, "poll about as often as interrupts do") {
		t.Errorf("at 5K packets/s proposed %v: %s", d.Settings, d.Why)
	}
}

func TestAIMDLeavesItsLeastAsItLeavesInterrupts(t *testing.T) {
	least := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * us}
	if d := settle(parse(t, "aimd:min=20us"), 40_000, least); d.Settings.GROFlushTimeout != 50*us {
		t.Errorf("at 40K packets/s went from 20us to %v, want 50us: %s", d.Settings, d.Why)
	}
	if d := settle(parse(t, "aimd:min=20us,start=20us"), 200_000, least); d.Settings.GROFlushTimeout != 24*us {
		t.Errorf("at 200K packets/s, where 10us gathers packets, went to %v, want 24us: %s", d.Settings, d.Why)
	}
	d := settle(parse(t, "aimd:min=20us"), 5_000, least)
	if d.Purpose != model.PurposeHold || !strings.Contains(d.Why, "poll about as often as interrupts do") {
		t.Errorf("at 5K packets/s proposed %v: %s", d.Settings, d.Why)
	}
}

// batches returns features of plain interrupts whose polls find that many
// packets each.
func batches(rate, perPoll float64) model.Features {
	f := features(rate, model.Settings{})
	f.PacketsPerPoll = perPoll
	return f
}

func TestAIMDDeferCountFollowsTheTimeout(t *testing.T) {
	for flush, want := range map[time.Duration]uint32{10 * us: 100, 20 * us: 100, 50 * us: 40, 200 * us: 10, 400 * us: 5, 900 * us: 5} {
		p := policy.NewAIMD(policy.AIMDOptions{Start: flush, Step: us, Backoff: 0.5, Max: time.Millisecond})
		f := features(1e6, model.Settings{})
		f.Objective.SLO = 10 * time.Millisecond
		var d model.Decision
		for range 4 {
			d = p.Decide(f)
		}
		if d.Settings.GROFlushTimeout != flush || d.Settings.DeferHardIRQs != want {
			t.Errorf("flush %v goes with %v, want defer %d", flush, d.Settings, want)
		}
	}
}

func TestAIMDGoesOnWithoutAVerdictAndDoubles(t *testing.T) {
	p := parse(t, "aimd:start=50us,step=4us,max=200us")
	base := model.Settings{}
	from, at := base, settle(p, 40_000, base).Settings
	var flushes []time.Duration
	f := told(40_000, at, model.VerdictApplied, from, at, model.PurposeCost)
	for range 4 {
		d := p.Decide(f)
		if d.Purpose != model.PurposeCost {
			break
		}
		flushes = append(flushes, d.Settings.GROFlushTimeout)
		from, at = at, d.Settings
		f = told(40_000, at, model.VerdictApplied, from, at, model.PurposeCost)
		f.Objective.SLO = time.Millisecond
	}
	if diff := cmp.Diff([]time.Duration{100 * us, 200 * us}, flushes); diff != "" {
		t.Errorf("climbed (-want +got):\n%s", diff)
	}
}

// confirmAt has the policy climb at a load and keeps the climb.
func confirmAt(p model.Policy, rate float64) model.Settings {
	base := model.Settings{}
	at := settle(p, rate, base).Settings
	p.Decide(told(rate, at, model.VerdictApplied, base, at, model.PurposeCost))
	p.Decide(told(rate, at, model.VerdictKept, base, at, model.PurposeCost))
	return at
}

func TestAIMDReturnsToWhatWasConfirmedAtTheLoad(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	base := model.Settings{}
	settle(p, 5_000, base)
	high := confirmAt(p, 40_000)
	if d := p.Decide(features(5_000, high)); d.Purpose != model.PurposeReturn || d.Settings != base {
		t.Errorf("at the low load proposed %v for %s: %s", d.Settings, d.Purpose, d.Why)
	}
	if d := p.Decide(features(41_000, base)); d.Purpose != model.PurposeReturn || d.Settings != high {
		t.Errorf("at the high load proposed %v for %s: %s", d.Settings, d.Purpose, d.Why)
	}
}

func TestAIMDEntersANewLoadFromItsNeighbour(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	settle(p, 5_000, model.Settings{})
	high := confirmAt(p, 80_000)
	var d model.Decision
	for range 3 {
		d = p.Decide(features(40_000, model.Settings{}))
		if d.Purpose != model.PurposeHold {
			break
		}
	}
	if d.Settings != high || d.Purpose != model.PurposeCost {
		t.Errorf("proposed %v for %s (%s), want %v on trial", d.Settings, d.Purpose, d.Why, high)
	}
}

func TestAIMDRestsAfterAFailedClimbAndDoublesTheRest(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	base := model.Settings{}
	var rests []int
	for range 3 {
		n := 0
		var d model.Decision
		for d = p.Decide(features(40_000, base)); d.Purpose == model.PurposeHold; d = p.Decide(features(40_000, base)) {
			n++
			if n > 1000 {
				t.Fatal("never tried again")
			}
		}
		rests = append(rests, n)
		p.Decide(told(40_000, d.Settings, model.VerdictApplied, base, d.Settings, model.PurposeCost))
		p.Decide(told(40_000, d.Settings, model.VerdictReverted, base, d.Settings, model.PurposeCost))
	}
	if rests[1] < 12 || rests[1] > 20 || rests[2] < 2*rests[1]-4 || rests[2] > 2*rests[1]+4 {
		t.Errorf("rested for %v windows, want about 16 and then twice as long", rests[1:])
	}
}

func TestAIMDRestsLongerAfterACostlyClimb(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	base := model.Settings{}
	at := settle(p, 40_000, base).Settings
	p.Decide(told(40_000, at, model.VerdictApplied, base, at, model.PurposeCost))
	f := told(40_000, base, model.VerdictReverted, base, at, model.PurposeCost)
	f.Outcome.CostChange = 1.5
	p.Decide(f)
	n := 0
	for p.Decide(features(40_000, base)).Purpose == model.PurposeHold && n < 1000 {
		n++
	}
	if n < 140 || n > 160 {
		t.Errorf("rested for %d windows after a window of +150%%, want about 150", n)
	}
}

func TestAIMDBacksOffWhenTheSLOIsBroken(t *testing.T) {
	tests := []struct {
		name        string
		active      time.Duration
		utilisation float64
		want        time.Duration
		purpose     model.Purpose
	}{
		{"by its factor", 100 * us, 0.5, 60 * us, model.PurposeSafety},
		{"to interrupts rather than to what polls as often", 80 * us, 0.5, 0, model.PurposeSafety},
		{"to interrupts below start", 30 * us, 0.5, 0, model.PurposeSafety},
		{"upwards while the CPU is full", 100 * us, 0.9, 104 * us, model.PurposeSafety},
		{"upwards from interrupts", 0, 0.5, 50 * us, model.PurposeSafety},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := parse(t, "aimd")
			active := model.Settings{}
			if tc.active > 0 {
				active = model.Settings{DeferHardIRQs: 20, GROFlushTimeout: tc.active}
			}
			f := features(40_000, active)
			f.Quantile, f.Utilisation = 400*us, tc.utilisation
			for range 2 {
				if d := p.Decide(f); d.Purpose != model.PurposeHold {
					t.Errorf("too few windows gave %v: %s", d.Settings, d.Why)
				}
			}
			d := p.Decide(f)
			if d.Purpose != tc.purpose || d.Settings.GROFlushTimeout != tc.want {
				t.Errorf("proposed %v for %s (%s), want flush %v for %s", d.Settings, d.Purpose, d.Why, tc.want, tc.purpose)
			}
		})
	}
}

func TestAIMDDoesNotClimbForSafetyWhereTimersOutnumberPackets(t *testing.T) {
	p := parse(t, "aimd")
	f := features(5_000, model.Settings{})
	f.Quantile, f.Utilisation = 400*us, 1
	for range 5 {
		if d := p.Decide(f); d.Purpose != model.PurposeHold {
			t.Fatalf("proposed %v for %s: %s", d.Settings, d.Purpose, d.Why)
		}
	}
}

func TestAIMDDoesNotClimbIntoTheSLO(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	for range 10 {
		f := features(40_000, model.Settings{})
		f.Quantile = 240 * us
		if d := p.Decide(f); d.Settings.GROFlushTimeout > 10*us {
			t.Fatalf("at 240us of 250us proposed %v", d.Settings)
		}
	}
}

func TestAIMDKeepsWhatItLearnsByQueue(t *testing.T) {
	p := parse(t, "aimd:start=50us")
	confirmAt(p, 40_000)
	f := features(40_000, model.Settings{})
	f.Queue.Index = 1
	if d := p.Decide(f); d.Purpose != model.PurposeHold {
		t.Errorf("another queue began with %v for %s", d.Settings, d.Purpose)
	}
}

func TestRandomIsUniformAndRepeatable(t *testing.T) {
	p, same, other := parse(t, "random:seed=5"), parse(t, "random:seed=5"), parse(t, "random:seed=6")
	counts := map[time.Duration]int{}
	differ := false
	const n = 16_000
	for range n {
		f := features(1000, model.Settings{})
		d := p.Decide(f)
		if diff := cmp.Diff(d, same.Decide(f)); diff != "" {
			t.Fatalf("the same seed differs:\n%s", diff)
		}
		differ = differ || other.Decide(f).Settings != d.Settings
		if d.Purpose != model.PurposeExploration {
			t.Fatalf("purpose %s", d.Purpose)
		}
		counts[d.Settings.GROFlushTimeout]++
		if got := d.Propensity * float64(len(counts)); got > 1+1e-9 {
			t.Fatalf("propensity %v with %d choices", d.Propensity, len(counts))
		}
	}
	if !differ {
		t.Error("another seed draws the same")
	}
	if counts[0] == 0 || counts[200*us] == 0 {
		t.Errorf("interrupts drawn %d times, the maximum %d", counts[0], counts[200*us])
	}
	want := float64(n) / float64(len(counts))
	for flush, got := range counts {
		// Five standard deviations.
		if math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
			t.Errorf("flush %v drawn %d times, want about %.0f", flush, got, want)
		}
	}
}

func TestAIMDProposesWholeMicroseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy.NewAIMD(policy.DefaultAIMDOptions())
		active := model.Settings{}
		var outcome model.Outcome
		for range 60 {
			f := features(40_000, active)
			f.Quantile = time.Duration(rapid.IntRange(50_000, 300_000).Draw(t, "quantile"))
			f.CostPerPacket = time.Duration(rapid.IntRange(10_000, 20_000).Draw(t, "cost"))
			f.Outcome, outcome = outcome, model.Outcome{}
			d := p.Decide(f)
			if g := d.Settings.GROFlushTimeout; g%us != 0 {
				t.Fatalf("proposed flush %v from %v: %s", g, active, d.Why)
			}
			if d.Settings == active {
				continue
			}
			outcome = model.Outcome{Verdict: model.VerdictKept, From: active, To: d.Settings, Purpose: d.Purpose}
			active = d.Settings
		}
	})
}

// ready returns features of a queue that an application can drive.
func ready(rate float64, active model.Settings) model.Features {
	f := features(rate, active)
	f.Suspension = model.Readiness{Ready: true}
	return f
}

func TestAIMDSuspendsWhereAnApplicationIsReady(t *testing.T) {
	suspended := func(flush time.Duration) model.Settings {
		return model.Settings{DeferHardIRQs: 100, GROFlushTimeout: flush, IRQSuspendTimeout: 20 * time.Millisecond}
	}
	late := func(f model.Features) model.Features {
		f.Quantile = 400 * us
		return f
	}
	tests := []struct {
		name    string
		window  model.Features
		want    model.Settings
		purpose model.Purpose
	}{
		{"for cost while the SLO holds", ready(40_000, model.Settings{}), suspended(20 * us), model.PurposeCost},
		{"for safety where interrupts are late", late(ready(40_000, model.Settings{})), suspended(20 * us), model.PurposeSafety},
		{"at few packets too", late(ready(5_000, model.Settings{})), suspended(20 * us), model.PurposeSafety},
		{"instead of deferral that is late", late(ready(40_000, deferred(50*us))), suspended(20 * us), model.PurposeSafety},
		{"with less timeout where that is late", late(ready(40_000, suspended(20*us))), suspended(12 * us), model.PurposeSafety},
		{"and holds at the least", late(ready(40_000, suspended(8*us))), suspended(8 * us), model.PurposeHold},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := parse(t, "aimd")
			var d model.Decision
			for range 5 {
				if d = p.Decide(tc.window); d.Purpose != model.PurposeHold {
					break
				}
			}
			if d.Settings != tc.want || d.Purpose != tc.purpose {
				t.Errorf("proposed %v for %s (%s), want %v for %s", d.Settings, d.Purpose, d.Why, tc.want, tc.purpose)
			}
		})
	}
}

// An application that has gone, or mixes instances now, cannot be suspended for:
// what was confirmed with it must not be all that is asked for.
func TestAIMDGoesOnByDeferralWhereTheApplicationIsNoLongerReady(t *testing.T) {
	const rate = 40_000
	p := parse(t, "aimd")
	settle(p, rate, model.Settings{})
	suspended := p.Decide(ready(rate, model.Settings{})).Settings
	if suspended.Mode() != model.ModeSuspension {
		t.Fatalf("proposed %v, want suspension", suspended)
	}
	kept := ready(rate, suspended)
	kept.Outcome = model.Outcome{Verdict: model.VerdictKept, To: suspended, Purpose: model.PurposeCost}
	p.Decide(kept)

	alone := suspended
	alone.IRQSuspendTimeout = 0
	if d := p.Decide(features(rate, model.Settings{})); d.Settings != alone || d.Purpose != model.PurposeReturn {
		t.Errorf("proposed %v for %s (%s), want %v as a return", d.Settings, d.Purpose, d.Why, alone)
	}
	// The guards have taken the suspension back, and that is late.
	late := features(rate, alone)
	late.Quantile = 400 * us
	var d model.Decision
	for range 5 {
		if d = p.Decide(late); d.Purpose != model.PurposeHold {
			break
		}
	}
	if d.Purpose != model.PurposeSafety || d.Settings.IRQSuspendTimeout != 0 || d.Settings == alone {
		t.Errorf("proposed %v for %s (%s), want less timeout for safety", d.Settings, d.Purpose, d.Why)
	}
	if d := p.Decide(ready(rate, alone)); d.Settings != suspended || d.Purpose != model.PurposeReturn {
		t.Errorf("with the application back, proposed %v for %s (%s), want %v as a return", d.Settings, d.Purpose, d.Why, suspended)
	}
}

// deferred is deferral alone.
func deferred(flush time.Duration) model.Settings {
	return model.Settings{DeferHardIRQs: 40, GROFlushTimeout: flush}
}

// until returns the first decision that moves, within so many equal windows.
func until(t *testing.T, p model.Policy, f model.Features, windows int) model.Decision {
	t.Helper()
	for range windows {
		if d := p.Decide(f); d.Purpose != model.PurposeHold {
			return d
		}
	}
	t.Fatalf("proposed nothing in %d windows; at last: %s", windows, p.Decide(f).Why)
	return model.Decision{}
}

func TestAIMDDefersWhereSuspensionDidNotHelp(t *testing.T) {
	p := parse(t, "aimd")
	f := ready(40_000, model.Settings{})
	f.Quantile = 400 * us
	d := until(t, p, f, 5)
	if d.Settings.Mode() != model.ModeSuspension || d.Purpose != model.PurposeSafety {
		t.Fatalf("proposed %v for %s (%s), want suspension for safety", d.Settings, d.Purpose, d.Why)
	}
	f.Outcome = model.Outcome{Verdict: model.VerdictReverted, To: d.Settings, Purpose: d.Purpose}
	if d = p.Decide(f); d.Settings.Mode() != model.ModeDeferral || d.Purpose != model.PurposeSafety {
		t.Fatalf("proposed %v for %s (%s), want deferral for safety", d.Settings, d.Purpose, d.Why)
	}
	f.Outcome = model.Outcome{Verdict: model.VerdictReverted, To: d.Settings, Purpose: d.Purpose}
	for n := range 10 {
		if d := p.Decide(f); d.Purpose != model.PurposeHold {
			t.Fatalf("proposed %v again after %d windows: %s", d.Settings, n, d.Why)
		}
		f.Outcome = model.Outcome{}
	}
}

func TestAIMDTriesSuspensionWhereDeferralGoesNoFurther(t *testing.T) {
	const rate = 40_000
	p := parse(t, "aimd:start=50us,max=50us")
	settle(p, rate, deferred(50*us))
	d := until(t, p, ready(rate, deferred(50*us)), 5)
	if d.Settings.Mode() != model.ModeSuspension || d.Settings.GROFlushTimeout != 50*us || d.Purpose != model.PurposeCost {
		t.Errorf("proposed %v for %s (%s), want suspension at the same timeout, for cost", d.Settings, d.Purpose, d.Why)
	}
	f := ready(rate, deferred(50*us))
	f.Outcome = model.Outcome{Verdict: model.VerdictReverted, To: d.Settings, Purpose: model.PurposeCost}
	for n := range 10 {
		if d := p.Decide(f); d.Settings.Mode() == model.ModeSuspension {
			t.Fatalf("proposed %v again after %d windows: %s", d.Settings, n, d.Why)
		}
		f.Outcome = model.Outcome{}
	}
}
