package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
	"autotune/model/policy"
)

// law is a queue whose cost and delay follow smooth laws that are not those
// that greybox assumes, with a little noise.
type law struct {
	random *rand.Rand
	// scale multiplies the cost and way adds to the delay.
	scale float64
	way   time.Duration
	ready bool
	// busyPolling is what suspension costs more than deferral.
	busyPolling float64
}

func newLaw(seed uint64) *law {
	return &law{random: rand.New(rand.NewPCG(seed, 3)), scale: 1, way: 100 * time.Microsecond, busyPolling: 1.05}
}

func (l *law) features(queue int, rate float64, active model.Settings, objective model.Objective) model.Features {
	g := active.GROFlushTimeout.Seconds()
	if active.Mode() == model.ModeInterrupts {
		g = 0
	}
	batch := math.Sqrt(1 + (rate*g)*(rate*g))
	cost := 3000 + 4000/batch
	delay := l.way.Seconds() + g
	switch active.Mode() {
	case model.ModeInterrupts:
		delay += 400e-6
	case model.ModeDeferral:
		cost += 2000 / (1 + rate*g)
	case model.ModeSuspension:
		cost = (cost + 2000/(1+rate*g)) * l.busyPolling
	}
	cost *= l.scale * math.Exp(0.01*l.random.NormFloat64())
	u := rate * cost * 1e-9
	delay += 20e-6 * min(20, u/max(0.05, 1-u))
	delay *= math.Exp(0.02 * l.random.NormFloat64())
	return model.Features{
		Queue: model.Queue{Netns: 1, Ifindex: 2, Index: queue}, Span: time.Second, Windows: 1,
		Active: active, PacketRate: rate, Utilisation: min(1, u),
		CostPerPacket: time.Duration(cost), Quantile: time.Duration(delay * 1e9), Median: time.Duration(delay * 5e8),
		Suspension: model.Readiness{Ready: l.ready}, Objective: objective,
	}
}

var target = model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.99}

// drive lets the policy decide for one queue without any guards, and returns
// the last features.
func drive(t testing.TB, p model.Policy, l *law, windows int, rate func(int) float64) (last model.Features, over int) {
	t.Helper()
	var active model.Settings
	before := 0.0
	for w := range windows {
		f := l.features(0, rate(w), active, target)
		if before > 0 {
			f.RateChange = f.PacketRate/before - 1
		}
		before = f.PacketRate
		if f.Quantile > target.SLO {
			over++
		}
		d := p.Decide(f)
		if err := model.DefaultBounds().Check(d.Settings); err != nil {
			t.Fatalf("window %d: %v", w, err)
		}
		if d.Why == "" {
			t.Fatalf("window %d: no reason for %v", w, d)
		}
		active, last = d.Settings, f
	}
	return last, over
}

func greyboxOf(t interface {
	Helper()
	Fatal(...any)
}, spec string,
) model.Policy {
	t.Helper()
	p, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func constant(rate float64) func(int) float64 { return func(int) float64 { return rate } }

func TestGreyboxUsesUpTheSLO(t *testing.T) {
	for _, spec := range []string{"greybox", "greybox:prior=generic", "greybox:prior=epyc7662-cx5"} {
		for _, scale := range []float64{0.5, 1, 2} {
			t.Run(fmt.Sprintf("%s with costs times %v", spec, scale), func(t *testing.T) {
				l := newLaw(1)
				l.scale = scale
				last, over := drive(t, greyboxOf(t, spec), l, 300, constant(50_000))
				// The delay is 100 us and the timeout, and some queueing.
				if g := last.Active.GROFlushTimeout; g < 95*time.Microsecond || last.Active.Mode() != model.ModeDeferral {
					t.Errorf("settled at %v with %v, want deferral of about 120µs", last.Active, last.Quantile)
				}
				if over > 300/30 {
					t.Errorf("%d of 300 windows were above the SLO", over)
				}
			})
		}
	}
}

func TestGreyboxChoosesTheCheaperMode(t *testing.T) {
	tests := []struct {
		name        string
		busyPolling float64
		ready       bool
		want        model.Mode
	}{
		{"suspension where it is cheaper", 0.8, true, model.ModeSuspension},
		{"deferral where suspension is dearer", 1.3, true, model.ModeDeferral},
		{"deferral where nobody busy polls", 0.8, false, model.ModeDeferral},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			l := newLaw(2)
			l.busyPolling, l.ready = tc.busyPolling, tc.ready
			last, _ := drive(t, greyboxOf(t, "greybox"), l, 400, constant(50_000))
			if got := last.Active.Mode(); got != tc.want {
				t.Errorf("settled at %v, want %v", last.Active, tc.want)
			}
		})
	}
}

func TestGreyboxRestsAtConstantLoad(t *testing.T) {
	l := newLaw(3)
	p := greyboxOf(t, "greybox")
	drive(t, p, l, 200, constant(80_000))
	changes := 0
	var active model.Settings
	for range 600 {
		d := p.Decide(l.features(0, 80_000, active, target))
		if d.Settings != active && active != (model.Settings{}) {
			changes++
		}
		active = d.Settings
	}
	if changes > 600/60 {
		t.Errorf("%d changes in 600 windows at rest, want at most one in 60", changes)
	}
}

func TestGreyboxStepsBackAtOnceWhenLoadMakesItLate(t *testing.T) {
	l := newLaw(4)
	step := func(w int) float64 {
		if w/100%2 == 1 {
			return 170_000
		}
		return 40_000
	}
	_, over := drive(t, greyboxOf(t, "greybox"), l, 800, step)
	if over > 24 {
		t.Errorf("%d of 800 windows were above the SLO over eight steps of the load", over)
	}
}

func TestGreyboxFollowsASteeredApplication(t *testing.T) {
	l := newLaw(5)
	l.busyPolling = 0.8
	p := greyboxOf(t, "greybox")
	var active model.Settings
	for range 100 {
		f := l.features(0, 50_000, active, target)
		f.Suspension = model.Readiness{Ready: true, Steered: true}
		active = p.Decide(f).Settings
	}
	if want := (model.BusyPoll{Prefer: true, Budget: 64}); active.Mode() != model.ModeSuspension || active.BusyPoll != want {
		t.Errorf("settled at %v, want suspension with %v", active, want)
	}
}

func TestGreyboxAsksForNoSuspensionThatIsNotReady(t *testing.T) {
	p := parse(t, "greybox:max=200us")
	active := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	f := features(40_000, active)
	f.Quantile = 10 * f.Objective.SLO
	for range 5 {
		if d := p.Decide(f); d.Settings != active && d.Settings.Mode() == model.ModeSuspension {
			t.Errorf("proposed %v where no application is ready: %s", d.Settings, d.Why)
		}
	}
}

func TestGreyboxObjectives(t *testing.T) {
	settled := func(spec string) model.Features {
		last, _ := drive(t, greyboxOf(t, spec), newLaw(6), 300, constant(50_000))
		return last
	}
	cheap := settled("greybox")
	fast := settled("greybox:objective=min-latency,cpu=0.8")
	capped := settled("greybox:objective=min-latency,cpu=0.27")
	if fast.Quantile >= cheap.Quantile-50*time.Microsecond {
		t.Errorf("min-latency comes to %v, min-cpu to %v", fast.Quantile, cheap.Quantile)
	}
	if capped.Utilisation > 0.28 || capped.Quantile <= fast.Quantile {
		t.Errorf("with the CPU capped at 0.27 it is %.2f busy at %v; without the cap the delay is %v", capped.Utilisation, capped.Quantile, fast.Quantile)
	}
	dear := settled("greybox:objective=balanced,price=1us")
	free := settled("greybox:objective=balanced,price=0ns")
	if dear.Quantile >= free.Quantile {
		t.Errorf("delay that costs comes to %v, and that costs nothing to %v", dear.Quantile, free.Quantile)
	}
}

func TestGreyboxLearnsOfItsNeighbours(t *testing.T) {
	l := newLaw(7)
	p := greyboxOf(t, "greybox:prior=generic")
	var active model.Settings
	for range 200 {
		active = p.Decide(l.features(0, 60_000, active, target)).Settings
	}
	first := func(p model.Policy, queue int) model.Forecast {
		f := l.features(queue, 60_000, active, target)
		f.PacketRate *= 1.001
		d := p.Decide(f)
		if d.Forecast == nil {
			t.Fatal("no forecast")
		}
		return *d.Forecast
	}
	other := newLaw(7)
	alone := greyboxOf(t, "greybox:prior=generic").Decide(other.features(1, 60_000, model.Settings{}, target))
	informed := p.Decide(l.features(1, 60_000, model.Settings{}, target))
	if informed.Settings.GROFlushTimeout <= alone.Settings.GROFlushTimeout {
		t.Errorf("a queue beside one that learned begins with %v, one alone with %v", informed.Settings, alone.Settings)
	}
	if a, b := first(p, 2), first(greyboxOf(t, "greybox:prior=generic"), 2); a.CostError >= b.CostError {
		t.Errorf("a queue beside one that learned foresees cost within %v, one alone within %v", a.CostError, b.CostError)
	}
}

func TestGreyboxModelGoesOn(t *testing.T) {
	l := newLaw(8)
	p := greyboxOf(t, "greybox")
	settled, _ := drive(t, p, l, 200, constant(60_000))
	var text bytes.Buffer
	if err := p.(policy.Learner).Save(&text); err != nil {
		t.Fatal(err)
	}
	saved := text.String()
	again := greyboxOf(t, "greybox")
	if err := again.(policy.Learner).Load(strings.NewReader(saved)); err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := again.(policy.Learner).Save(&text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(saved, text.String()); diff != "" {
		t.Errorf("what was loaded saves otherwise (-want +got):\n%s", diff)
	}
	f := l.features(0, 60_000, settled.Active, target)
	if d := again.Decide(f); d.Forecast == nil || math.Abs(float64(d.Forecast.Delay-settled.Quantile)) > 0.1*float64(settled.Quantile) {
		t.Errorf("forecast %+v after loading, want a delay of about %v", d.Forecast, settled.Quantile)
	}
	// Another host's queue starts from it too.
	third := greyboxOf(t, "greybox")
	if err := third.(policy.Learner).Load(strings.NewReader(saved)); err != nil {
		t.Fatal(err)
	}
	f = l.features(5, 60_000, settled.Active, target)
	f.Queue.Netns = 99
	if d := third.Decide(f); math.Abs(float64(d.Forecast.Delay-settled.Quantile)) > 0.15*float64(settled.Quantile) {
		t.Errorf("forecast %v for an unknown queue after loading, want about %v", d.Forecast.Delay, settled.Quantile)
	}
}

func TestGreyboxModelRefuses(t *testing.T) {
	l := newLaw(9)
	p := greyboxOf(t, "greybox")
	drive(t, p, l, 20, constant(60_000))
	var text bytes.Buffer
	if err := p.(policy.Learner).Save(&text); err != nil {
		t.Fatal(err)
	}
	good := text.String()
	change := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the model has no %q", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	for name, bad := range map[string]string{
		"nothing":              "",
		"half of it":           good[:len(good)/2],
		"more than one":        good + good,
		"another version":      change(`"version":1`, `"version":2`),
		"another policy":       change(`"policy":"greybox"`, `"policy":"aimd"`),
		"an unknown field":     change(`"margin":`, `"extra":1,"margin":`),
		"a queue of no name":   change(`"queue":"1:2:0"`, `"queue":"1:2"`),
		"a missing number":     change(`"weighted":[0,`, `"weighted":[`),
		"a negative variance":  change(`"cost_noise_variance":`, `"cost_noise_variance":-`),
		"a margin too large":   change(`"margin":`, `"margin":9`),
		"impossible evidence":  change(`"information":[`, `"information":[-1`),
		"a list of all things": "[]",
	} {
		fresh := greyboxOf(t, "greybox")
		if err := fresh.(policy.Learner).Load(strings.NewReader(bad)); !errors.Is(err, policy.ErrBadModel) {
			t.Errorf("%s: %v, want an error that says so", name, err)
		}
		var after, before bytes.Buffer
		if err := errors.Join(fresh.(policy.Learner).Save(&after), greyboxOf(t, "greybox").(policy.Learner).Save(&before)); err != nil {
			t.Fatal(err)
		}
		if after.String() != before.String() {
			t.Errorf("%s left something behind", name)
		}
	}
}

func FuzzGreyboxLoad(f *testing.F) {
	p := greyboxOf(f, "greybox")
	drive(f, p, newLaw(9), 3, constant(60_000))
	var text bytes.Buffer
	if err := p.(policy.Learner).Save(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"policy":"greybox","version":1,"queues":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := greyboxOf(t, "greybox")
		if err := p.(policy.Learner).Load(bytes.NewReader(text)); err != nil {
			if !errors.Is(err, policy.ErrBadModel) {
				t.Errorf("%v does not say that the model is bad", err)
			}
			return
		}
		drive(t, p, newLaw(1), 3, constant(60_000))
	})
}

// Whatever the windows hold, what is proposed is a setting, and is foreseen in
// numbers.
func TestGreyboxTakesAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := greyboxOf(t, rapid.SampledFrom([]string{
			"greybox", "greybox:prior=generic", "greybox:objective=min-latency", "greybox:objective=balanced",
		}).Draw(t, "spec"))
		any := rapid.OneOf(
			rapid.SampledFrom([]float64{0, -1, 5e9, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 1e-300}),
			rapid.Float64Range(0, 1e6),
		)
		var active model.Settings
		for range rapid.IntRange(1, 40).Draw(t, "windows") {
			f := model.Features{
				Queue:         model.Queue{Netns: 1, Ifindex: 2, Index: rapid.IntRange(0, 2).Draw(t, "queue")},
				Active:        active,
				PacketRate:    any.Draw(t, "rate"),
				RateChange:    any.Draw(t, "change"),
				Utilisation:   any.Draw(t, "utilisation"),
				CostPerPacket: time.Duration(rapid.Int64().Draw(t, "cost")),
				Quantile:      time.Duration(rapid.Int64().Draw(t, "quantile")),
				Objective:     target,
				Suspension:    model.Readiness{Ready: rapid.Bool().Draw(t, "ready")},
				Outcome: model.Outcome{
					Verdict:    rapid.SampledFrom([]model.Verdict{"", model.VerdictApplied, model.VerdictReverted, model.VerdictRefused, model.VerdictKept, model.VerdictHeld}).Draw(t, "verdict"),
					CostChange: any.Draw(t, "cost change"),
				},
			}
			d := p.Decide(f)
			if d.Purpose != model.PurposeHold {
				if err := model.DefaultBounds().Check(d.Settings); err != nil {
					t.Fatal(err)
				}
				active = d.Settings
			} else if rapid.Bool().Draw(t, "another writer") {
				active = model.Settings{
					DeferHardIRQs:   rapid.Uint32().Draw(t, "defer"),
					GROFlushTimeout: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "flush")),
				}
			}
			if o := d.Forecast; o != nil {
				for name, x := range map[string]float64{
					"rate": o.PacketRate, "cost error": o.CostError, "elasticity of cost": o.CostElasticity,
					"elasticity of delay": o.DelayElasticity, "utilisation": o.Utilisation,
				} {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						t.Fatalf("%s of the forecast is %v", name, x)
					}
				}
			}
		}
		// It goes on deciding: where nothing is predicted to hold, it tries.
		l := newLaw(1)
		active = model.Settings{}
		moved := false
		// No kind of move rests for more than 1024 windows.
		for w := 0; w < 1500 && !moved; w++ {
			moved = p.Decide(l.features(0, 50_000, active, target)).Settings != active
		}
		if !moved {
			t.Fatalf("stuck at %v, which breaks the SLO", active)
		}
	})
}

func TestGreyboxStaysStable(t *testing.T) {
	windows := 1_000_000
	if testing.Short() {
		windows = 10_000
	}
	l := newLaw(10)
	p := greyboxOf(t, "greybox")
	rate := func(w int) float64 { return 60_000 + 40_000*math.Sin(float64(w)/500) }
	_, over := drive(t, p, l, windows/10, rate)
	early := heapInUse()
	_, later := drive(t, p, l, windows-windows/10, rate)
	if share := float64(over+later) / float64(windows); share > 0.02 {
		t.Errorf("%.2f%% of %d windows were above the SLO", 100*share, windows)
	}
	if grown := int64(heapInUse()) - int64(early); grown > 256<<10 {
		t.Errorf("%d bytes more after %d windows than after %d", grown, windows, windows/10)
	}
	runtime.KeepAlive(p)
}

// heapInUse returns the bytes that are reachable.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Deciding is deterministic, whatever order the queues come in.
func TestGreyboxRepeats(t *testing.T) {
	run := func() string {
		l := newLaw(11)
		p := greyboxOf(t, "greybox")
		var out strings.Builder
		active := make([]model.Settings, 3)
		for w := range 100 {
			for q := range active {
				d := p.Decide(l.features(q, 40_000+float64(300*w), active[q], target))
				active[q] = d.Settings
				fmt.Fprintln(&out, d.Settings, d.Why)
			}
		}
		return out.String()
	}
	if a, b := run(), run(); a != b {
		t.Errorf("two runs differ:\n%s", cmp.Diff(a, b))
	}
}

// BenchmarkGreyboxThousandQueues is one window of 1,000 queues of one device.
func BenchmarkGreyboxThousandQueues(b *testing.B) {
	const queues = 1000
	l := newLaw(12)
	l.ready = true
	p := greyboxOf(b, "greybox")
	active := make([]model.Settings, queues)
	features := make([]model.Features, queues)
	window := func() {
		for q := range queues {
			features[q] = l.features(q, 50_000+20*float64(q), active[q], target)
		}
	}
	for range 70 {
		window()
		for q := range queues {
			active[q] = p.Decide(features[q]).Settings
		}
	}
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		window()
		b.StartTimer()
		for q := range queues {
			active[q] = p.Decide(features[q]).Settings
		}
	}
}
