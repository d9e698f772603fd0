//go:build linux

package workload

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLatencySurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := NewLatency()
		for _, ns := range rapid.SliceOfN(rapid.Int64Range(0, int64(2*time.Minute)), 0, 50).Draw(t, "latencies") {
			want.record(time.Duration(ns))
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := NewLatency()
		if err := json.Unmarshal(data, got); err != nil {
			t.Fatal(err)
		}
		if got.Count() != want.Count() {
			t.Fatalf("%d latencies after JSON, want %d", got.Count(), want.Count())
		}
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			if got.Quantile(q) != want.Quantile(q) {
				t.Errorf("quantile %v is %v after JSON, want %v", q, got.Quantile(q), want.Quantile(q))
			}
		}
	})
}

func TestQuantileIsWithinOnePercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := time.Duration(rapid.Int64Range(10_000, highestLatency).Draw(t, "value"))
		l := NewLatency()
		l.record(value)
		if got := l.Quantile(0.5); (got - value).Abs() > value/100 {
			t.Errorf("median of one %v is %v", value, got)
		}
	})
}

func TestMergedLatencyHasTheQuantilesOfAll(t *testing.T) {
	low, high, all := NewLatency(), NewLatency(), NewLatency()
	for i := range 1000 {
		l := low
		if i%10 == 0 {
			l = high
		}
		d := time.Duration(i) * time.Microsecond
		l.record(d)
		all.record(d)
	}
	low.Merge(high)
	low.Merge(nil)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99} {
		if low.Quantile(q) != all.Quantile(q) {
			t.Errorf("quantile %v is %v merged, want %v", q, low.Quantile(q), all.Quantile(q))
		}
	}
}

func TestDamagedLatencyIsRefused(t *testing.T) {
	for _, test := range []struct{ name, data string }{
		{"a bucket beyond the last", `[[100000,1]]`},
		{"a negative bucket", `[[-1,1]]`},
		{"a negative count", `[[1,-1]]`},
		{"a count that would overflow", `[[1,9223372036854775807]]`},
		{"no pairs", `{"a":1}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := NewLatency().UnmarshalJSON([]byte(test.data)); err == nil {
				t.Errorf("%s was accepted", test.data)
			}
		})
	}
}

func FuzzLatency(f *testing.F) {
	f.Add([]byte(`[[1,2],[3,4]]`))
	f.Add([]byte(`[[100000,1]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := NewLatency()
		if l.UnmarshalJSON(data) == nil {
			_ = l.Quantile(0.5)
		}
	})
}

func TestSummaryLeavesOutSettlingAndOtherPhases(t *testing.T) {
	interval := func(phase string, settling bool, d time.Duration, n uint64) ClientInterval {
		in := ClientInterval{
			Start: 0, End: time.Second, Phase: phase, Settling: settling,
			Offered: n, Completed: n, ExcludedClient: 1, ExcludedServer: 2,
			MaxBacklog: int(n), Gaps: Gaps{Count: 1, Total: time.Millisecond},
			Latency: NewLatency(), RawLatency: NewLatency(),
		}
		in.Latency.record(d)
		in.RawLatency.record(d)
		return in
	}
	got := Summarize([]ClientInterval{
		interval("low", false, time.Millisecond, 100),
		interval("high", true, time.Second, 1000),
		interval("high", false, 2*time.Millisecond, 200),
		interval("high", false, 2*time.Millisecond, 400),
	}, "high")
	type numbers struct {
		Span                  time.Duration
		Offered, Achieved     float64
		Completed, Excluded   uint64
		MaxBacklog            int
		Gaps                  uint64
		GapTime               time.Duration
		Latencies, Raw        int64
		LongestWithin1Percent bool
	}
	longest := got.Latency.Quantile(1)
	want := numbers{2 * time.Second, 300, 300, 600, 6, 400, 2, 2 * time.Millisecond, 2, 2, true}
	if diff := cmp.Diff(want, numbers{got.Span, got.OfferedRate, got.AchievedRate, got.Completed, got.Excluded,
		got.MaxBacklog, got.Gaps, got.GapTime, got.Latency.Count(), got.RawLatency.Count(),
		(longest - 2*time.Millisecond).Abs() <= 20*time.Microsecond}); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestSchedstat(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       time.Duration
		fails      bool
	}{
		{"a thread", "184885 43768 3\n", 184885, false},
		{"schedstats switched off", "0 0 0\n", 0, false},
		{"a field is missing", "184885 43768\n", 0, true},
		{"no number", "a b c\n", 0, true},
		{"nothing", "", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseSchedstat([]byte(test.data))
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("got %v and error %v, want %v and an error: %t", got, err, test.want, test.fails)
			}
		})
	}
}

func TestConfigsOutsideTheirRangeAreRefused(t *testing.T) {
	const addr = `"addr":"127.0.0.1:1"`
	for _, test := range []struct{ name, server, client string }{
		{"no address", `{}`, `{}`},
		{"an IPv6 address", `{"addr":"[::1]:1"}`, `{"addr":"[::1]:1"}`},
		{"messages too small for the time in a reply", `{` + addr + `,"message_size":7}`, `{` + addr + `,"message_size":7}`},
		{"messages too large", `{` + addr + `,"message_size":65537}`, `{` + addr + `,"message_size":65537}`},
		{"an interval too short", `{` + addr + `,"interval_ns":1}`, `{` + addr + `,"interval_ns":1}`},
		{"a negative CPU", `{` + addr + `,"cpu":-1}`, `{` + addr + `,"runtime_cpu":-1}`},
		{"too many connections", ``, `{` + addr + `,"connections":4097}`},
		{"a negative number of connections", ``, `{` + addr + `,"connections":-1}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.server != "" {
				var config ServerConfig
				if err := json.Unmarshal([]byte(test.server), &config); err != nil {
					t.Fatal(err)
				}
				if _, err := config.withDefaults(); err == nil {
					t.Errorf("the server accepted %s", test.server)
				}
			}
			var config ClientConfig
			if err := json.Unmarshal([]byte(test.client), &config); err != nil {
				t.Fatal(err)
			}
			if _, err := config.withDefaults(); err == nil {
				t.Errorf("the client accepted %s", test.client)
			}
		})
	}
}

func TestZeroConfigHasTheDefaults(t *testing.T) {
	var config ServerConfig
	if err := json.Unmarshal([]byte(`{"addr":"127.0.0.1:1"}`), &config); err != nil {
		t.Fatal(err)
	}
	got, err := config.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if got.MessageSize != 64 || got.Interval != 250*time.Millisecond || got.ServiceTime != 2*time.Microsecond {
		t.Errorf("defaults are %+v", got)
	}
	config.ServiceTime = -1
	if got, err = config.withDefaults(); err != nil || got.ServiceTime != 0 {
		t.Errorf("negative service time gives %v and error %v, want none", got.ServiceTime, err)
	}
}
