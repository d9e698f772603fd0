package tuner_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

func TestBoundsSaturateARunawayAndReportItOnce(t *testing.T) {
	data, err := os.ReadFile("testdata/runaway_overflow.json")
	if err != nil {
		t.Fatal(err)
	}
	var field struct {
		Start  int64   `json:"start"`
		Factor float64 `json:"factor"`
		LastOK int64   `json:"last_ok"`
	}
	if err := json.Unmarshal(data, &field); err != nil {
		t.Fatal(err)
	}
	// The field's tuner multiplied without a cap, here on each of its own
	// proposals, and in 32 bits.
	value := float64(field.Start)
	runaway := func(model.Features) model.Decision {
		value *= field.Factor
		return model.Decision{
			Settings: model.Settings{DeferHardIRQs: uint32(int64(value)), GROFlushTimeout: time.Duration(int64(value))},
			Purpose:  model.PurposeSafety, Why: "more",
		}
	}
	bounds := model.Bounds{MaxDefer: 1000, MaxFlush: 10 * time.Millisecond, MaxSuspend: time.Second}
	b := newBench(t, 1, runaway, func(o *tuner.Options) {
		o.Bounds = bounds
		o.StepLimit.Factor = 1e12
		o.Trial.Settle = -1
	})
	b.run(200, func(_ model.Queue, s model.Settings) window {
		// Each move lowers the delay, so that all are kept.
		w := steady()
		w.delay = time.Duration(float64(200*us) / (1 + float64(s.GROFlushTimeout)/1e5))
		return w
	})
	limits := 0
	for _, e := range *b.journal {
		if strings.HasPrefix(e.Why, "at limit") && e.Verdict != model.VerdictHeld {
			limits++
		}
	}
	if value < 2*float64(field.LastOK) {
		t.Fatalf("the runaway reached only %g", value)
	}
	if limits != 1 {
		t.Errorf("reported at limit %d times, want once", limits)
	}
	for _, c := range b.kernel.writes {
		for _, s := range c {
			if err := bounds.Check(s); err != nil {
				t.Errorf("reached the actuator: %v", err)
			}
		}
	}
	b.wantState(model.Settings{DeferHardIRQs: 1000, GROFlushTimeout: 10 * time.Millisecond})
}

func TestBoundsRefuseWhatIsNoSetting(t *testing.T) {
	b := newBench(t, 1, always(model.Settings{DeferHardIRQs: 5, GROFlushTimeout: -us}, model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("bounds", model.VerdictRefused, "gro-flush-timeout -1µs")
}

func TestBoundsRefuseAnOrderRatherThanChangeIt(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) { o.Policy = policy.NewStatic(deferralOf(20 * time.Millisecond)) })
	b.run(1, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("bounds", model.VerdictRefused, "gro-flush-timeout 20ms not in 0 to 10ms")
}
