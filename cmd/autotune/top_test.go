package main

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/model"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"
)

// topSample has two queues: the second has more packets, the first the longer
// delays.
func topSample() model.Sample {
	s := model.Sample{At: time.Hour, Span: time.Second, Active: model.Config{}, NAPIIDs: map[model.Queue]uint32{}}
	for i, packets := range []uint64{100, 9000} {
		q := model.Queue{Netns: 1, Ifindex: 7, Index: i}
		qs := model.QueueSample{Queue: q, NAPIID: uint32(500 + i), Softirq: model.PollCounts{Polls: packets, Packets: packets},
			TimerSoftirq: &model.PollCounts{}, TimerThread: &model.PollCounts{}, Delay: &model.Histogram{}}
		qs.Delay.Add(time.Duration(2-i)*100*time.Microsecond, 10)
		s.Queues = append(s.Queues, qs)
		s.Active[q] = model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * time.Microsecond}
		s.NAPIIDs[q] = qs.NAPIID
	}
	netRX := 250 * time.Millisecond
	s.CPUs = []model.CPUSample{{CPU: 0, Busy: 500 * time.Millisecond, NetRX: &netRX}, {CPU: 1, Steal: 20 * time.Millisecond}}
	return s
}

func TestTopShowsAWindowWithinTheTerminal(t *testing.T) {
	m := &topModel{names: map[int]string{7: "eth7"}, boot: time.Unix(0, 0)}
	if view := m.text(); !strings.Contains(view, "waiting") {
		t.Errorf("before the first window it shows %q", view)
	}
	m.Update(topSample())
	view := m.text()
	for _, want := range []string{"eth7", "9000", "100%", "50µs", "[|||||     ]  50% busy", "25% NET_RX", "2% stolen"} {
		if !strings.Contains(view, want) {
			t.Errorf("the view does not show %q:\n%s", want, view)
		}
	}
	for _, size := range []tea.WindowSizeMsg{{Width: 40, Height: 24}, {Width: 200, Height: 5}, {Width: 10, Height: 3}} {
		m.Update(size)
		lines := strings.Split(m.text(), "\n")
		if len(lines) > size.Height {
			t.Errorf("%d lines on a terminal of %d", len(lines), size.Height)
		}
		for _, line := range lines {
			if w := lipgloss.Width(line); w > size.Width {
				t.Errorf("a line of %d cells on a terminal of %d: %q", w, size.Width, line)
			}
		}
	}
}

func TestTopOrdersItsRows(t *testing.T) {
	m := &topModel{names: map[int]string{7: "eth7"}}
	m.Update(topSample())
	first := func() string {
		for line := range strings.Lines(m.text()) {
			if strings.HasPrefix(line, "eth7") {
				return strings.Fields(line)[1]
			}
		}
		return ""
	}
	var got []string
	for range 4 {
		got = append(got, first())
		m.Update(tea.KeyPressMsg{Code: 's', Text: "s"})
	}
	// By queue, packets, p99, and queue again.
	if diff := cmp.Diff([]string{"0", "1", "0", "0"}, got); diff != "" {
		t.Errorf("first rows (-want +got):\n%s", diff)
	}
	if _, quit := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
}

func TestTopWithoutATerminalNamesWhatToUse(t *testing.T) {
	code, _, stderr := call(t, "top")
	if code != exitUsage || !strings.Contains(stderr, "list --live") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
}

// screen is a terminal that remembers what was written.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) shows(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

func TestLiveTopShowsTheBedUntilQ(t *testing.T) {
	bed := newBed(t, 1)
	k := newKernel(t, bed)
	originals := k.mark()
	host, err := actuate.Open(t.Context(), actuate.Options{
		Namespace: actuate.NamespaceRef{Name: bed.Server().Name}, Ifaces: []string{bed.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	keys, press := io.Pipe()
	var shown, errs screen
	done := make(chan error, 1)
	go func() {
		done <- (&topCmd{Interval: 50 * time.Millisecond}).show(t.Context(), host, keys, streams{out: &shown, err: &errs}, tea.WithWindowSize(200, 40))
	}()
	deadline := time.After(30 * time.Second)
	for !shown.shows(bed.Server().Ifname) {
		select {
		case err := <-done:
			t.Fatalf("it ended by itself: %v", err)
		case <-deadline:
			t.Fatal("not within 30 s: the bed's queue is shown")
		case <-time.After(20 * time.Millisecond):
		}
	}
	if _, err := press.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("show: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("q did not end it within 10 s")
	}
	_ = press.Close()
	if diff := cmp.Diff(originals, k.settings()); diff != "" {
		t.Errorf("settings (-before +after):\n%s", diff)
	}
}
