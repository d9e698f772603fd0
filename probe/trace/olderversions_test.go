package trace

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

// testdata/v1.trace.zst was written by the last build that wrote version 1, and
// v2.trace.zst by the last that wrote version 2.
func TestTracesOfOlderVersionsAreRead(t *testing.T) {
	t.Run("1", func(t *testing.T) { readOlder(t, "testdata/v1.trace.zst", 1, 3) })
	t.Run("2", func(t *testing.T) { readOlder(t, "testdata/v2.trace.zst", 2, 1) })
}

// readOlder reads a trace of an older version, which has so many entries.
func readOlder(t *testing.T, path string, version, entries int) {
	t.Helper()
	source := newRealistic(9, 2)
	var want []model.Sample
	for i := range uint64(3) {
		s := source.next()
		q := &s.Queues[0]
		q.Netpoll, q.Unmasked, q.Interrupts = &i, &i, &i
		q.TimerSoftirq = &model.PollCounts{Polls: 9, Packets: 8, Empty: 7, Full: 6}
		q.Takeovers = &model.Takeovers{InterruptToTimer: 1, ApplicationToTimer: 2}
		q.Suspension = &model.Suspension{Started: 3}
		q.Suspension.Length.Add(5000, 3)
		want = append(want, s)
	}
	r, err := Open(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.SchemaVersion() != version {
		t.Errorf("version %d, want %d", r.SchemaVersion(), version)
	}
	if diff := cmp.Diff(testHeader(), r.Header()); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	var got []model.Sample
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		switch record.Kind {
		case KindSample:
			got = append(got, record.Sample)
		case KindJournal:
			entries--
			if string(record.Entry) != `{"n":1}` {
				t.Errorf("entry %s", record.Entry)
			}
		case KindApply:
			asked := got[len(got)-1].Active
			if diff := cmp.Diff(NewOutcome(asked, asked, errors.New("x")), *record.Outcome); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		default:
			t.Errorf("a record of kind %s", record.Kind)
		}
	}
	if version == 1 {
		// It did not have them.
		for i := range want {
			for j := range want[i].Queues {
				want[i].Queues[j].CPUs = nil
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if entries != 0 {
		t.Errorf("%d entries are missing", entries)
	}
	if !r.Stats().Ended {
		t.Error("the end was not read")
	}
}
