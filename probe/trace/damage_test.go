package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// frameLog keeps what a writer wrote, call by call.
type frameLog struct{ writes [][]byte }

func (l *frameLog) Write(p []byte) (int, error) {
	l.writes = append(l.writes, bytes.Clone(p))
	return len(p), nil
}

// recording is a trace with what is known of each of its frames.
type recording struct {
	data []byte
	// starts and ends are the frames' bounds in data.
	starts, ends []int
	// samples are the samples of each frame, by time.
	samples [][]time.Duration
}

func newRecording(t *testing.T, frames, perFrame int) recording {
	t.Helper()
	var log frameLog
	w, err := NewWriter(&log, testHeader(), Options{FlushEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := newRealistic(7, 1)
	source.packets = 100
	rec := recording{samples: [][]time.Duration{nil}}
	for range frames {
		var ats []time.Duration
		for range perFrame {
			s := source.next()
			ats = append(ats, s.At)
			if err := w.Write(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		rec.samples = append(rec.samples, ats)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rec.samples = append(rec.samples, nil)
	for _, frame := range log.writes {
		rec.starts = append(rec.starts, len(rec.data))
		rec.data = append(rec.data, frame...)
		rec.ends = append(rec.ends, len(rec.data))
	}
	if len(log.writes) != frames+2 {
		t.Fatalf("%d writes for %d flushes, a header and an end", len(log.writes), frames)
	}
	return rec
}

// before lists the samples of the frames up to n, without n.
func (r recording) before(n int) []time.Duration { return slices.Concat(r.samples[:n]...) }

// read returns the times of all samples, the reader's statistics and the error
// that ended it, which is nil at the proper end.
func read(src io.Reader, options ReaderOptions) (ats []time.Duration, stats Stats, err error) {
	r, err := NewReader(src, options)
	if err != nil {
		return nil, Stats{}, err
	}
	defer r.Close()
	for {
		s, err := r.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return ats, r.Stats(), nil
		}
		if err != nil {
			return ats, r.Stats(), err
		}
		ats = append(ats, s.At)
	}
}

func TestEveryFlushIsOneWriteOfOneFrame(t *testing.T) {
	var log frameLog
	w, err := NewWriter(&log, testHeader(), Options{FlushEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	source := newRealistic(1, 1)
	for range 5 {
		if err := w.Write(source.next()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(log.writes) != 7 {
		t.Fatalf("%d writes, want a header, 5 samples and an end", len(log.writes))
	}
	for i, frame := range log.writes {
		f := frames{src: bytes.NewReader(frame), limit: maxFrameBytes}
		got, err := f.next()
		if err != nil || len(got) != len(frame) {
			t.Errorf("write %d of %d bytes is not one frame: %d, %v", i, len(frame), len(got), err)
		}
		var h zstd.Header
		if err := h.Decode(frame); err != nil || !h.HasCheckSum {
			t.Errorf("write %d: checksum %v, %v", i, h.HasCheckSum, err)
		}
	}
}

func TestATraceCutAnywhereYieldsEveryCompleteFrame(t *testing.T) {
	rec := newRecording(t, 12, 2)
	draw := rand.New(rand.NewPCG(11, 12))
	cuts := make([]int, 1000)
	for i := range cuts {
		cuts[i] = draw.IntN(len(rec.data) + 1)
	}
	// Every bound of a frame, and the bytes beside it, are worth a cut.
	for _, end := range rec.ends {
		cuts = append(cuts, end-1, end, min(end+1, len(rec.data)), min(end+4, len(rec.data)))
	}
	for _, cut := range cuts {
		// Frames that end at or before the cut are complete.
		complete := 0
		for complete < len(rec.ends) && rec.ends[complete] <= cut {
			complete++
		}
		clean := cut == 0 || complete > 0 && rec.ends[complete-1] == cut
		ats, stats, err := read(iotest.HalfReader(bytes.NewReader(rec.data[:cut])), ReaderOptions{})
		switch {
		case cut == 0:
			if !errors.Is(err, ErrNotTrace) {
				t.Fatalf("empty: %v", err)
			}
			continue
		case clean && err != nil:
			t.Fatalf("cut at %d between frames: %v", cut, err)
		case !clean:
			var cutErr *TruncatedError
			if !errors.As(err, &cutErr) || !errors.Is(err, ErrTruncated) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			want := TruncatedError{Frame: complete, Offset: int64(rec.starts[complete]), Bytes: int64(cut - rec.starts[complete])}
			if *cutErr != want {
				t.Fatalf("cut at %d: %+v, want %+v", cut, *cutErr, want)
			}
		}
		if diff := cmp.Diff(rec.before(complete), ats); diff != "" && len(ats)+len(rec.before(complete)) > 0 {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
		if stats.Ended != (cut == len(rec.data)) {
			t.Fatalf("cut at %d: ended %v", cut, stats.Ended)
		}
		if complete == 0 || cut%8 != 0 && !clean {
			continue
		}
		for _, options := range []ReaderOptions{{AllowTruncated: true}, {Salvage: true}} {
			again, stats, err := read(bytes.NewReader(rec.data[:cut]), options)
			if err != nil || (stats.Truncated != nil) == clean || len(again) != len(ats) {
				t.Fatalf("cut at %d with %+v: %d samples, truncated %v, %v", cut, options, len(again), stats.Truncated, err)
			}
		}
	}
}

func TestATailOfZerosIsATruncatedTrace(t *testing.T) {
	rec := newRecording(t, 3, 2)
	end := rec.ends[2]
	data := append(bytes.Clone(rec.data[:end]), make([]byte, 200000)...)
	ats, _, err := read(bytes.NewReader(data), ReaderOptions{})
	var cut *TruncatedError
	if !errors.As(err, &cut) || cut.Offset != int64(end) || cut.Bytes != 200000 || len(ats) != 4 {
		t.Errorf("%d samples, %v", len(ats), err)
	}
	// Zeros before something else are a hole.
	data = append(data, rec.data[end:]...)
	ats, _, err = read(bytes.NewReader(data), ReaderOptions{})
	var damage *FrameError
	if !errors.As(err, &damage) || damage.Offset != int64(end) || damage.Frame != 3 || len(ats) != 4 {
		t.Errorf("%d samples, %v", len(ats), err)
	}
	ats, stats, err := read(bytes.NewReader(data), ReaderOptions{Salvage: true})
	if err != nil || len(ats) != 6 || !stats.Ended || stats.Missing != (Gap{}) {
		t.Errorf("%d samples, %v, %+v", len(ats), err, stats)
	}
}

func TestAFlippedBitIsFoundInItsFrameAndTheRestSalvaged(t *testing.T) {
	rec := newRecording(t, 12, 2)
	all := rec.before(len(rec.samples))
	draw := rand.New(rand.NewPCG(21, 22))
	harmless, checksums := 0, 0
	type flip struct{ at, bit int }
	var flips []flip
	for range 500 {
		flips = append(flips, flip{draw.IntN(len(rec.data)), draw.IntN(8)})
	}
	// Every bit of a frame's header and of its first block's.
	for i := range 16 * 8 {
		flips = append(flips, flip{rec.starts[3] + i/8, i % 8})
	}
	for _, f := range flips {
		at, bit := f.at, f.bit
		data := bytes.Clone(rec.data)
		data[at] ^= 1 << bit
		hit := 0
		for rec.ends[hit] <= at {
			hit++
		}
		name := fmt.Sprintf("bit %d of byte %d, %d of frame %d", bit, at, at-rec.starts[hit], hit)

		ats, _, err := read(bytes.NewReader(data), ReaderOptions{})
		if err == nil {
			// Bits of the frame header that say nothing about the content.
			harmless++
			if diff := cmp.Diff(all, ats); diff != "" {
				t.Fatalf("%s: unnoticed (-want +got):\n%s", name, diff)
			}
			continue
		}
		var damage *FrameError
		switch {
		case errors.Is(err, ErrNotTrace) && hit == 0:
		case errors.Is(err, ErrTruncated) && hit >= len(rec.ends)-2:
		case !errors.As(err, &damage) || damage.Frame != hit || damage.Offset != int64(rec.starts[hit]):
			t.Fatalf("%s: %v", name, err)
		}
		if errors.Is(err, ErrChecksum) {
			checksums++
		}
		if diff := cmp.Diff(rec.before(hit), ats); diff != "" && hit > 1 {
			t.Fatalf("%s: before the damage (-want +got):\n%s", name, diff)
		}

		ats, stats, err := read(bytes.NewReader(data), ReaderOptions{Salvage: true})
		if err != nil {
			t.Fatalf("%s: salvage: %v", name, err)
		}
		want := slices.Concat(slices.Concat(rec.samples[:hit]...), slices.Concat(rec.samples[hit+1:]...))
		if diff := cmp.Diff(want, ats); diff != "" {
			t.Fatalf("%s: salvage (-want +got):\n%s", name, diff)
		}
		if lost := uint64(len(rec.samples[hit])); stats.Missing.Samples != lost || stats.Missing.Others != 0 {
			t.Fatalf("%s: missing %+v, want %d samples", name, stats.Missing, lost)
		}
		if stats.HeaderLost != (hit == 0) || len(stats.Damaged) == 0 && stats.Truncated == nil {
			t.Fatalf("%s: stats %+v", name, stats)
		}
	}
	t.Logf("%d harmless, %d found by checksum", harmless, checksums)
	if harmless > 50 || checksums < 100 {
		t.Errorf("%d flips unnoticed, %d found by checksum", harmless, checksums)
	}
}

func TestAMissingFrameIsMissed(t *testing.T) {
	rec := newRecording(t, 6, 2)
	data := append(bytes.Clone(rec.data[:rec.ends[2]]), rec.data[rec.starts[5]:]...)
	ats, _, err := read(bytes.NewReader(data), ReaderOptions{})
	if !errors.Is(err, ErrMissing) || len(ats) != 4 {
		t.Errorf("%d samples, %v", len(ats), err)
	}
	ats, stats, err := read(bytes.NewReader(data), ReaderOptions{Salvage: true})
	if err != nil || len(ats) != 8 || stats.Missing.Samples != 4 || len(stats.Damaged) != 1 {
		t.Errorf("%d samples, %v, %+v", len(ats), err, stats)
	}
}

func TestARecompressedTraceReads(t *testing.T) {
	rec := newRecording(t, 6, 2)
	d, err := zstd.NewReader(bytes.NewReader(rec.data))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	text, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// A skippable frame, as some compressors write them.
	out.Write([]byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'})
	e, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	ats, stats, err := read(&out, ReaderOptions{})
	if err != nil || len(ats) != 12 || stats.Frames != 1 || !stats.Ended {
		t.Errorf("%d samples, %v, %+v", len(ats), err, stats)
	}
}

func TestAReadErrorIsNotTheEnd(t *testing.T) {
	rec := newRecording(t, 6, 2)
	broken := errors.New("input/output error")
	for _, options := range []ReaderOptions{{}, {Salvage: true, AllowTruncated: true}} {
		src := io.MultiReader(bytes.NewReader(rec.data[:rec.ends[2]+10]), iotest.ErrReader(broken))
		ats, _, err := read(src, options)
		if !errors.Is(err, broken) || len(ats) != 4 {
			t.Errorf("%+v: %d samples, %v", options, len(ats), err)
		}
	}
	if _, _, err := read(idle{}, ReaderOptions{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that brings nothing: %v", err)
	}
}

// idle returns nothing, for ever.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
