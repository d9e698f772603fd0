package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

const crashPathVariable = "AUTOTUNE_TRACE_CRASH_PATH"

// TestMain turns the test binary into the process that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashPathVariable); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes frames of three samples and prints the number of
// samples flushed so far.
func writeUntilKilled(path string) {
	w, err := Create(path, Header{}, Options{FlushEvery: time.Hour})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 1; i < 10_000_000; i++ {
		if err := w.Write(model.Sample{At: time.Duration(i)}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if i%3 == 0 {
			if err := w.Flush(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(i)
		}
	}
	os.Exit(0)
}

func TestAKilledWriterLosesAtMostItsLastFlush(t *testing.T) {
	for round := range 5 {
		path := filepath.Join(t.TempDir(), "a.trace.zst")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashPathVariable+"="+path)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		flushed := 0
		read1 := func() bool {
			if !lines.Scan() {
				return false
			}
			if _, err := fmt.Sscan(lines.Text(), &flushed); err != nil {
				t.Errorf("writer: %s", lines.Text())
				return false
			}
			return true
		}
		for flushed < 300*(round+1) && read1() {
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// What it printed before it died was flushed.
		for read1() {
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		ats, stats, err := read(file, ReaderOptions{AllowTruncated: true})
		if err != nil || stats.Ended {
			t.Fatalf("%v, %+v", err, stats)
		}
		if len(ats) < flushed || len(ats)%3 != 0 || flushed == 0 {
			t.Errorf("%d samples read, %d flushed", len(ats), flushed)
		}
		for i, at := range ats {
			if at != time.Duration(i+1) {
				t.Fatalf("sample %d is of %d", i, at)
			}
		}
	}
}

// The example of the package documentation, with the real tools.
func TestZstdAndJqReadATrace(t *testing.T) {
	for _, tool := range []string{"zstd", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v: CI has to try the documented example", err)
			}
			t.Skipf("%v: the documented example was not tried", err)
		}
	}
	path := filepath.Join(t.TempDir(), "run.trace.zst")
	w, err := Create(path, testHeader(), Options{FlushEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	delay := new(model.Histogram)
	delay.Add(10*time.Microsecond, 3)
	for i := range 3 {
		s := model.Sample{At: time.Duration(i+1) * time.Second, Queues: []model.QueueSample{{
			Queue:   model.Queue{Netns: 1, Ifindex: 2, Index: i},
			Softirq: model.PollCounts{Packets: 5}, Busy: model.PollCounts{Packets: uint64(i)}, Delay: delay,
		}}}
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "//\tzstd -dc")
	example, _, ok2 := strings.Cut(example, "//\n")
	if !ok || !ok2 {
		t.Fatal("doc.go has no example")
	}
	script := "zstd -dc" + strings.NewReplacer("//", "", "run.trace.zst", path).Replace(example)
	got, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, got, script)
	}
	want := "1000000000\t1:2:0\t5\n2000000000\t1:2:1\t6\n3000000000\t1:2:2\t7\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, script)
	}
	kinds, err := exec.Command("sh", "-c", "zstd -dc "+path+" | jq -r .kind | sort | uniq -c | tr -s ' '").Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(" 1 end\n 4 frame\n 1 header\n 3 sample\n", string(bytes.TrimRight(kinds, ""))); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// The functions that the documentation offers to jq agree with the decoder.
func TestTheFunctionsForJqReadATrace(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%v: CI has to try docs/trace.jq", err)
		}
		t.Skipf("%v: docs/trace.jq was not tried", err)
	}
	source := newRealistic(4, 3)
	source.packets, source.every = 40000, 1
	s := source.next()
	s.Queues[1].Delay = nil
	s.Queues[2].Delay = new(model.Histogram)
	s.Queues[0].Delay.Counts[3], s.Queues[0].Delay.Counts[200] = 5, 123456
	rounded := Round(s)
	rounded.At++
	all := Round(source.next())
	cmd := exec.Command("jq", "-c", "-L", "../../docs", `include "trace"; queues | [.at_ns, .queue, .softirq_packets, (.delay | unpack), (.service | unpack), (.work | unpack)]`)
	samples := []model.Sample{s, rounded, all}
	var text []byte
	for i := range samples {
		text = append(newEncoder().append(text, &samples[i]), '\n')
	}
	cmd.Stdin = bytes.NewReader(text)
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pairs := func(counts []uint64) string {
		var out []string
		for i, n := range counts {
			if n > 0 {
				out = append(out, fmt.Sprintf("[%d,%d]", i, n))
			}
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	want := ""
	for _, sample := range samples {
		for _, q := range sample.Queues {
			delay := "null"
			if q.Delay != nil {
				delay = pairs(q.Delay.Counts[:])
			}
			want += fmt.Sprintf("[%d,%q,%d,%s,%s,%s]\n", sample.At, q.Queue, q.Softirq.Packets, delay, pairs(q.Service.Counts[:]), pairs(q.Work[:]))
		}
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
