package sim

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"autotune/model"
)

// meanRate integrates a path.
func meanRate(path Path, span time.Duration) float64 {
	total := 0.0
	for at := time.Duration(0); at < span; {
		rate, until := path(at)
		until = min(until, span)
		total += rate * (until - at).Seconds()
		at = until
	}
	return total / span.Seconds()
}

func TestLoadsHaveTheirMeans(t *testing.T) {
	whole := QueueShare{Fraction: 1}
	tests := []struct {
		name      string
		load      Load
		span      time.Duration
		want      float64
		tolerance float64
	}{
		{"constant", Constant(1000), time.Second, 1000, 1e-9},
		{"steps", Steps{PerSecond: []float64{100, 300}, Each: time.Second}, 4 * time.Second, 200, 1e-9},
		{"diurnal over whole periods", Diurnal{Mean: 500, Amplitude: 400, Period: time.Second}, 3 * time.Second, 500, 1e-6},
		{"mmpp", MMPP{PerSecond: []float64{100, 300}, Mean: time.Millisecond, Seed: 1}, 20 * time.Second, 200, 0.02},
		{"on and off", OnOff{Low: 0, High: 400, On: time.Millisecond, Off: 3 * time.Millisecond, Seed: 1}, 20 * time.Second, 100, 0.05},
		{"flash", Flash{Base: 100, Peak: 300, Start: time.Second, Ramp: time.Second, Hold: time.Second}, 4 * time.Second, (100 + 200 + 300 + 100) / 4., 1e-6},
		{"windows", Windows{Each: time.Second, PerSecond: [][]float64{{10, 30}}}, 2 * time.Second, 20, 1e-9},
		{"windows end", Windows{Each: time.Second, PerSecond: [][]float64{{10, 30}}}, 4 * time.Second, 10, 1e-9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := meanRate(tt.load.Path(whole), tt.span); math.Abs(got/tt.want-1) > tt.tolerance {
				t.Errorf("mean is %.4f/s, want %.4f", got, tt.want)
			}
		})
	}
}

// A path never goes back or stands still, and two passes are the same.
func TestPathsAdvanceAndRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := time.Duration(rapid.Int64Range(1000, int64(time.Minute)).Draw(t, "duration"))
		name := rapid.SampledFrom(ScenarioNames()).Draw(t, "scenario")
		scenario, err := ScenarioByName(name, duration, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		q := QueueShare{Index: 1, Fraction: rapid.Float64Range(0.01, 1).Draw(t, "share")}
		one, two := scenario.Load.Path(q), scenario.Load.Path(q)
		at := time.Duration(0)
		for range 300 {
			rate, until := one(at)
			rate2, until2 := two(at)
			if rate != rate2 || until != until2 {
				t.Fatalf("at %v one pass says %v until %v, another %v until %v", at, rate, until, rate2, until2)
			}
			if until <= at || rate < 0 || math.IsNaN(rate) {
				t.Fatalf("at %v the rate is %v until %v", at, rate, until)
			}
			at = until
			if at >= duration {
				break
			}
		}
	})
}

func TestOpenLoopArrivalsArePoisson(t *testing.T) {
	const rate = 1e6
	a := newArrivals(Constant(rate), QueueShare{Fraction: 1}, 0)
	r := newRandom(1)
	var gaps []float64
	at := int64(0)
	for range 200_000 {
		next, _ := a.next(at, &r)
		gaps = append(gaps, float64(next-at))
		at = next
	}
	mean, square := 0.0, 0.0
	for _, g := range gaps {
		mean += g / float64(len(gaps))
		square += g * g / float64(len(gaps))
	}
	if math.Abs(mean*rate/1e9-1) > 0.01 {
		t.Errorf("mean gap is %.1f ns, want %.1f", mean, 1e9/rate)
	}
	if cv := math.Sqrt(square/(mean*mean) - 1); math.Abs(cv-1) > 0.01 {
		t.Errorf("coefficient of variation of the gaps is %.4f, want 1", cv)
	}
}

func TestRecordedArrivalsAllArriveOnce(t *testing.T) {
	var at []time.Duration
	for i := range 5000 {
		at = append(at, time.Duration(i)*7*time.Microsecond)
	}
	s, err := New(Options{Load: Recorded{At: at}, Seed: 1, Window: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sample, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := sample.Latency.Histogram.Count(); got != 5000 {
		t.Errorf("%d of 5000 recorded arrivals were served", got)
	}
}

func TestWindowsDriveEachQueueByItsOwnRate(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	p.Host.Queues = 2
	s, err := New(Options{
		Preset: p, Seed: 1, Window: 100 * time.Millisecond,
		Load: Windows{Each: 100 * time.Millisecond, PerSecond: [][]float64{{100e3, 0}, {10e3, 50e3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for window, want := range [][]float64{{10e3, 1e3}, {0, 5e3}} {
		sample, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range sample.Queues {
			if got := float64(q.Delay.Count()); math.Abs(got-want[i]) > 0.05*want[i]+60 {
				t.Errorf("window %d, queue %d: %.0f requests, want %.0f", window, i, got, want[i])
			}
		}
	}
}

func TestParseLoad(t *testing.T) {
	for text, want := range map[string]Load{
		"600K": Constant(600e3), "1.2M": Constant(1.2e6), "250000": Constant(250e3), "MAX": ClosedLoop{}, "max": ClosedLoop{},
	} {
		if got, err := ParseLoad(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-5K", "0", "1e99", "NaN", "Inf", "5X"} {
		if got, err := ParseLoad(text); !errors.Is(err, ErrBadLoad) {
			t.Errorf("%q: got %v, %v, want ErrBadLoad", text, got, err)
		}
	}
}

func TestParseSetting(t *testing.T) {
	got, err := ParseSetting("defer=100,flush=20us,suspend=20ms,busypoll=64us,budget=32,prefer=true,timeout=1ms,events=16")
	if err != nil {
		t.Fatal(err)
	}
	want := Case{
		Name: got.Name,
		NAPI: model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond},
		Wait: Wait{BusyPoll: 64 * time.Microsecond, Budget: 32, Prefer: true, Timeout: time.Millisecond, MaxEvents: 16},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"nothing", "flush=20", "flush=-1us", "defer=x", "defer=1,defer=2", "speed=1", "defer=1,flush", "budget=0", "flush=1h"} {
		if got, err := ParseSetting(text); err == nil {
			t.Errorf("%q: read as %+v", text, got)
		}
	}
}

func FuzzParseSetting(f *testing.F) {
	f.Add("suspend20")
	f.Add("defer=100,flush=20us,prefer=true")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseSetting(text)
		if err == nil {
			if err := model.DefaultBounds().Check(c.NAPI); err != nil {
				t.Errorf("%q: read as out of bounds: %v", text, err)
			}
		}
	})
}

func TestSharesKeepTheNumberOfConnections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Host{Queues: rapid.IntRange(1, 64).Draw(t, "queues"), Imbalance: rapid.Float64Range(0, 0.5).Draw(t, "imbalance")}
		h.Connections = rapid.IntRange(h.Queues, 10_000).Draw(t, "connections")
		shares := shareConnections(h)
		total := 0
		for _, n := range shares {
			total += n
		}
		if total != h.Connections || slices.Min(shares) < 1 {
			t.Fatalf("%d connections shared as %v", h.Connections, shares)
		}
	})
}
