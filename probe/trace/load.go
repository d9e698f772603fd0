package trace

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// load reads the next sound frame into rest.
func (r *Reader) load() error {
	for {
		err := r.loadFrame()
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		var damage *FrameError
		if errors.As(err, &damage) {
			if !r.options.Salvage {
				return err
			}
			if err := r.forgive(damage); err != nil {
				return err
			}
			r.ordinal++
			if !r.frames.resync(damage.Offset) {
				return r.ended()
			}
			continue
		}
		var cut *TruncatedError
		if errors.As(err, &cut) {
			r.stats.Truncated = cut
			if r.options.Salvage || r.options.AllowTruncated {
				return io.EOF
			}
		}
		return err
	}
}

// ended is the end of the input: its end as a trace, or a read error.
func (r *Reader) ended() error {
	if errors.Is(r.frames.err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("read trace: %w", r.frames.err)
}

func (r *Reader) loadFrame() error {
	frame, err := r.frames.next()
	number, offset := r.ordinal, r.frames.offset
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, errCut):
		if r.frames.frameAfter() {
			return &FrameError{File: r.path, Frame: number, Offset: offset, Err: fmt.Errorf("%w: its length cannot be right", ErrCorrupt)}
		}
		return &TruncatedError{File: r.path, Frame: number, Offset: offset, Bytes: int64(r.frames.end - r.frames.start)}
	case errors.Is(err, ErrCorrupt) && r.frames.atZero():
		n, all := r.frames.zeros()
		if all {
			return &TruncatedError{File: r.path, Frame: number, Offset: offset, Bytes: n}
		}
		return &FrameError{File: r.path, Frame: number, Offset: offset, Err: err}
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrTooLarge):
		return &FrameError{File: r.path, Frame: number, Offset: offset, Err: err}
	case err != nil:
		return fmt.Errorf("read trace: %w", err)
	}
	r.content, err = r.zstd.DecodeAll(frame, r.content[:0])
	if err != nil {
		return &FrameError{File: r.path, Frame: number, Offset: offset, Err: decompressError(err)}
	}
	r.frames.advance(len(frame))
	r.frame, r.offset = number, offset
	r.ordinal++
	r.rest = r.content
	r.stats.Frames++
	r.stats.Bytes += int64(len(r.content))
	return nil
}

func decompressError(err error) error {
	switch {
	case errors.Is(err, zstd.ErrCRCMismatch):
		return ErrChecksum
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrFrameSizeExceeded):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
