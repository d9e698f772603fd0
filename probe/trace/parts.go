package trace

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// OpenParts opens the parts of one recording, in their order, as one trace: its
// header is that of the first, its records are those of all, and its statistics
// are sums. A part that does not follow from the one before it is [ErrMissing];
// only the last may be cut off.
func OpenParts(paths []string, options ReaderOptions) (*Reader, error) {
	r, err := Open(paths[0], options)
	if err != nil || len(paths) == 1 {
		return r, err
	}
	r.path, r.more, r.part = paths[0], paths[1:], r.header.Part
	return r, nil
}

// nextPart goes on with the next file where end is the end of this one, and
// returns end, or why there is no going on, otherwise.
func (r *Reader) nextPart(end error) error {
	if !errors.Is(end, io.EOF) || len(r.more) == 0 {
		return end
	}
	// Only the last part may lack its end: the others were closed by the
	// recorder.
	if !r.stats.Ended {
		err := fmt.Errorf("%w: %s is cut off, and other parts follow", ErrMissing, r.path)
		if !r.options.Salvage {
			return err
		}
		r.stats.Damaged = append(r.stats.Damaged, err)
	}
	previous, path := r.path, r.more[0]
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open trace: %w", err)
	}
	if err := r.switchTo(path, file); err != nil {
		return err
	}
	whole := r.header
	if err := r.start(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	part := r.header.Part
	r.header = whole
	if !part.follows(r.part) {
		err := fmt.Errorf("%s: %w: it is not the part after %s", path, ErrMissing, previous)
		if !r.options.Salvage {
			return err
		}
		r.stats.Damaged = append(r.stats.Damaged, err)
	}
	r.part = part
	return nil
}

// switchTo makes a file the one that is read.
func (r *Reader) switchTo(path string, file *os.File) error {
	var err error
	if r.file != nil {
		err = r.file.Close()
	}
	r.path, r.more = path, r.more[1:]
	r.file, r.frames = file, frames{src: file, limit: maxFrameBytes}
	r.rest = nil
	r.frame, r.offset, r.ordinal, r.sequence = 0, 0, 0, 0
	r.before, r.resumed = Gap{}, false
	r.stats.Ended = false
	if err != nil {
		return fmt.Errorf("close trace: %w", err)
	}
	return nil
}
