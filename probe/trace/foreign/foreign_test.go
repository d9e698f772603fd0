package foreign

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

func TestSoftnetSnapshotsBecomeWindows(t *testing.T) {
	// Two CPUs of a kernel that numbers them (5.10), the second one absent at
	// first; a counter wraps, and in the last snapshot all begin again.
	const text = `# 2026-01-01T00:00:00Z
fffffff0 00000000 00000005 0 0 0 0 0 0 0 0 00000000 00000000
# 1767225601.5
00000010 00000000 00000007 0 0 0 0 0 0 0 0 00000000 00000000
00000100 00000000 00000000 0 0 0 0 0 0 0 0 00000000 00000003

# 1767225602
00000011 00000000 00000007 0 0 0 0 0 0 0 0 00000000 00000000
00000110 00000000 00000001 0 0 0 0 0 0 0 0 00000000 00000003
# 1767225603
00000001 00000000 00000000 0 0 0 0 0 0 0 0 00000000 00000000
00000001 00000000 00000000 0 0 0 0 0 0 0 0 00000000 00000003
`
	queue := func(cpu int, packets uint64) model.QueueSample {
		return model.QueueSample{Queue: model.Queue{Index: cpu}, Softirq: model.PollCounts{Packets: packets}}
	}
	want := Series{
		Begin: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Interval: 1500 * time.Millisecond, Ifnames: map[int]string{}, Resets: 1,
		Samples: []model.Sample{
			{At: 1500 * time.Millisecond, Span: 1500 * time.Millisecond, Queues: []model.QueueSample{queue(0, 32)}, CPUs: []model.CPUSample{{Squeezed: 2}}},
			{At: 2 * time.Second, Span: 500 * time.Millisecond, Queues: []model.QueueSample{queue(0, 1), queue(3, 16)}, CPUs: []model.CPUSample{{}, {CPU: 3, Squeezed: 1}}},
		},
	}
	got, err := ReadSoftnet(strings.NewReader(text))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// Kernels before 5.10 do not number the lines.
	old, err := ReadSoftnet(strings.NewReader("# 1\n1 0 0 0 0 0 0 0 0\n2 0 0 0 0 0 0 0 0\n# 2\n3 0 0 0 0 0 0 0 0\n6 0 0 0 0 0 0 0 0\n"))
	if err != nil || len(old.Samples) != 1 || len(old.Samples[0].Queues) != 2 || old.Samples[0].Queues[1].Softirq.Packets != 4 {
		t.Errorf("%v: %+v", err, old)
	}
}

func TestTablesOfSadfBecomeWindows(t *testing.T) {
	const text = `# hostname;interval;timestamp;IFACE;rxpck/s;txpck/s;rxkB/s;txkB/s;rxcmp/s;txcmp/s;rxmcst/s;%ifutil
web-1;10;2026-01-01 00:00:10 UTC;lo;1.00;1.00;0.1;0.1;0.00;0.00;0.00;0.00
web-1;10;2026-01-01 00:00:10 UTC;eth0;1234.56;1.00;0.1;0.1;0.00;0.00;0.00;0.00
web-1;-1;2026-01-01 00:00:12 UTC;LINUX-RESTART	(2 CPU)
web-1;10;2026-01-01 00:00:20 UTC;lo;0.00;1.00;0.1;0.1;0.00;0.00;0.00;0.00
web-1;10;2026-01-01 00:00:20 UTC;eth0;100,25;1.00;0.1;0.1;0.00;0.00;0.00;0.00
# hostname;interval;timestamp;CPU;%usr;%nice;%sys;%iowait;%steal;%irq;%soft;%guest;%gnice;%idle
web-1;10;2026-01-01 00:00:10 UTC;-1;1;0;1;0;0;0;0;0;0;50
web-1;10;2026-01-01 00:00:10 UTC;0;20.00;0.00;10.00;5.00;2.00;1.00;12.00;0.00;0.00;50.00
# hostname;interval;timestamp;CPU;total/s;dropd/s;squeezd/s;rx_rps/s;flw_lim/s;blg_len
web-1;10;2026-01-01 00:00:10 UTC;0;900.00;0.00;0.30;0.00;0.00;0.00
`
	queue := func(ifindex int, packets uint64) model.QueueSample {
		return model.QueueSample{Queue: model.Queue{Ifindex: ifindex}, Softirq: model.PollCounts{Packets: packets}}
	}
	want := Series{
		Host: "web-1", Begin: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Interval: 10 * time.Second, Ifnames: map[int]string{1: "eth0", 2: "lo"},
		Samples: []model.Sample{
			{
				At: 10 * time.Second, Span: 10 * time.Second, Queues: []model.QueueSample{queue(1, 12346), queue(2, 10)},
				CPUs: []model.CPUSample{{Busy: 4300 * time.Millisecond, Steal: 200 * time.Millisecond, Squeezed: 3}},
			},
			{At: 20 * time.Second, Span: 10 * time.Second, Queues: []model.QueueSample{queue(1, 1003), queue(2, 0)}},
		},
	}
	got, err := ReadSadf(strings.NewReader(text))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	soft, err := ReadSadf(strings.NewReader("# hostname;interval;timestamp;CPU;total/s;squeezd/s\na;1;1767225601;2;50;0\n"))
	if err != nil || len(soft.Samples) != 1 || soft.Samples[0].Queues[0].Softirq.Packets != 50 || soft.Samples[0].Queues[0].Queue.Index != 2 {
		t.Errorf("%v: %+v", err, soft)
	}
}

func TestWhatIsNoSeriesIsRefusedWithItsLine(t *testing.T) {
	for _, tt := range []struct {
		name, text, says string
		read             func(string) error
	}{
		{"no snapshot", "", "0 snapshots", softnet},
		{"one snapshot", "# 1\n1 0 0 0 0 0 0 0 0\n", "1 snapshots", softnet},
		{"no time", "1 0 0 0 0 0 0 0 0\n", "line 1", softnet},
		{"a time that is none", "# noon\n", "line 1", softnet},
		{"too few columns", "# 1\n1 0 0\n", "line 2", softnet},
		{"not hexadecimal", "# 1\n1 0 x 0 0 0 0 0 0\n", "line 2", softnet},
		{"time that stands still", "# 1\n1 0 0 0 0 0 0 0 0\n# 1\n1 0 0 0 0 0 0 0 0\n", "line 3", softnet},
		{"a CPU twice", "# 1\n1 0 0 0 0 0 0 0 0 0 0 0 1\n1 0 0 0 0 0 0 0 0 0 0 0 1\n", "line 3", softnet},
		{"a CPU out of reach", "# 1\n1 0 0 0 0 0 0 0 0 0 0 0 ffffffff\n", "line 2", softnet},
		{"no table", "a;1;2\n", "line 1", sadf},
		{"a table without times", "# hostname;interval\n", "line 1", sadf},
		{"a column twice", "# hostname;hostname;interval;timestamp;CPU;;0;squeezd/s\n0;0;1;0;00;0;\n", "line 1", sadf},
		{"too few values", "# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo\n", "line 2", sadf},
		{"a rate that is none", "# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo;NaN\n", "line 2", sadf},
		{"a rate below none", "# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo;-1\n", "line 2", sadf},
		{"a rate beyond counting", "# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo;1e300\n", "line 2", sadf},
		{"no interval", "# hostname;interval;timestamp;IFACE;rxpck/s\na;0;1;lo;1\n", "line 2", sadf},
		{"two hosts", "# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo;1\nb;1;2;lo;1\n", "line 3", sadf},
		{"no packets", "# hostname;interval;timestamp;CPU;%idle\na;1;1;0;1\n", "no table has packets", sadf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.read(tt.text); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

func softnet(text string) error {
	_, err := ReadSoftnet(strings.NewReader(text))
	return err
}

func sadf(text string) error {
	_, err := ReadSadf(strings.NewReader(text))
	return err
}

func FuzzReadSoftnet(f *testing.F) {
	f.Add("# 1\n1 0 0 0 0 0 0 0 0\n# 2.5\n3 0 0 0 0 0 0 0 0 0 0 0 1\n")
	f.Fuzz(func(t *testing.T, text string) { check(t, ReadSoftnet, text) })
}

func FuzzReadSadf(f *testing.F) {
	f.Add("# hostname;interval;timestamp;IFACE;rxpck/s\na;1;1;lo;1\n# hostname;interval;timestamp;CPU;%idle;total/s;squeezd/s\na;1;2;0;50;3;1\n")
	f.Add("# hostname;hostname;interval;timestamp;CPU;;0;squeezd/s\n0;0;1;0;00;0;\n")
	f.Fuzz(func(t *testing.T, text string) { check(t, ReadSadf, text) })
}

// check: what is read has windows that follow each other.
func check[R any](t *testing.T, read func(R) (Series, error), text string) {
	reader, ok := any(strings.NewReader(text)).(R)
	if !ok {
		t.Fatal("not a reader")
	}
	s, err := read(reader)
	if err != nil {
		return
	}
	last := time.Duration(0)
	for _, sample := range s.Samples {
		if sample.At <= last || sample.Span <= 0 {
			t.Errorf("a window of %v at %v, after %v", sample.Span, sample.At, last)
		}
		last = sample.At
	}
}
