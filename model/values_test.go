package model_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestQueueTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := model.Queue{
			Netns:   rapid.Uint64().Draw(t, "netns"),
			Ifindex: rapid.Int().Draw(t, "ifindex"),
			Index:   rapid.Int().Draw(t, "index"),
		}
		text, err := in.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var out model.Queue
		if err := out.UnmarshalText(text); err != nil || out != in {
			t.Fatalf("%s reads as %v: %v", text, out, err)
		}
	})
}

func TestQueueTextRefusesOtherForms(t *testing.T) {
	for _, text := range []string{"", "1:2", "1:2:3:4", "-1:2:3", "a:2:3", "1:b:3", "1:2:c", "1:2:", "18446744073709551616:0:0"} {
		q := model.Queue{Index: 9}
		if err := q.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %v", text, q)
		} else if q != (model.Queue{Index: 9}) {
			t.Errorf("%q was refused but changed the queue to %v", text, q)
		}
	}
}

func FuzzQueueText(f *testing.F) {
	for _, seed := range []string{"4026531840:2:0", "0:0:0", "::", "1:2:3:4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var q, again model.Queue
		if q.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(q.String())); err != nil || again != q {
			t.Fatalf("%q reads as %v, which reads as %v: %v", text, q, again, err)
		}
	})
}

func TestQueueCompareIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := rapid.Custom(func(t *rapid.T) model.Queue {
			return model.Queue{Netns: rapid.Uint64Range(0, 2).Draw(t, "n"), Ifindex: rapid.IntRange(0, 2).Draw(t, "i"), Index: rapid.IntRange(0, 2).Draw(t, "q")}
		})
		a, b, c := queue.Draw(t, "a"), queue.Draw(t, "b"), queue.Draw(t, "c")
		if a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%v and %v: %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%v, %v and %v are in a circle", a, b, c)
		}
	})
}

func TestBoundsClampGivesWhatCheckAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := model.Bounds{
			MaxDefer:   rapid.Uint32().Draw(t, "max defer"),
			MaxFlush:   time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "max flush")),
			MaxSuspend: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "max suspend")),
		}
		s := model.Settings{
			DeferHardIRQs:     rapid.Uint32().Draw(t, "defer"),
			GROFlushTimeout:   time.Duration(rapid.Int64().Draw(t, "flush")),
			IRQSuspendTimeout: time.Duration(rapid.Int64().Draw(t, "suspend")),
		}
		clamped, moved := b.Clamp(s)
		if err := b.Check(clamped); err != nil {
			t.Fatalf("clamped to %v: %v", clamped, err)
		}
		err := b.Check(s)
		if (err != nil) != moved {
			t.Fatalf("%v: clamp moved %v, check says %v", s, moved, err)
		}
		if err != nil && !errors.Is(err, model.ErrOutOfBounds) {
			t.Fatalf("%v does not wrap ErrOutOfBounds", err)
		}
	})
}

func TestDefaultBounds(t *testing.T) {
	tests := []struct {
		name string
		s    model.Settings
		ok   bool
	}{
		{"the limits themselves", model.Settings{DeferHardIRQs: math.MaxInt32, GROFlushTimeout: 10 * time.Millisecond, IRQSuspendTimeout: time.Second}, true},
		{"the defer count that overflows older kernels", model.Settings{DeferHardIRQs: math.MaxInt32 + 1}, false},
		{"flush above 10 ms", model.Settings{GROFlushTimeout: 10*time.Millisecond + 1}, false},
		{"a negative flush", model.Settings{GROFlushTimeout: -1}, false},
		{"suspend above 1 s", model.Settings{IRQSuspendTimeout: time.Second + 1}, false},
	}
	for _, tc := range tests {
		if err := model.DefaultBounds().Check(tc.s); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestSettingsMode(t *testing.T) {
	tests := []struct {
		s    model.Settings
		want model.Mode
		text string
	}{
		{model.Settings{}, model.ModeInterrupts, "defer=0,flush=0s"},
		{model.Settings{DeferHardIRQs: 100}, model.ModeInterrupts, "defer=100,flush=0s"},
		{model.Settings{GROFlushTimeout: 1}, model.ModeInterrupts, "defer=0,flush=1ns"},
		{model.Settings{IRQSuspendTimeout: time.Second}, model.ModeInterrupts, "defer=0,flush=0s,suspend=1s"},
		{model.Settings{DeferHardIRQs: 1, GROFlushTimeout: 50 * time.Microsecond}, model.ModeDeferral, "defer=1,flush=50µs"},
		{model.Settings{DeferHardIRQs: 1, GROFlushTimeout: 1, IRQSuspendTimeout: 1}, model.ModeSuspension, "defer=1,flush=1ns,suspend=1ns"},
	}
	for _, tc := range tests {
		if got := tc.s.Mode(); got != tc.want {
			t.Errorf("%v is %s, want %s", tc.s, got, tc.want)
		}
		if got := tc.s.String(); got != tc.text {
			t.Errorf("%#v reads %q, want %q", tc.s, got, tc.text)
		}
	}
}

func TestConfigJSONRoundTrip(t *testing.T) {
	in := model.Config{
		{Netns: 4026531840, Ifindex: 2, Index: 1}: {DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond},
		{Netns: 1, Ifindex: 1}:                    {},
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"1:1:0":{"defer_hard_irqs":0,"gro_flush_timeout_ns":0,"irq_suspend_timeout_ns":0,"busy_poll_ns":null,"busy_poll_budget":null,"prefer_busy_poll":null},` +
		`"4026531840:2:1":{"defer_hard_irqs":100,"gro_flush_timeout_ns":50000,"irq_suspend_timeout_ns":20000000,"busy_poll_ns":null,"busy_poll_budget":null,"prefer_busy_poll":null}}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	var out model.Config
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
}

func FuzzSettingsJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `{"defer_hard_irqs":4294967295,"gro_flush_timeout_ns":-1}`, `{"defer_hard_irqs":-1}`, `{"gro_flush_timeout_ns":1e300}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s, again model.Settings
		if json.Unmarshal(data, &s) != nil {
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || again != s {
			t.Fatalf("%s reads as %v: %v", out, again, err)
		}
	})
}
