package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestEventsSurviveEncodingAndDecoding(t *testing.T) {
	loops := []model.Loop{model.LoopSoftirq, model.LoopThread, model.LoopApplication, model.LoopSoftirqTimer, model.LoopThreadTimer}
	all := rapid.Make[model.Events]()
	rapid.Check(t, func(t *rapid.T) {
		want := all.Draw(t, "events")
		for i := range want.Polls {
			want.Polls[i].Loop = rapid.SampledFrom(loops).Draw(t, "loop")
		}
		line := appendEvents(nil, &want)
		if bytes.ContainsAny(line, "\n\r") || !json.Valid(line) {
			t.Fatalf("not one line of JSON: %q", line)
		}
		var d decoder
		got, err := d.events(line)
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestEventsAreWrittenAsDifferences(t *testing.T) {
	receive, send := 1300*time.Nanosecond, 1350*time.Nanosecond
	q := model.Queue{Netns: 1, Ifindex: 2}
	e := model.Events{
		From: 1000, To: 2000, Lost: 3,
		Polls:    []model.PollEvent{{At: 1100, Queue: q, Work: 7}, {At: 1150, Queue: q, Loop: model.LoopThreadTimer}},
		Requests: []model.RequestEvent{{Ready: 1200, Queue: q, Receive: &receive, Send: &send}, {Ready: 1300, Queue: q, Send: &send}},
	}
	want := `{"kind":"events","from_ns":1000,"to_ns":2000,"lost_events":3,` +
		`"polls":{"after_ns":[100,50],"queue":["1:2:0","1:2:0"],"work":[7,0],"loop":["softirq","thread_timer"]},"waits":null,` +
		`"requests":{"ready_after_ns":[200,100],"queue":["1:2:0","1:2:0"],"receive_after_ns":[100,null],"send_after_ns":[50,50]}}`
	if diff := cmp.Diff(want, string(appendEvents(nil, &e))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventsOfATraceAreRead(t *testing.T) {
	e := model.Events{From: 10, To: 20, Waits: []model.WaitEvent{{At: 11, PID: 777, Events: 3}}, Polls: []model.PollEvent{{At: 12, Queue: model.Queue{Netns: 4026531840}}}}
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(model.Sample{At: 20, Span: 10}), w.WriteEvents(e), w.WriteEntry(json.RawMessage("1"))); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteEvents(model.Events{Polls: make([]model.PollEvent, model.MaxEvents+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(out.Bytes()), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a := NewAnonymizer([]byte("salt"))
	a.Header(r.Header())
	var copied bytes.Buffer
	c, err := NewWriter(&copied, r.Header(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == KindEvents {
			if diff := cmp.Diff(&e, record.Events); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if anonymous := a.Record(record).Events; anonymous.Waits[0].PID < 1<<22 || anonymous.Polls[0].Queue.Netns == 4026531840 || anonymous.Polls[0].At != 12 {
				t.Errorf("anonymous %+v", anonymous)
			}
		}
		if err := c.WriteRecord(record); err != nil {
			t.Fatal(err)
		}
	}
	if stats := r.Stats(); stats.Others != 2 || stats.Unknown != nil {
		t.Errorf("stats %+v", stats)
	}
	if s := c.Stats(); s.Pending.Others != 2 {
		t.Errorf("copied %+v", s)
	}
}

func TestEventsThatSayWrongThingsAreRefused(t *testing.T) {
	good := string(appendEvents(nil, &model.Events{Polls: []model.PollEvent{{}}}))
	for _, tt := range []struct{ name, old, new, text string }{
		{"no such loop", `"softirq"`, `"nobody"`, "not a loop"},
		{"no span", `"from_ns":0,`, ``, "before their span"},
		{"no end", `"to_ns":0,`, ``, `"to_ns" is missing`},
		{"a column left out", `"work":[0],`, ``, `"work" is missing`},
		{"work over 32 bits", `"work":[0]`, `"work":[4294967296]`, "whole number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.old, tt.new, 1)
			var d decoder
			if _, err := d.events([]byte(bad)); bad == good || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v", bad, err)
			}
		})
	}
}

func FuzzDecodeEvents(f *testing.F) {
	receive := time.Duration(5)
	f.Add(appendEvents(nil, &model.Events{
		Polls: []model.PollEvent{{At: 1}, {At: 2}}, Waits: []model.WaitEvent{{}}, Requests: []model.RequestEvent{{Receive: &receive}},
	}))
	f.Fuzz(func(t *testing.T, line []byte) {
		var d decoder
		first, err := d.events(line)
		if err != nil {
			return
		}
		again, err := d.events(appendEvents(nil, &first))
		if err != nil {
			t.Fatalf("own encoding is refused: %v", err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
