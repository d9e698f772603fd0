package trace

import (
	"errors"
	"fmt"
	"io"
)

// What can be wrong with a trace. [FrameError] and [TruncatedError] wrap them
// and say where.
var (
	// ErrTruncated: the trace ends inside a frame. Every frame before it was
	// delivered.
	ErrTruncated = errors.New("trace is cut off")
	// ErrChecksum: a frame's content is not what was written.
	ErrChecksum = errors.New("checksum mismatch")
	// ErrCorrupt: bytes that are no zstd frame, or a frame that does not hold
	// what this package writes.
	ErrCorrupt = errors.New("trace is damaged")
	// ErrMissing: whole frames are missing.
	ErrMissing = errors.New("frames are missing")
	// ErrTooLarge: a frame or a line exceeds the limits.
	ErrTooLarge = errors.New("larger than the limit")
	// ErrSchema: the trace has a schema version or a histogram rule that this
	// build does not read.
	ErrSchema = errors.New("unsupported trace schema")
	// ErrNotTrace: the file does not begin with a trace header.
	ErrNotTrace = errors.New("not an autotune trace")
	// ErrNoSample: there is no sample, or none in the time asked for.
	ErrNoSample = errors.New("no sample")
	// ErrConditions: recordings under different conditions do not compare.
	ErrConditions = errors.New("recorded under different conditions")
	// ErrStuck: the disk has not answered for as long as the writer may wait.
	ErrStuck = errors.New("the disk does not answer")
	// ErrClosed: the writer or reader was closed.
	ErrClosed = errors.New("trace is closed")
)

// FrameError is damage in one frame. Err is, or wraps, [ErrChecksum],
// [ErrCorrupt], [ErrMissing] or [ErrTooLarge].
type FrameError struct {
	// File is the file's name where several are read as one; empty otherwise.
	File string
	// Frame counts the zstd frames of the file from 0, the header's. After a
	// skipped frame it counts what was found, not what was written.
	Frame int
	// Offset is the position of the frame's first byte in the file.
	Offset int64
	Err    error
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("%strace frame %d at byte %d: %v", filePrefix(e.File), e.Frame, e.Offset, e.Err)
}

func (e *FrameError) Unwrap() error { return e.Err }

// TruncatedError tells where a trace is cut off. It wraps [ErrTruncated] and
// [io.ErrUnexpectedEOF].
type TruncatedError struct {
	// File is as in [FrameError].
	File string
	// Frame and Offset are those of the incomplete frame; Bytes is what there
	// is of it.
	Frame  int
	Offset int64
	Bytes  int64
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%strace is cut off in frame %d: %d bytes from byte %d on are an incomplete frame", filePrefix(e.File), e.Frame, e.Bytes, e.Offset)
}

func (e *TruncatedError) Unwrap() []error { return []error{ErrTruncated, io.ErrUnexpectedEOF} }

func filePrefix(file string) string {
	if file == "" {
		return ""
	}
	return file + ": "
}
