package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func outcomeQueue(i int) model.Queue { return model.Queue{Netns: 4026531840, Ifindex: 2, Index: i} }

func queueError(i int, op string, err error) error {
	return &model.QueueError{Queue: outcomeQueue(i), Op: op, Err: err}
}

func TestAnOutcomeAnswersAsTheActuatorDid(t *testing.T) {
	want := model.Config{outcomeQueue(0): {DeferHardIRQs: 1}, outcomeQueue(1): {DeferHardIRQs: 2}, outcomeQueue(2): {}}
	got := model.Config{outcomeQueue(0): {DeferHardIRQs: 1}, outcomeQueue(2): {GROFlushTimeout: time.Second}, outcomeQueue(7): {}}
	foreign := queueError(1, "napi-set", fmt.Errorf("reads 3: %w", model.ErrForeignWrite))
	plain := errors.New("state file: no space left on device")
	for _, tc := range []struct {
		name  string
		err   error
		whole bool
		fails []string // of queue 1
	}{
		{"all went well", nil, false, nil},
		{"an empty join", errors.Join(nil, nil), false, nil},
		{"one queue", foreign, false, []string{"foreign_write"}},
		{"two reasons in one", errors.Join(queueError(1, "read back", errors.Join(model.ErrGone, model.ErrLinkDown))), false, []string{"gone", "link_down"}},
		{"no known reason", errors.Join(queueError(1, "napi-set", io.ErrUnexpectedEOF), nil), false, []string{}},
		{"wrapped queues", fmt.Errorf("apply: %w", errors.Join(foreign, queueError(2, "napi-set", model.ErrBusy))), false, []string{"foreign_write"}},
		{"a whole failure", plain, true, nil},
		{"a whole failure beside a queue's", errors.Join(foreign, plain), true, []string{"foreign_write"}},
		{"an ended context", fmt.Errorf("apply: %w", context.Canceled), true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line, err := marshalOutcome(NewOutcome(want, got, tc.err))
			if err != nil {
				t.Fatal(err)
			}
			var in applyLine
			if err := json.Unmarshal(line, &in); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, in.Asked()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			answer, answerErr := in.Result()
			// Queues that nobody asked about are left out.
			if diff := cmp.Diff(model.Config{outcomeQueue(0): got[outcomeQueue(0)], outcomeQueue(2): got[outcomeQueue(2)]}, answer); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
			if (answerErr == nil) != (tc.err == nil) || answerErr != nil && answerErr.Error() != tc.err.Error() {
				t.Errorf("error %v, want %v", answerErr, tc.err)
			}
			if in.Whole != tc.whole {
				t.Errorf("whole is %v, want %v", in.Whole, tc.whole)
			}
			var q *model.QueueError
			if errors.As(answerErr, &q) != (tc.fails != nil) {
				t.Fatalf("a queue's error in %v", answerErr)
			}
			if q == nil {
				return
			}
			var names []string
			for _, s := range sentinels() {
				if errors.Is(q, s.err) {
					names = append(names, s.name)
				}
			}
			if fmt.Sprint(names) != fmt.Sprint(tc.fails) || q.Queue != outcomeQueue(1) {
				t.Errorf("queue %v is %v, want queue 1 to be %v", q.Queue, names, tc.fails)
			}
			if errors.Is(q, io.ErrUnexpectedEOF) {
				t.Error("an error that no trace names was told apart")
			}
		})
	}
}

// An answer that was given again is described as the first one was.
func TestAnOutcomeOfAnOutcomeIsTheSame(t *testing.T) {
	leaf := rapid.Custom(func(t *rapid.T) error {
		s := rapid.SampledFrom(sentinels()).Draw(t, "reason").err
		if rapid.Bool().Draw(t, "whole") {
			return fmt.Errorf("%s: %w", rapid.String().Draw(t, "text"), s)
		}
		return queueError(rapid.IntRange(0, 3).Draw(t, "queue"), rapid.SampledFrom([]string{"napi-set", "read back"}).Draw(t, "op"), fmt.Errorf("<%w>", s))
	})
	tree := rapid.Custom(func(t *rapid.T) error {
		return errors.Join(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) error {
			if rapid.Bool().Draw(t, "deep") {
				return fmt.Errorf("deep: %w", errors.Join(leaf.Draw(t, "a"), leaf.Draw(t, "b")))
			}
			return leaf.Draw(t, "a")
		}), 0, 4).Draw(t, "parts")...)
	})
	rapid.Check(t, func(t *rapid.T) {
		want := model.Config{outcomeQueue(0): {}, outcomeQueue(1): {DeferHardIRQs: 4}}
		first := NewOutcome(want, want, tree.Draw(t, "error"))
		got, err := first.Result()
		if diff := cmp.Diff(first, NewOutcome(first.Asked(), got, err)); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}

// stepTrace is a trace of three steps in frames of their own.
func stepTrace(t *testing.T, entries [][]string) (data []byte, ends []int) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{}, Options{FlushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i, list := range entries {
		if err := w.Write(model.Sample{At: time.Duration(i + 1)}); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteOutcome(NewOutcome(model.Config{outcomeQueue(i): {}}, nil, nil)); err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			// A frame for each entry, so that a cut can fall between them.
			if err := errors.Join(w.WriteEntry(json.RawMessage(e)), w.Flush()); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, out.Len())
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), append(ends, out.Len())
}

func TestStepsGroupWhatFollowsFromASample(t *testing.T) {
	entries := [][]string{{`{"n":1}`, `{"n":2}`}, {`{"n":3}`}, {`{"n":4}`, `{"n":5}`}}
	data, ends := stepTrace(t, entries)
	for cut := ends[0]; cut <= len(data); cut++ {
		whole := 0 // frames with an entry
		for _, end := range ends[:len(ends)-1] {
			if cut >= end {
				whole++
			}
		}
		r, err := NewReader(bytes.NewReader(data[:cut]), ReaderOptions{AllowTruncated: true})
		if err != nil {
			t.Fatal(err)
		}
		steps, seen := NewSteps(r), 0
		for i := 0; ; i++ {
			step, err := steps.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if step.Sample.At != time.Duration(i+1) || step.Outcome == nil || step.Outcome.Wanted[0].Queue != outcomeQueue(i) {
				t.Fatalf("cut at %d: step %d is %+v", cut, i, step)
			}
			for _, e := range step.Entries {
				if seen++; string(e) != fmt.Sprintf(`{"n":%d}`, seen) {
					t.Fatalf("cut at %d: entry %d is %s", cut, seen, e)
				}
			}
			last := i == len(entries)-1
			sampleAfter := !last && seen < whole
			if want := sampleAfter || last && cut == len(data); step.Complete != want {
				t.Fatalf("cut at %d of %d: step %d with %d entries: complete is %v, want %v", cut, len(data), i, len(step.Entries), step.Complete, want)
			}
		}
		if seen != whole {
			t.Fatalf("cut at %d: %d entries, want %d", cut, seen, whole)
		}
		r.Close()
	}
}

func TestAStepAfterWhichRecordsWereLostIsIncomplete(t *testing.T) {
	var out bytes.Buffer
	fail := false
	w, err := NewWriter(writerFunc(func(b []byte) (int, error) {
		if fail {
			return 0, io.ErrShortWrite
		}
		return out.Write(b)
	}), Header{}, Options{FlushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	flush := func(failing bool) {
		fail = failing
		if err := w.Flush(); (err != nil) != failing {
			t.Fatal(err)
		}
	}
	write := func(at time.Duration) {
		if err := errors.Join(w.Write(model.Sample{At: at}), w.WriteEntry(json.RawMessage(`{}`))); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	flush(false)
	write(2)
	flush(true)
	write(3)
	if err := w.WriteEntry(json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	flush(false)
	if stats := w.Stats(); stats.Lost != (Gap{Samples: 1, Others: 1}) || stats.Bytes != int64(out.Len()) {
		t.Errorf("%+v, %d bytes", stats, out.Len())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&out, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	steps := NewSteps(r)
	first, err := steps.Next()
	if err != nil || first.Complete || len(first.Entries) != 1 {
		t.Errorf("%+v, %v", first, err)
	}
	third, err := steps.Next()
	if err != nil || !third.Complete || third.Sample.At != 3 || third.LostBefore != (Gap{Samples: 1, Others: 1}) || len(third.Entries) != 2 {
		t.Errorf("%+v, %v", third, err)
	}
	if _, err := steps.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
