package trace

import (
	"errors"
	"fmt"
)

// maxDamages bounds the work spent on salvaging: a file with more damaged
// places is not worth it.
const maxDamages = 10000

// damage makes err that of the current frame, and notes and forgives it when
// salvaging: the rest of the frame is skipped.
func (r *Reader) damage(err error) error {
	frameErr := &FrameError{File: r.path, Frame: r.frame, Offset: r.offset, Err: err}
	if !r.options.Salvage || errors.Is(err, ErrSchema) {
		return frameErr
	}
	return r.forgive(frameErr)
}

func (r *Reader) forgive(err error) error {
	if len(r.stats.Damaged) >= maxDamages {
		return fmt.Errorf("salvage given up after %d damaged places: %w", maxDamages, err)
	}
	r.stats.Damaged = append(r.stats.Damaged, err)
	r.resumed = true
	return nil
}

// missing notes what lies between what was read and what the recorder had
// written.
func (r *Reader) missing(written Gap) {
	if written.Samples > r.before.Samples {
		r.stats.Missing.Samples += written.Samples - r.before.Samples
	}
	if written.Others > r.before.Others {
		r.stats.Missing.Others += written.Others - r.before.Others
	}
	r.before = written
}
