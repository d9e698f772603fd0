package trace

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"autotune/model"
)

// Rotation says when a [Series] begins another file, and how much it keeps.
// Zero values do not limit.
type Rotation struct {
	// Size is how many bytes are written to a file before another begins; the
	// frame that exceeds it is still in the file.
	Size int64
	// Age is how much time of samples goes to a file.
	Age time.Duration
	// Keep is how many bytes all files may have together: so that the next
	// frame fits, the oldest files of the series are removed, never the one
	// that is being written.
	Keep int64
}

// Enabled reports whether anything is limited.
func (r Rotation) Enabled() bool { return r != Rotation{} }

// Series is a trace that is written in parts, files that are traces by
// themselves and, read in their order by [OpenParts], are the whole. A part
// begins with a sample, so what a run did upon a sample is in its part. It may
// be used by several goroutines.
//
// A part that cannot be begun leaves the series with the part before: the error
// is returned once, and it is tried again ten seconds of samples later.
type Series struct {
	path     string
	options  Options
	rotation Rotation

	mu     sync.Mutex
	disk   disk
	header Header
	writer *Writer
	parts  []partFile
	// since is the time of the first sample of the part, which is empty before
	// there is one; retry is when the next attempt to begin another part is due
	// after one that failed.
	since, retry time.Duration
	empty        bool
	done         WriterStats
	removed      int
	// largest is the most that one write of a sample has added to the file.
	largest int64
}

// partFile is a file of a series.
type partFile struct {
	path string
	size int64
}

// retryRotation is how long a failed rotation is left alone.
const retryRotation = 10 * time.Second

// CreateSeries begins the first part, see [PartPath]. No file may exist in the
// place of a part.
func CreateSeries(path string, header Header, options Options, rotation Rotation) (*Series, error) {
	header.Part = &Part{Recording: rand.Text()}
	first := PartPath(path, 0)
	w, err := Create(first, header, options)
	if err != nil {
		return nil, err
	}
	return &Series{
		path: path, options: options, rotation: rotation, header: header,
		writer: w, parts: []partFile{{path: first}}, empty: true,
	}, nil
}

// PartPath names a part: its number, in six digits so that names sort as the
// parts do, before the extension.
func PartPath(path string, number int) string {
	dir, name := filepath.Split(path)
	stem, extension := name, ""
	for _, e := range []string{".trace.zst", ".zst", filepath.Ext(name)} {
		if s, ok := strings.CutSuffix(name, e); ok && s != "" {
			stem, extension = s, e
			break
		}
	}
	return filepath.Join(dir, fmt.Sprintf("%s.%06d%s", stem, number, extension))
}

// Write adds a sample, beginning another part first where one is due.
func (s *Series) Write(sample model.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return ErrClosed
	}
	var rotateErr error
	if !s.empty && s.due(sample.At) {
		if rotateErr = s.rotate(); rotateErr == nil {
			s.empty = true
		} else {
			s.retry = sample.At + retryRotation
		}
	}
	if s.empty {
		s.since, s.empty = sample.At, false
	}
	err := s.writer.Write(sample)
	now := &s.parts[len(s.parts)-1].size
	before := *now
	*now = s.writer.Stats().Bytes
	s.largest = max(s.largest, *now-before)
	return errors.Join(rotateErr, err, s.prune())
}

func (s *Series) due(at time.Duration) bool {
	if s.retry != 0 && at < s.retry {
		return false
	}
	return s.rotation.Size > 0 && s.writer.Stats().Bytes >= s.rotation.Size ||
		s.rotation.Age > 0 && at-s.since >= s.rotation.Age ||
		// One file cannot shrink: a cap on all takes parts.
		s.rotation.Size == 0 && s.rotation.Keep > 0 && s.writer.Stats().Bytes >= s.rotation.Keep/8
}

// rotate begins the next part and closes this one.
func (s *Series) rotate() error {
	header := s.header
	stats := s.writer.Stats()
	header.Part = &Part{
		Recording: s.header.Part.Recording, Number: s.header.Part.Number + 1,
		Samples: s.done.Written.Samples + stats.Written.Samples + stats.Pending.Samples,
		Others:  s.done.Written.Others + stats.Written.Others + stats.Pending.Others,
	}
	path := PartPath(s.path, header.Part.Number)
	var next *Writer
	err := s.disk.do(s.options.GiveUpAfter, func() (err error) {
		next, err = Create(path, header, s.options)
		return err
	}, func() error {
		if next == nil {
			return nil
		}
		return errors.Join(next.Close(), os.Remove(path))
	})
	if err != nil {
		return fmt.Errorf("begin another part of the trace: %w", err)
	}
	closed := s.writer
	closeErr := closed.Close()
	s.done = sum(s.done, closed.Stats())
	s.parts[len(s.parts)-1].size = closed.Stats().Bytes
	s.parts = append(s.parts, partFile{path: path})
	s.header, s.writer, s.retry = header, next, 0
	return closeErr
}

// prune removes the oldest parts until all, and another frame as large as the
// largest, are within the cap.
func (s *Series) prune() error {
	if s.rotation.Keep <= 0 {
		return nil
	}
	total := s.largest
	for _, p := range s.parts {
		total += p.size
	}
	for len(s.parts) > 1 && total > s.rotation.Keep {
		oldest := s.parts[0]
		s.parts = s.parts[1:]
		total -= oldest.size
		s.removed++
		if err := s.disk.do(s.options.GiveUpAfter, func() error { return os.Remove(oldest.path) }, nil); err != nil {
			return fmt.Errorf("remove the oldest part of the trace: %w", err)
		}
	}
	return nil
}

func sum(a, b WriterStats) WriterStats {
	a.Bytes += b.Bytes
	a.Frames += b.Frames
	a.Written.add(b.Written)
	a.Lost.add(b.Lost)
	a.Pending = b.Pending
	return a
}

// WriteEntry adds a journal entry; see [Writer.WriteEntry].
func (s *Series) WriteEntry(entry json.RawMessage) error {
	return s.use(func(w *Writer) error { return w.WriteEntry(entry) })
}

// WriteOutcome adds what an actuator answered.
func (s *Series) WriteOutcome(o Outcome) error {
	return s.use(func(w *Writer) error { return w.WriteOutcome(o) })
}

// WriteConditions adds conditions; see [Writer.WriteConditions]. The headers of
// later parts have them too.
func (s *Series) WriteConditions(at time.Duration, c Conditions) error {
	return s.use(func(w *Writer) error {
		s.header.Conditions = c
		return w.WriteConditions(at, c)
	})
}

// Flush writes what was added since the last flush.
func (s *Series) Flush() error { return s.use((*Writer).Flush) }

// WriteEvents adds events; see [Writer.WriteEvents]. They are in the part of the
// sample that they follow.
func (s *Series) WriteEvents(e model.Events) error {
	return s.use(func(w *Writer) error { return w.WriteEvents(e) })
}

func (s *Series) use(do func(*Writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return ErrClosed
	}
	return do(s.writer)
}

// Close ends the last part. Closing twice is harmless.
func (s *Series) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return nil
	}
	err := s.writer.Close()
	s.done = sum(s.done, s.writer.Stats())
	s.parts[len(s.parts)-1].size = s.writer.Stats().Bytes
	s.writer = nil
	return errors.Join(err, s.prune())
}

// Stats returns what was written so far to all parts, those that were removed
// since included; it may be called after Close.
func (s *Series) Stats() WriterStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return s.done
	}
	return sum(s.done, s.writer.Stats())
}

// Parts returns the files that there are, the oldest first, and how many were
// removed.
func (s *Series) Parts() (paths []string, removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		paths = append(paths, p.path)
	}
	return paths, s.removed
}
