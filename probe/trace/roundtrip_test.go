package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

// The generator follows the type by reflection: a field that is added to
// model.Sample and not to the format fails this test.
func TestSamplesSurviveEncodingAndDecoding(t *testing.T) {
	samples := rapid.Make[model.Sample]()
	rapid.Check(t, func(t *rapid.T) {
		want := samples.Draw(t, "sample")
		line := newEncoder().append(nil, &want)
		if bytes.ContainsAny(line, "\n\r") || !json.Valid(line) {
			t.Fatalf("not one line of JSON: %q", line)
		}
		decodesTo(t, line, want)
	})
}

// decodesTo holds both decoders, ours and encoding/json, against what was written.
func decodesTo(t *rapid.T, line []byte, want model.Sample) {
	t.Helper()
	var d decoder
	got, err := d.sample(line)
	if err != nil {
		t.Fatalf("decode: %v\n%s", err, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("decoder (-want +got):\n%s", diff)
	}
	got, err = oracleDecode(line)
	if err != nil {
		t.Fatalf("encoding/json: %v\n%s", err, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("encoding/json (-want +got):\n%s", diff)
	}
}

func TestTheExtremesOfEveryNumberSurvive(t *testing.T) {
	const maxU, minI, maxI = ^uint64(0), -1 << 63, 1<<63 - 1
	least, most, none, all := time.Duration(minI), time.Duration(maxI), uint64(0), maxU
	want := model.Sample{
		At: most, Span: least, Lost: maxU, AppsUnknown: maxU,
		Queues: []model.QueueSample{{
			Queue:      model.Queue{Netns: maxU, Ifindex: minI, Index: maxI},
			NAPIID:     ^uint32(0),
			Softirq:    model.PollCounts{Polls: maxU, Packets: maxU, Empty: maxU, Full: maxU},
			ThreadTime: &least, SampleEvery: ^uint32(0), CPUs: []int{0, 255},
			Delay: new(model.Histogram),
		}},
		CPUs: []model.CPUSample{{CPU: minI, NetRX: &least, NetRXIdle: &most, Busy: least, Steal: most, Squeezed: maxU, Cycles: &all, Instructions: &none}},
		Apps: []model.AppSample{{PID: minI, Comm: "a\"\\\x00\u2028<&>é", Contexts: []model.EpollContext{{Budget: ^uint16(0), NAPIIDs: []uint32{0, ^uint32(0)}}}}},
	}
	for i := range want.Queues[0].Delay.Counts {
		want.Queues[0].Delay.Counts[i] = maxU - uint64(i)
	}
	var d decoder
	got, err := d.sample(newEncoder().append(nil, &want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAProcessNameThatIsNotUTF8IsMadeReadable(t *testing.T) {
	in := model.Sample{Apps: []model.AppSample{{Comm: "caf\xc3"}}}
	line := newEncoder().append(nil, &in)
	var d decoder
	got, err := d.sample(line)
	if err != nil || !json.Valid(line) {
		t.Fatalf("%v: %s", err, line)
	}
	if got.Apps[0].Comm != "caf\ufffd" {
		t.Errorf("comm %q", got.Apps[0].Comm)
	}
}

// Every object of a kind has the same keys, whatever is known.
func TestNoFieldIsEverLeftOut(t *testing.T) {
	var zero time.Duration
	sparse := model.Sample{
		Queues: []model.QueueSample{{}}, CPUs: []model.CPUSample{{}},
		Apps: []model.AppSample{{Contexts: []model.EpollContext{{}}}},
	}
	full := model.Sample{
		Queues: []model.QueueSample{{
			Timer: &model.TimerCounts{}, ThreadTime: &zero, RingWait: &model.Histogram{}, SocketWait: &model.Histogram{},
			Service: &model.Histogram{}, Delay: &model.Histogram{},
			TimerSoftirq: &model.PollCounts{}, TimerThread: &model.PollCounts{}, Takeovers: &model.Takeovers{}, Suspension: &model.Suspension{}, Stamps: &model.Stamps{},
		}},
		CPUs:    []model.CPUSample{{NetRX: &zero, NetRXIdle: &zero}},
		Probe:   &model.ProbeSample{},
		Apps:    []model.AppSample{{BusyPolls: &model.BusyPolls{}, Waits: &[model.WorkBuckets]uint64{}, Contexts: []model.EpollContext{{NAPIIDs: []uint32{}}}}},
		Latency: &model.Latency{}, Active: model.Config{}, NAPIIDs: map[model.Queue]uint32{}, Absent: map[model.Queue]string{},
	}
	keys := func(line []byte) map[string]string {
		out := map[string]string{}
		var walk func(path string, v any)
		walk = func(path string, v any) {
			switch v := v.(type) {
			case map[string]any:
				out[path] = strings.Join(slices.Sorted(maps.Keys(v)), " ")
				for k, item := range v {
					walk(path+"."+k, item)
				}
			case []any:
				for _, item := range v {
					walk(path, item)
				}
			}
		}
		var v any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		walk("", v)
		return out
	}
	want, got := keys(newEncoder().append(nil, &full)), keys(newEncoder().append(nil, &sparse))
	// What is null in the sparse sample has no keys there.
	for _, path := range []string{
		".active", ".napi_ids", ".apps.busy_polls", ".probe",
	} {
		delete(want, path)
	}
	delete(want, ".latency")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-full +sparse):\n%s", diff)
	}

	line, err := marshalHeader(Header{Run: &Run{}, Conditions: Conditions{Devices: []Device{{Coalescing: &Coalescing{}}}, CPUs: []CPU{{}}}})
	if err != nil {
		t.Fatal(err)
	}
	full1, err := marshalHeader(testHeader())
	if err != nil {
		t.Fatal(err)
	}
	want, got = keys(full1), keys(line)
	for path := range want {
		if _, ok := got[path]; !ok {
			delete(want, path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header (-full +sparse):\n%s", diff)
	}
}

func testHeader() Header {
	text := func(s string) *string { return &s }
	number := func(n uint32) *uint32 { return &n }
	on := true
	latency := 2 * time.Microsecond
	wall := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	queue := model.Queue{Netns: 4026531840, Ifindex: 2, Index: 0}
	settings := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond}
	return Header{
		AutotuneVersion: "v0.1.0", Host: "server-1", Kernel: "6.18.0", Machine: "x86_64",
		BootID: "b1b0a3e2-0000-4000-8000-000000000000", Clock: "CLOCK_BOOTTIME",
		StartedAt: 90 * time.Hour, StartedWall: &wall, Interval: time.Second,
		Probes: []Probe{{Name: "napi_poll", State: model.FindingOK, Variant: text("tp_btf")}, {Name: "hrtimer", State: model.FindingMissing, Detail: "EPERM"}},
		Conditions: Conditions{
			Devices: []Device{{
				Netns: 4026531840, Ifindex: 2, Ifname: "eth0", Driver: text("mlx5_core"), Firmware: text("22.31"), BusInfo: text("0000:3b:00.0"),
				NIC: text("15b3:101d"), SpeedMbps: number(100000),
				Coalescing: &Coalescing{AdaptiveRX: &on, RXUsecs: number(8), RXFrames: number(128)},
				NAPIs:      []NAPI{{Queue: queue, NAPIID: 8193, Mapping: model.MappingDriver, IRQ: number(77), Settings: settings, IRQAffinity: text("0-3"), CPUs: []int{1}}},
			}},
			CPUs:          []CPU{{CPU: 0, Governor: text("performance"), ResumeLatency: &latency, IdleStates: []IdleState{{Name: "C1", Latency: latency, Disabled: true}}}},
			CPUIdleDriver: text("intel_idle"), CPUDMALatency: &latency, IdleLimit: text("intel_idle.max_cstate=1"),
		},
		Run: &Run{
			Policy: "aimd:start=20us", Seed: 1<<64 - 1, Apply: true,
			Objective: model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.99},
			Bounds:    model.DefaultBounds(),
			Originals: []QueueSettings{{Queue: queue, Settings: model.Settings{}}},
			Queues:    []model.Queue{queue},
			Guards:    json.RawMessage(`{"cooldown_ns":5000000000}`),
		},
	}
}

func TestATraceReadsBackAsItWasWritten(t *testing.T) {
	entries := []string{`{"at_ns":1,"why":"p99 <300us> & rising"}`, `{"a" :  1.50e+3 }`}
	source := newRealistic(3, 4)
	var want []model.Sample
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader(), Options{FlushEvery: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	changed := Conditions{Devices: []Device{{Ifname: "eth0", NAPIs: []NAPI{}}}}
	for i := range 25 {
		s := source.next()
		want = append(want, s)
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
		if i < len(entries) {
			if err := w.WriteEntry(json.RawMessage(entries[i])); err != nil {
				t.Fatal(err)
			}
		}
		if i == 7 {
			if err := w.WriteConditions(s.At, changed); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := w.Write(want[0]); !errors.Is(err, ErrClosed) {
		t.Errorf("write after close: %v", err)
	}

	var order []string
	r, err := NewReader(bytes.NewReader(out.Bytes()), ReaderOptions{OnRecord: func(rec Record) error {
		switch rec.Kind {
		case KindJournal:
			order = append(order, "journal "+string(rec.Entry))
		case KindConditions:
			if diff := cmp.Diff(&changed, rec.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			order = append(order, "conditions "+fmt.Sprint(rec.At == want[7].At))
		default:
			order = append(order, string(rec.Kind))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(testHeader(), r.Header()); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	var got []model.Sample
	for {
		s, err := r.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(order) > 0 && len(got) < 3 {
			order = append(order, fmt.Sprint("sample ", len(got)))
		}
		got = append(got, s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	wantOrder := []string{"journal " + entries[0], "sample 1", "journal " + entries[1], "sample 2", "conditions true"}
	if diff := cmp.Diff(wantOrder, order); diff != "" {
		t.Errorf("records between samples (-want +got):\n%s", diff)
	}
	stats := r.Stats()
	if !stats.Ended || stats.Samples != 25 || stats.Others != 3 || stats.Truncated != nil || stats.Unknown != nil {
		t.Errorf("stats %+v", stats)
	}
	if _, err := r.Next(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestNextStopsWithItsContext(t *testing.T) {
	compressed, _ := realisticTrace(t, 1, 3, 16)
	r, err := NewReader(bytes.NewReader(compressed), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// The trace is not the worse for it.
	if _, err := r.Next(context.Background()); err != nil {
		t.Errorf("after a cancelled call: %v", err)
	}
}
