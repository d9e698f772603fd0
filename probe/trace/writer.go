package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"autotune/model"
)

// Options tune a [Writer].
type Options struct {
	// FlushEvery is how much time of samples is gathered before they are
	// written as one frame; zero is 10 s, negative flushes after every
	// sample. It is measured by the samples' own time. A crash loses at most
	// this much; shorter frames compress worse.
	FlushEvery time.Duration
	// FlushBytes is how much uncompressed text is gathered at most; zero is
	// 1 MiB.
	FlushBytes int
	// SyncEveryFlush makes every flush reach the disk (fsync) before the
	// write that caused it returns. Without it a file is synced by Close
	// only: a crash of the program loses nothing that was flushed, a crash of
	// the host may. It has no effect on writers that are not files.
	SyncEveryFlush bool
	// GiveUpAfter is how long one write to a file may take; zero is for ever.
	// A disk that hangs (a lost network file system) then costs frames, with
	// [ErrStuck], and not the writer's caller: whatever it does late is undone.
	GiveUpAfter time.Duration
}

const (
	defaultFlushEvery = 10 * time.Second
	defaultFlushBytes = 1 << 20
)

// Writer writes one trace. It may be used by several goroutines.
//
// A failed write loses the frame that was being written and nothing else: the
// error is returned once, the loss is noted in the trace as a gap as soon as
// something can be written again, and a file is cut back to its last complete
// frame. The caller decides whether to go on.
type Writer struct {
	options Options

	mu   sync.Mutex
	dst  io.Writer
	file file
	disk disk
	// size is the length of the complete frames in file.
	size    int64
	zstd    *zstd.Encoder
	encoder *encoder
	// lines is the text that is not written yet, frame the buffer for its
	// compressed form.
	lines, frame []byte
	// pending counts the records in lines, written those before it.
	pending, written Gap
	// lost counts the lost records that no written frame tells of, noted
	// those that the frame in lines tells of.
	lost, noted Gap
	// lostEver counts all records that were lost, bytes what was written.
	lostEver Gap
	bytes    int64
	number   uint64
	// since is the time of the first sample in lines, if any.
	since  time.Duration
	closed bool
}

// Create makes the file path, which must not exist, and writes the header to
// it. The file can be read by its owner only, as process names are nobody
// else's business.
func Create(path string, header Header, options Options) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create trace: %w", err)
	}
	w, err := newWriter(file, file, header, options)
	if err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return w, nil
}

// NewWriter writes the header to dst at once and returns a writer for the rest.
// Every frame is one call of dst.Write. Closing the writer does not close dst.
func NewWriter(dst io.Writer, header Header, options Options) (*Writer, error) {
	return newWriter(dst, nil, header, options)
}

func newWriter(dst io.Writer, file file, header Header, options Options) (*Writer, error) {
	if options.FlushEvery == 0 {
		options.FlushEvery = defaultFlushEvery
	}
	if options.FlushBytes <= 0 {
		options.FlushBytes = defaultFlushBytes
	}
	// A frame must stay below what a reader accepts, whatever the last line.
	options.FlushBytes = min(options.FlushBytes, maxFrameBytes-maxLineBytes-1<<10)
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderCRC(true),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithWindowSize(1<<20),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	w := &Writer{options: options, dst: dst, file: file, zstd: encoder, encoder: newEncoder()}
	line, err := marshalHeader(header)
	if err != nil {
		return nil, err
	}
	if len(line) >= maxLineBytes {
		return nil, fmt.Errorf("trace header of %d bytes: %w", len(line), ErrTooLarge)
	}
	w.lines = append(append(w.lines, line...), '\n')
	if err := w.flush(); err != nil {
		return nil, err
	}
	return w, nil
}

// Write adds a sample. It is on its way to the file when a later flush is.
func (w *Writer) Write(s model.Sample) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	first := w.pending.Samples == 0
	if !fits(&s) {
		w.lose(Gap{Samples: 1})
		return fmt.Errorf("write trace sample of more than %d queues or CPUs: %w", maxRows, ErrTooLarge)
	}
	if err := w.add(func(b []byte) []byte { return w.encoder.append(b, &s) }, Gap{Samples: 1}); err != nil {
		return err
	}
	if first {
		w.since = s.At
	}
	// A clock that went backwards is no reason to gather for ever.
	if age := s.At - w.since; w.options.FlushEvery < 0 || age >= w.options.FlushEvery || age < 0 {
		return w.flush()
	}
	return nil
}

// WriteEntry adds a journal entry: one JSON value, kept byte for byte unless it
// spans several lines, which are then joined.
func (w *Writer) WriteEntry(entry json.RawMessage) error {
	if !json.Valid(entry) {
		return errors.New("write journal entry to trace: not valid JSON")
	}
	if bytes.ContainsAny(entry, "\r\n") {
		var line bytes.Buffer
		if err := json.Compact(&line, entry); err != nil {
			return fmt.Errorf("write journal entry to trace: %w", err)
		}
		entry = line.Bytes()
	}
	return w.addLine(func(b []byte) []byte {
		b = append(b, journalStart...)
		b = append(b, entry...)
		return append(b, '}')
	})
}

// WriteOutcome adds what an actuator answered.
func (w *Writer) WriteOutcome(o Outcome) error {
	line, err := marshalOutcome(o)
	if err != nil {
		return err
	}
	return w.addLine(func(b []byte) []byte { return append(b, line...) })
}

// WriterStats tell what a writer has done so far.
type WriterStats struct {
	// Bytes is the length of the frames written, Frames their number.
	Bytes  int64
	Frames uint64
	// Written counts the records in them, Pending those that the next flush
	// writes, and Lost those that could not be written.
	Written, Pending, Lost Gap
}

// Stats returns what was written so far; it may be called after Close.
func (w *Writer) Stats() WriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WriterStats{Bytes: w.bytes, Frames: w.number, Written: w.written, Pending: w.pending, Lost: w.lostEver}
}

// WriteConditions adds the conditions of the host as they were seen at a time
// since boot, after they changed.
func (w *Writer) WriteConditions(at time.Duration, c Conditions) error {
	line, err := json.Marshal(conditionsLine{Kind: KindConditions, At: at, Conditions: c})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	return w.addLine(func(b []byte) []byte { return append(b, line...) })
}

// WriteGap notes records that the recording lacks from here on: what a trace
// that this one is made from could not write, or what lies between two of them.
func (w *Writer) WriteGap(g Gap) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	// A gap is told at the beginning of a frame.
	if err := w.flush(); err != nil {
		return err
	}
	w.lost.add(g)
	return nil
}

// WriteRecord adds a record as a reader yields it.
func (w *Writer) WriteRecord(r Record) error {
	switch r.Kind {
	case KindSample:
		return w.Write(r.Sample)
	case KindApply:
		return w.WriteOutcome(*r.Outcome)
	case KindJournal:
		return w.WriteEntry(r.Entry)
	case KindConditions:
		return w.WriteConditions(r.At, *r.Conditions)
	case KindEvents:
		return w.WriteEvents(*r.Events)
	case KindGap:
		return w.WriteGap(r.Gap)
	default:
		return fmt.Errorf("write trace record: kind %q is not one that readers yield", r.Kind)
	}
}

func (w *Writer) addLine(line func([]byte) []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	return w.add(line, Gap{Others: 1})
}

// add appends one line, opening the frame if need be and flushing when it is
// full. A line that no reader would accept is refused and counted as lost.
func (w *Writer) add(line func([]byte) []byte, count Gap) error {
	w.openFrame()
	before := len(w.lines)
	w.lines = append(line(w.lines), '\n')
	if n := len(w.lines) - before; n > maxLineBytes {
		w.lines = w.lines[:before]
		w.lose(count)
		return fmt.Errorf("write trace line of %d bytes, limit %d: %w", n, maxLineBytes, ErrTooLarge)
	}
	w.pending.add(count)
	if len(w.lines) >= w.options.FlushBytes {
		return w.flush()
	}
	return nil
}

// openFrame begins the frame's text with its frame line, and a gap where
// records were lost.
func (w *Writer) openFrame() {
	if len(w.lines) > 0 {
		return
	}
	w.lines = appendJSON(w.lines, frameLine{
		Kind: KindFrame, SchemaVersion: SchemaVersion, Frame: w.number,
		Samples: w.written.Samples, Others: w.written.Others,
	})
	w.noted = w.lost
	if w.noted != (Gap{}) {
		w.lines = appendJSON(w.lines, gapLine{Kind: KindGap, Gap: w.noted})
	}
}

// appendJSON appends one of this package's own lines, which always marshal.
func appendJSON(b []byte, line any) []byte {
	text, _ := json.Marshal(line)
	return append(append(b, text...), '\n')
}

// Flush writes what was added since the last flush as one frame.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	return w.flush()
}

func (w *Writer) flush() error {
	if len(w.lines) == 0 {
		return nil
	}
	if err := w.compress(); err != nil {
		return err
	}
	pending := w.pending
	w.lines, w.pending = w.lines[:0], Gap{}
	if err := w.writeFrame(); err != nil {
		w.lose(pending)
		return fmt.Errorf("write trace frame %d: %w", w.number, err)
	}
	w.lost.Samples -= w.noted.Samples
	w.lost.Others -= w.noted.Others
	w.noted = Gap{}
	w.written.add(pending)
	w.bytes += int64(len(w.frame))
	w.number++
	return nil
}

// compress makes the frame of the lines. A block of the frame ends where another
// kind of text begins: each block has codes of its own.
func (w *Writer) compress() error {
	out := sliceWriter{w.frame[:0]}
	w.zstd.Reset(&out)
	from := 0
	for _, cut := range w.encoder.cuts {
		// Lines that were refused are not there any more.
		if cut <= from || cut >= len(w.lines) {
			continue
		}
		if _, err := w.zstd.Write(w.lines[from:cut]); err != nil {
			return fmt.Errorf("compress trace frame: %w", err)
		}
		if err := w.zstd.Flush(); err != nil {
			return fmt.Errorf("compress trace frame: %w", err)
		}
		from = cut
	}
	if _, err := w.zstd.Write(w.lines[from:]); err != nil {
		return fmt.Errorf("compress trace frame: %w", err)
	}
	if err := w.zstd.Close(); err != nil {
		return fmt.Errorf("compress trace frame: %w", err)
	}
	w.frame, w.encoder.cuts = out.b, w.encoder.cuts[:0]
	return nil
}

// sliceWriter appends what is written.
type sliceWriter struct{ b []byte }

func (s *sliceWriter) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

func (w *Writer) lose(g Gap) {
	w.lost.add(g)
	w.lostEver.add(g)
}

func (w *Writer) writeFrame() error {
	if w.file == nil {
		return writeAll(w.dst, w.frame)
	}
	frame, size := w.frame, w.size
	if w.options.GiveUpAfter > 0 {
		// A write that was given up still reads it.
		frame = bytes.Clone(frame)
	}
	undo := func() error { return cutBack(w.file, size) }
	err := w.disk.do(w.options.GiveUpAfter, func() error {
		err := writeAll(w.dst, frame)
		if err == nil && w.options.SyncEveryFlush {
			err = w.file.Sync()
		}
		if err != nil {
			err = errors.Join(err, undo())
		}
		return err
	}, undo)
	if err == nil {
		w.size += int64(len(frame))
	}
	return err
}

func writeAll(dst io.Writer, frame []byte) error {
	n, err := dst.Write(frame)
	if err == nil && n < len(frame) {
		err = io.ErrShortWrite
	}
	return err
}

// cutBack removes what a failed write left behind the last complete frame.
func cutBack(f file, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("remove incomplete frame: %w", err)
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return fmt.Errorf("remove incomplete frame: %w", err)
	}
	return nil
}

// Close flushes, writes the end record, and, for a file, syncs and closes it.
// Closing twice is harmless.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.openFrame()
	w.lines = appendJSON(w.lines, endLine{
		Kind:    KindEnd,
		Samples: w.written.Samples + w.pending.Samples,
		Others:  w.written.Others + w.pending.Others,
	})
	err := errors.Join(w.flush(), w.zstd.Close())
	if w.file == nil {
		return err
	}
	return errors.Join(err, w.disk.do(w.options.GiveUpAfter, func() error {
		var errs []error
		if err := w.file.Sync(); err != nil {
			errs = append(errs, fmt.Errorf("sync trace: %w", err))
		}
		if err := w.file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close trace: %w", err))
		}
		return errors.Join(errs...)
	}, nil))
}

func (g *Gap) add(o Gap) {
	g.Samples += o.Samples
	g.Others += o.Others
}

// syncDirectory makes a new file's name durable.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open trace directory: %w", err)
	}
	if err := dir.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync trace directory: %w", err), dir.Close())
	}
	return dir.Close()
}
