package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

// flaky fails single writes, after having written half of them.
type flaky struct {
	dst   io.Writer
	calls int
	fail  map[int]bool
}

func (f *flaky) Write(p []byte) (int, error) {
	f.calls++
	if f.fail[f.calls] {
		n, _ := f.dst.Write(p[:len(p)/2])
		return n, syscall.ENOSPC
	}
	return f.dst.Write(p)
}

func TestAFailedWriteLosesItsFrameOnlyAndIsToldAsAGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace.zst")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	// The header is the first call, frames of two samples follow: the second
	// and third of them fail.
	w, err := newWriter(&flaky{dst: file, fail: map[int]bool{3: true, 4: true}}, file, testHeader(), Options{FlushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var failures []error
	for frame := range 5 {
		for i := range 2 {
			if err := w.Write(model.Sample{At: time.Duration(10*frame + i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WriteEntry(json.RawMessage(`{"frame":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			failures = append(failures, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(failures) != 2 || !errors.Is(failures[0], syscall.ENOSPC) {
		t.Errorf("failures %v", failures)
	}
	r, err := Open(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		switch rec.Kind {
		case KindSample:
			got = append(got, rec.Sample.At.String())
		case KindGap:
			if rec.Gap != (Gap{Samples: 4, Others: 2}) {
				t.Errorf("gap %+v", rec.Gap)
			}
			got = append(got, "gap")
		default:
		}
	}
	if diff := cmp.Diff([]string{"0s", "1ns", "gap", "30ns", "31ns", "40ns", "41ns"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if stats := r.Stats(); stats.Gaps != (Gap{Samples: 4, Others: 2}) || !stats.Ended || stats.Missing != (Gap{}) {
		t.Errorf("stats %+v", stats)
	}
}

func TestAFullDiskIsReported(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := NewWriter(full, testHeader(), Options{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

func TestAnExistingTraceIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace.zst")
	w, err := Create(path, testHeader(), Options{SyncEveryFlush: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(model.Sample{At: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, testHeader(), Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), ReaderOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
}

func TestSamplesAreFlushedByTheirOwnTimeAndBySize(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		ats     []time.Duration
		want    int
	}{
		{"ten seconds by default", Options{}, []time.Duration{0, 5e9, 9e9, 10e9, 11e9, 20e9, 21e9}, 2},
		{"every sample", Options{FlushEvery: -1}, []time.Duration{1, 2, 3}, 3},
		{"by size", Options{FlushEvery: time.Hour, FlushBytes: 1}, []time.Duration{1, 2, 3}, 3},
		{"time that goes backwards", Options{FlushEvery: time.Hour}, []time.Duration{5e9, 1e9, 2e9}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log frameLog
			w, err := NewWriter(&log, Header{}, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range tt.ats {
				if err := w.Write(model.Sample{At: at}); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(log.writes) - 1; got != tt.want {
				t.Errorf("%d flushes, want %d", got, tt.want)
			}
		})
	}
}

func TestWhatNoReaderTakesIsNotWritten(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteEntry(json.RawMessage(`{"a":`)); err == nil {
		t.Error("an entry that is not JSON was written")
	}
	long := json.RawMessage(`"` + strings.Repeat("x", maxLineBytes) + `"`)
	if err := w.WriteEntry(long); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long entry: %v", err)
	}
	if err := w.WriteEntry(json.RawMessage("{\n  \"a\": [1,\n2]\n}")); err != nil {
		t.Error(err)
	}
	if err := w.Write(model.Sample{At: 1}); err != nil {
		t.Error(err)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	r, err := NewReader(&out, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(rec.Kind)+string(rec.Entry))
	}
	if diff := cmp.Diff([]string{`journal{"a":[1,2]}`, "sample", "gap"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if gaps := r.Stats().Gaps; gaps != (Gap{Others: 1}) {
		t.Errorf("gaps %+v", gaps)
	}
}

// scripted yields a number of samples, then an error.
type scripted struct {
	left int
	err  error
	at   time.Duration
}

func (s *scripted) Next(context.Context) (model.Sample, error) {
	if s.left == 0 {
		return model.Sample{}, s.err
	}
	s.left--
	s.at += time.Second
	return model.Sample{At: s.at, Span: time.Second}, nil
}

func TestATeePassesEverySampleAndReportsFailedWrites(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&flaky{dst: &out, fail: map[int]bool{3: true, 4: true, 6: true}}, testHeader(), Options{FlushEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("ended")
	reports := 0
	var tee Source = NewTee(&scripted{left: 6, err: ended}, w, func(err error) {
		reports++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("report %v", err)
		}
	})
	var got []time.Duration
	for {
		s, err := tee.Next(context.Background())
		if errors.Is(err, ended) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s.At/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 3, 4, 5, 6}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	failed, last := tee.(*Tee).Failed()
	if failed != 3 || !errors.Is(last, syscall.ENOSPC) || reports != 2 {
		t.Errorf("%d failed, last %v, %d reports", failed, last, reports)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// A stream cannot be cut back as a file can: half frames stay in it.
	ats, stats, err := read(&out, ReaderOptions{Salvage: true})
	if err != nil || len(ats) != 3 || stats.Gaps.Samples != 3 || stats.Missing.Samples != 0 {
		t.Errorf("%d samples, %v, %+v", len(ats), err, stats)
	}
}
