package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"autotune/model"
	"autotune/model/sim"
	"autotune/probe/trace"
)

// recordSimulatedEvents writes a trace of a simulated host of two queues in
// windows of 100 ms, with the single events of every second one, and returns
// these.
func recordSimulatedEvents(t *testing.T, windows int) (path string, all []model.Events) {
	t.Helper()
	preset, err := sim.LoadPreset("veth")
	if err != nil {
		t.Fatal(err)
	}
	machine := *preset
	machine.Host.Queues, machine.Host.Connections = 2, 32
	host, err := sim.New(sim.Options{
		Preset: &machine, Load: sim.OnOff{Low: 2000, High: 100e3, On: 200 * time.Microsecond, Off: 4 * time.Millisecond, Seed: 1},
		Seed: 7, Window: 100 * time.Millisecond, Workers: 1, Events: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "events.trace.zst")
	started := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	w, err := trace.Create(path, trace.Header{
		Host: "server-1", Interval: 100 * time.Millisecond, StartedWall: &started,
		Conditions: trace.Conditions{Devices: []trace.Device{{Netns: 1, Ifindex: 2, Ifname: "eth7"}}},
	}, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range windows {
		sample, err := host.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(sample); err != nil {
			t.Fatal(err)
		}
		if i%2 > 0 {
			continue
		}
		for _, e := range host.Events() {
			// One that was not answered, and one that was not received.
			e.Requests[0].Send = nil
			e.Requests[1].Receive, e.Requests[1].Send = nil, nil
			all = append(all, e)
			if err := w.WriteEvents(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, all
}

// Counts are the same in what was recorded, in the summary and in every table.
func TestSingleEventsAreExportedOneByOne(t *testing.T) {
	path, all := recordSimulatedEvents(t, 6)
	var info struct {
		Events traceInfoEvents `json:"events"`
	}
	if err := json.Unmarshal([]byte(done(t, "trace", "info", "--json", path)), &info); err != nil {
		t.Fatal(err)
	}
	want := traceInfoEvents{Windows: 3, Span: 300 * time.Millisecond}
	packets := uint64(0)
	for i := range all {
		want.Polls += uint64(len(all[i].Polls))
		want.Waits += uint64(len(all[i].Waits))
		want.Requests += uint64(len(all[i].Requests))
		for _, p := range all[i].Polls {
			packets += uint64(p.Work)
		}
	}
	if diff := cmp.Diff(want, info.Events); diff != "" || packets == 0 {
		t.Errorf("trace info (-recorded +told):\n%s", diff)
	}
	if text := done(t, "trace", "info", path); !strings.Contains(text, "single events in 3 windows, 300ms in all") {
		t.Errorf("trace info:\n%s", text)
	}
	polls := csvTable(t, done(t, "export", path, "--table", "polls"))
	waits := csvTable(t, done(t, "export", path, "--table", "waits"))
	requests := csvTable(t, done(t, "export", path, "--table", "requests"))
	spans := csvTable(t, done(t, "export", path, "--table", "events"))
	got := map[string]uint64{
		"polls": uint64(len(polls)), "waits": uint64(len(waits)), "requests": uint64(len(requests)), "packets": total(t, polls, "packets"),
		"polls of spans": total(t, spans, "polls"), "waits of spans": total(t, spans, "waits"), "requests of spans": total(t, spans, "requests"),
		"spans": uint64(len(spans)), "time": total(t, spans, "span_ns"),
	}
	if diff := cmp.Diff(map[string]uint64{
		"polls": want.Polls, "waits": want.Waits, "requests": want.Requests, "packets": packets,
		"polls of spans": want.Polls, "waits of spans": want.Waits, "requests of spans": want.Requests,
		"spans": uint64(len(all)), "time": uint64(300 * time.Millisecond),
	}, got); diff != "" {
		t.Errorf("(-recorded +exported):\n%s", diff)
	}
	first := all[0]
	row := polls[0]
	if row["at_ns"] != fmt.Sprint(int64(first.Polls[0].At)) || row["ifname"] != "eth7" || row["queue"] != fmt.Sprint(first.Polls[0].Queue.Index) ||
		row["loop"] != first.Polls[0].Loop.String() || !strings.HasPrefix(row["time"], "2026-05-04T03:02:01.") {
		t.Errorf("first poll %v, want %+v", row, first.Polls[0])
	}
	for i, row := range requests[:3] {
		e := first.Requests[i]
		if row["at_ns"] != fmt.Sprint(int64(e.Ready)) || row["receive_at_ns"] != csvCell(nanoseconds(e.Receive)) || row["send_at_ns"] != csvCell(nanoseconds(e.Send)) {
			t.Errorf("request %d is %v, want %+v", i, row, e)
		}
	}

	// Parquet has the same rows.
	dir := t.TempDir()
	for _, table := range []string{"polls", "waits", "requests", "events"} {
		done(t, "export", path, "--format", "parquet", "--table", table, "-o", filepath.Join(dir, table))
	}
	rows, err := parquet.ReadFile[requestRow](filepath.Join(dir, "requests"))
	if err != nil || len(rows) != len(requests) {
		t.Fatalf("%d rows in Parquet, %d in CSV: %v", len(rows), len(requests), err)
	}
	for i, row := range rows {
		cells := requests[i]
		if fmt.Sprint(row.At) != cells["at_ns"] || csvCell(row.Receive) != cells["receive_at_ns"] || csvCell(row.Send) != cells["send_at_ns"] || csvTime(*row.Time) != cells["time"] {
			t.Fatalf("row %d: %+v in Parquet, %v in CSV", i, row, cells)
		}
	}
	other, err := parquet.ReadFile[pollRow](filepath.Join(dir, "polls"))
	if err != nil || len(other) != len(polls) {
		t.Errorf("%d polls in Parquet, %d in CSV: %v", len(other), len(polls), err)
	}
}

// Every command says in which frame events are damaged, and where.
func TestDamagedEventsAreNamedByTheirFrame(t *testing.T) {
	path, _ := recordSimulatedEvents(t, 6)
	broken := flipped(t, path)
	names := regexp.MustCompile(`frame 1 at byte \d+`)
	for _, args := range [][]string{
		{"trace", "info", broken},
		{"export", broken, "--table", "polls"},
		{"export", broken, "--table", "waits"},
		{"export", broken, "--table", "requests"},
		{"export", broken, "--table", "events"},
		{"replay", broken, "--simulate", "--policy", "base"},
	} {
		code, stdout, stderr := call(t, args...)
		if code == exitDone || !names.MatchString(stdout+stderr) {
			t.Errorf("%v: exit %d without the frame: %q, %q", args, code, stdout, stderr)
		}
	}
	if text := done(t, "trace", "info", "--salvage", broken); !names.MatchString(text) {
		t.Errorf("the salvage does not name the frame: %s", text)
	}
}

func TestATraceWithoutSingleEventsSaysSo(t *testing.T) {
	path, _ := recordRun(t, newTroubled(5, 1, 20), "base", false)
	code, stdout, stderr := call(t, "export", path, "--table", "polls")
	if code != exitDone || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "record --events") {
		t.Errorf("exit %d, %q, %q: want the names of the columns, and why there is nothing", code, stdout, stderr)
	}
	if text := done(t, "trace", "info", "--json", path); !strings.Contains(text, `"events":null`) {
		t.Errorf("trace info: %s", text)
	}
	if code, _, stderr := call(t, "export", path, "--table", "packets"); code != exitUsage || !strings.Contains(stderr, "polls") {
		t.Errorf("exit %d, %q: want 2 and the tables that there are", code, stderr)
	}
}

// What events told, and where there were none, is in the output of a prediction.
func TestReplaySimulateSaysWhatEventsTold(t *testing.T) {
	path, _ := recordSimulatedEvents(t, 8)
	args := []string{"replay", path, "--simulate", "--preset", "veth", "--policy", "base", "--draws", "1"}
	out := done(t, args...)
	for _, want := range []string{"when requests came, one by one, in 8 of 16 windows", "within 8 of 16 windows they arrive as in the nearest"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	lines := strings.Split(strings.TrimSpace(done(t, append(args, "--json")...)), "\n")
	var m modelLine
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil {
		t.Fatal(err)
	}
	if m.ArrivalsSingle != 8 || m.ArrivalsAlike != 8 || m.ArrivalsRandom != 0 || m.UnusedEvents != 0 {
		t.Errorf("%+v", m)
	}
}
