package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

// lines are the records of a trace in the form in which a file has them.
func lines(t *testing.T, r *Reader) []string {
	t.Helper()
	var out []string
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		switch record.Kind {
		case KindSample:
			out = append(out, string(newEncoder().append(nil, &record.Sample)))
		case KindJournal:
			out = append(out, "journal "+string(record.Entry))
		default:
			text, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
		}
	}
	return out
}

// edited makes a trace with every kind of record, in which conditions change
// and records were lost.
func edited(t *testing.T) (path string, ats []time.Duration) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.trace.zst")
	w, err := Create(path, testHeader(), Options{FlushEvery: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	source := newRealistic(8, 2)
	source.all, source.packets = true, 300
	for i := range 20 {
		s := source.next()
		ats = append(ats, s.At)
		changed := testHeader().Conditions
		changed.CPUIdleGovernor = new(string)
		*changed.CPUIdleGovernor = "teo"
		steps := []func() error{
			func() error { return w.Write(s) },
			func() error { return w.WriteOutcome(NewOutcome(s.Active, s.Active, errors.New("x"))) },
			func() error { return w.WriteEntry(json.RawMessage(`{"n":1}`)) },
		}
		if i == 6 {
			steps = append(steps, func() error { return w.WriteConditions(s.At, changed) })
		}
		if i == 11 {
			steps = append(steps, func() error { return w.WriteGap(Gap{Samples: 2, Others: 3}) })
		}
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, ats
}

func open(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := Open(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // only read
	return r
}

func cutTo(t *testing.T, path string, from, to time.Duration) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "cut.trace.zst")
	_, err := Cut(t.Context(), open(t, path), func(h Header) (*Writer, error) { return Create(out, h, Options{}) }, from, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mergeTo(t *testing.T, force bool, paths ...string) (string, error) {
	t.Helper()
	var inputs []MergeInput
	for _, path := range paths {
		inputs = append(inputs, MergeInput{
			Name: path, Summary: Summarize(t.Context(), open(t, path), nil),
			Open: func() (*Reader, error) { return Open(path, ReaderOptions{}) },
		})
	}
	ordered, err := PlanMerge(inputs, force)
	if err != nil {
		return "", err
	}
	out := filepath.Join(t.TempDir(), "merged.trace.zst")
	w, err := Create(out, MergeHeader(ordered), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Merge(t.Context(), ordered, w, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out, nil
}

const forever = time.Duration(1<<63 - 1)

func TestCutsMergedAreTheOriginal(t *testing.T) {
	path, ats := edited(t)
	want := lines(t, open(t, path))
	for _, cut := range []int{0, 5, 6, 7, 11, 18} {
		first := cutTo(t, path, 0, ats[cut])
		second := cutTo(t, path, ats[cut], forever)
		if n := len(lines(t, open(t, first))); n != 3*(cut+1)+btoi(cut >= 6)+btoi(cut >= 11) {
			t.Errorf("%d records up to sample %d", n, cut)
		}
		merged, err := mergeTo(t, false, second, first)
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, merged)
		if diff := cmp.Diff(want, lines(t, r)); diff != "" {
			t.Fatalf("cut after sample %d (-want +got):\n%s", cut, diff)
		}
		h := r.Header()
		if len(h.Edits) != 3 {
			t.Errorf("edits %v", h.Edits)
		}
		h.Edits = nil
		if diff := cmp.Diff(testHeader(), h); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	}
	middle := open(t, cutTo(t, path, ats[8], ats[10]))
	if g := middle.Header().Conditions.CPUIdleGovernor; g == nil || *g != "teo" {
		t.Errorf("a cut has the idle governor of the beginning: %v", g)
	}
	if s := Summarize(t.Context(), middle, nil); s.Stats.Samples != 2 || s.First != ats[9] || s.Last != ats[10] || s.Entries != 2 || s.Applies != 2 {
		t.Errorf("summary %+v", s)
	}
	if _, err := Cut(t.Context(), open(t, path), func(Header) (*Writer, error) { t.Error("created"); return nil, nil }, ats[19], forever, nil); !errors.Is(err, ErrNoSample) {
		t.Errorf("a cut without a sample: %v", err)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAHoleBetweenMergedTracesIsAGap(t *testing.T) {
	path, ats := edited(t)
	merged, err := mergeTo(t, false, cutTo(t, path, 0, ats[3]), cutTo(t, path, ats[7], forever))
	if err != nil {
		t.Fatal(err)
	}
	s := Summarize(t.Context(), open(t, merged), nil)
	// Four samples of about a second, and two that the recorder lost.
	if s.Stats.Gaps.Samples < 6 || s.Stats.Gaps.Samples > 7 || s.Conditions != 1 || s.Stats.Samples != 16 {
		t.Errorf("gaps %+v, %d changes of conditions, %d samples", s.Stats.Gaps, s.Conditions, s.Stats.Samples)
	}
}

func TestWhatIsNotOneRecordingIsNotMerged(t *testing.T) {
	path, ats := edited(t)
	first, second := cutTo(t, path, 0, ats[3]), cutTo(t, path, ats[3], forever)
	alter := func(change func(*Header)) string {
		out := filepath.Join(t.TempDir(), "other.trace.zst")
		r := open(t, second)
		h := r.Header()
		change(&h)
		w, err := Create(out, h, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(copyRecords(t.Context(), r, w.WriteRecord, nil), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out
	}
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		name   string
		change func(*Header)
		says   string
		forced bool
	}{
		{"another boot", func(h *Header) { h.BootID = "x" }, "times do not compare", false},
		{"another host", func(h *Header) { h.Host = "x" }, "times do not compare", false},
		{"another idle governor", func(h *Header) { h.Conditions.IdleLimit = text("idle=poll") }, "idle=poll", true},
		{"another frequency governor", func(h *Header) { h.Conditions.CPUs[0].Governor = text("powersave") }, "powersave", true},
		{"an idle state enabled", func(h *Header) { h.Conditions.CPUs[0].IdleStates[0].Disabled = false }, "idle states of CPU 0", true},
		{"another limit of a CPU", func(h *Header) { h.Conditions.CPUs[0].ResumeLatency = nil }, "limit on the latency", true},
		{"another host-wide limit", func(h *Header) { *h.Conditions.CPUDMALatency = 0 }, "cpu_dma_latency", true},
		{"another interrupt moderation", func(h *Header) { *h.Conditions.Devices[0].Coalescing.RXUsecs = 9 }, "rx_us 8 and 9", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := alter(tt.change)
			_, err := mergeTo(t, false, first, other)
			if err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, ErrConditions) != tt.forced {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			merged, err := mergeTo(t, true, first, other)
			if (err == nil) != tt.forced {
				t.Fatalf("forced: %v", err)
			}
			if tt.forced {
				if s := Summarize(t.Context(), open(t, merged), nil); s.Conditions < 1 || s.Damage != nil {
					t.Errorf("the change of conditions was not written: %+v", s)
				}
			}
		})
	}
	if _, err := mergeTo(t, true, first, first); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("overlap: %v", err)
	}
	merged, err := mergeTo(t, false, first, alter(func(h *Header) { h.Run = nil }))
	if err != nil {
		t.Fatal(err)
	}
	if open(t, merged).Header().Run != nil {
		t.Error("what ran in a part of it is said to have run in all of it")
	}
}

func TestAllPartsMergedAreTheRecording(t *testing.T) {
	s, _ := writeSeries(t, filepath.Join(t.TempDir(), "a.trace.zst"), Rotation{Age: 5 * time.Second}, 20)
	paths, _ := s.Parts()
	merged, err := mergeTo(t, false, paths...)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, merged)
	if diff := cmp.Diff(testHeader(), r.Header()); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	whole, err := OpenParts(paths, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if diff := cmp.Diff(lines(t, whole), lines(t, r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnAnonymousTraceNamesNobody(t *testing.T) {
	header := testHeader()
	header.Kernel = "6.18.0-acme-prod"
	header.Conditions.Devices[0].Ifname = "acme0"
	header.Run.Queues[0].Netns = 4026532999
	secrets := []string{"server-1", "acme", "b1b0a3e2", "4026531840", "4026532999", "memcached", "checkout", "redis", "777", "3b:00"}
	sample := newRealistic(1, 2).next()
	sample.Apps = []model.AppSample{
		{PID: 777, Comm: "memcached", Cgroup: "/system.slice/checkout.service", CPU: 5},
		{PID: 778, Comm: "redis \"x\"", Cgroup: "/system.slice/redis.service"},
		{PID: 779, Comm: "cost", Cgroup: ""},
	}
	sample.Absent = map[model.Queue]string{{Netns: 4026531840, Ifindex: 2, Index: 9}: "acme0 is down"}
	entry := `{"kind":"decision", "queue":"4026531840:2:0","purpose":"cost","guard":"cost","cost":{"x":"cost"},"why":"epoll context 3 of memcached (pid 777) mixes; redis \"x\" (pid 778) on acme0 receives <without> memcachedx"}`
	var out bytes.Buffer
	w, err := NewWriter(&out, header, Options{})
	if err != nil {
		t.Fatal(err)
	}
	outcome := NewOutcome(sample.Active, sample.Active, &model.QueueError{Queue: sample.Queues[0].Queue, Op: "set acme0", Err: errors.New("netlink acme0")})
	if err := errors.Join(w.Write(sample), w.WriteOutcome(outcome), w.WriteEntry(json.RawMessage(entry)), w.WriteConditions(sample.At, header.Conditions), w.Close()); err != nil {
		t.Fatal(err)
	}
	anonymous := func(salt string) (string, []byte) {
		r, err := NewReader(bytes.NewReader(out.Bytes()), ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var copied bytes.Buffer
		stats, err := Anonymize(t.Context(), r, NewAnonymizer([]byte(salt)), func(h Header) (*Writer, error) { return NewWriter(&copied, h, Options{}) }, nil)
		if err != nil || stats.Written != (Gap{Samples: 1, Others: 3}) {
			t.Fatalf("%+v, %v", stats, err)
		}
		again, err := NewReader(bytes.NewReader(copied.Bytes()), ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		text, err := json.Marshal(again.Header())
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + strings.Join(lines(t, again), "\n"), copied.Bytes()
	}
	text, copied := anonymous("salt")
	for _, secret := range secrets {
		if strings.Contains(strings.ReplaceAll(text, "memcachedx", ""), secret) {
			t.Errorf("%q is still there", secret)
		}
	}
	for _, stays := range []string{`"purpose":"cost","guard":"cost","cost":{"x":"process-`, "<without> memcachedx", `"6.18.0-"`, "mlx5_core"} {
		if stays = strings.Replace(stays, "6.18.0-", "6.18.0", 1); !strings.Contains(text, stays) {
			t.Errorf("%s is not there any more: %s", stays, text)
		}
	}
	if again, _ := anonymous("salt"); again != text {
		t.Error("the same salt does not give the same names")
	}
	if other, _ := anonymous("another"); other == text {
		t.Error("the salt makes no difference")
	}

	// What decisions follow from stays.
	r, err := NewReader(bytes.NewReader(copied), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.At != sample.At || got.Queues[1].Work != sample.Queues[1].Work || *got.Queues[0].Delay != *sample.Queues[0].Delay || got.Apps[0].CPU != 5 {
		t.Error("counts have changed")
	}
	if _, ok := got.Active[got.Queues[0].Queue]; !ok || r.Header().Run.Queues[0].Netns == r.Header().Conditions.Devices[0].Netns {
		t.Error("queues are not the same throughout")
	}
}

func TestTimeStampsAreADifferenceWhereBothAreKnown(t *testing.T) {
	none, all := "none", "all"
	with := func(s *model.Stamping) Conditions {
		return Conditions{Devices: []Device{{Ifname: "eth0", Stamping: s}}}
	}
	for _, test := range []struct {
		name string
		a, b *model.Stamping
		want []string
	}{
		{"off and on", &model.Stamping{Filter: &none}, &model.Stamping{Filter: &all}, []string{"receive time stamps of eth0 none and all"}},
		{"the same", &model.Stamping{Filter: &all}, &model.Stamping{Clock: 3, Filter: &all}, nil},
		{"not told by a driver", &model.Stamping{}, &model.Stamping{Filter: &all}, nil},
		{"no clock", nil, &model.Stamping{Filter: &all}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, with(test.a).Differences(with(test.b))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
