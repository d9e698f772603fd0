package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/testbed"
	"autotune/model"
	"autotune/probe"
	"autotune/probe/trace"
)

func TestRecordedEventsSumUpToTheirSamples(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		bed := newBed(t, 2)
		load := newLoad(t, bed)
		load.offer(t, "load", 5000)
		path := filepath.Join(t.TempDir(), "host.trace.zst")
		// In several files, so that events have to stay with their sample.
		code, stdout, stderr := call(t, "record", "--netns", bed.Server().Name, "--interval", "100ms", "-o", path, bed.Server().Ifname,
			"--duration", "3s", "--rotate-age", "1s", "--json",
			"--events", "--events-window", "200ms", "--events-every", "500ms")
		var line struct {
			traceLine
			recorded
		}
		if err := json.Unmarshal([]byte(stdout), &line); code != exitDone || err != nil || line.FailedWrites != 0 || line.Events == nil || len(line.Files) < 2 {
			t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
		}
		// The same again without the edges of files.
		whole := filepath.Join(t.TempDir(), "whole.trace.zst")
		if code, _, stderr := call(t, append(append([]string{"trace", "merge"}, line.Files...), "-o", whole)...); code != exitDone {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		var got recordedEvents
		for _, files := range [][]string{line.Files, {whole}} {
			got = recordedEvents{}
			windows := 0
			for _, w := range eventWindows(t, files) {
				windows++
				got.count(w.events)
				last := w.events[len(w.events)-1]
				if w.events[0].From != w.sample.At-w.sample.Span || last.To != w.sample.At {
					t.Errorf("events from %v to %v follow the sample of %v up to %v", w.events[0].From, last.To, w.sample.Span, w.sample.At)
				}
				if last.Lost != 0 || w.sample.Lost != 0 {
					t.Logf("window to %v: lost %d events, %d counts", w.sample.At, last.Lost, w.sample.Lost)
					continue
				}
				for i := range w.sample.Queues {
					q := &w.sample.Queues[i]
					counted := q.Softirq.Plus(q.Thread).Plus(q.Busy)
					if polls, packets := polledOneByOne(w.events, q.Queue); polls != counted.Polls || packets != counted.Packets {
						t.Errorf("queue %v up to %v: %d polls and %d packets by the events, the sample counts %d and %d",
							q.Queue, w.sample.At, polls, packets, counted.Polls, counted.Packets)
					}
				}
			}
			if got != *line.Events {
				t.Errorf("%v: %+v in the trace, %+v by the summary", files, got, *line.Events)
			}
			// 30 windows, of which 2 in 5; fewer where the machine was busy.
			if windows < 6 || windows > 14 {
				t.Errorf("events in %d windows of %d, want 2 in 5", windows, line.Samples)
			}
		}
		if got.Polls < 100 || got.Requests < 100 || got.Waits < 100 {
			t.Errorf("%+v: too few to prove anything", got)
		}
		if code, _, stderr := call(t, append([]string{"replay", "--policy", "random", "--json"}, line.Files...)...); code != exitDone {
			t.Errorf("replay: exit code %d: %s", code, stderr)
		}
		// A prediction has the arrivals of the windows with events one by one.
		args := []string{"replay", "--simulate", "--preset", "veth", "--draws", "1", "--policy", "base", "--json"}
		code, stdout, stderr = call(t, append(args, line.Files...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var m modelLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil || code != exitDone {
			t.Fatalf("replay --simulate: exit code %d, %v: %s%s", code, err, stdout, stderr)
		}
		if m.ArrivalsSingle == 0 && m.UnusedEvents == 0 || m.ArrivalsSingle > 0 && m.ArrivalsAlike == 0 {
			t.Errorf("of the simulated windows %d had their arrivals one by one and %d those of one that is alike; %d were of no use", m.ArrivalsSingle, m.ArrivalsAlike, m.UnusedEvents)
		}
	})
}

// eventWindow is a sample with the events that follow it.
type eventWindow struct {
	sample model.Sample
	events []model.Events
}

// eventWindows reads the windows with events of a recording.
func eventWindows(t testing.TB, files []string) (out []eventWindow) {
	t.Helper()
	reader, err := trace.OpenParts(files, trace.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var now eventWindow
	for r, err := range reader.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == trace.KindEvents {
			now.events = append(now.events, *r.Events)
		}
		if r.Kind != trace.KindSample {
			continue
		}
		if now.events != nil {
			out = append(out, now)
		}
		now = eventWindow{sample: r.Sample}
	}
	if now.events != nil {
		out = append(out, now)
	}
	return slices.Clip(out)
}

// polledOneByOne sums the polls of a queue.
func polledOneByOne(events []model.Events, queue model.Queue) (polls, packets uint64) {
	for i := range events {
		for _, e := range events[i].Polls {
			if e.Queue == queue {
				polls++
				packets += uint64(e.Work)
			}
		}
	}
	return polls, packets
}

func TestEventFlagsBecomeWindows(t *testing.T) {
	window, every := 3*time.Second, time.Minute
	for name, c := range map[string]struct {
		flags eventFlags
		want  *probe.EventOptions
	}{
		"no events":   {eventFlags{}, nil},
		"as usual":    {eventFlags{Events: true}, &probe.EventOptions{Window: time.Second, Every: 10 * time.Second}},
		"as asked":    {eventFlags{Events: true, EventsWindow: &window, EventsEvery: &every}, &probe.EventOptions{Window: window, Every: every}},
		"in part":     {eventFlags{Events: true, EventsEvery: &every}, &probe.EventOptions{Window: time.Second, Every: every}},
		"of no event": {eventFlags{EventsWindow: &window}, nil},
	} {
		if diff := cmp.Diff(c.want, c.flags.options()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
