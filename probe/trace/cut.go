package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Cut copies the samples of r with from < At <= to, and what belongs to them,
// to the writer that create makes of their header: windows that lie in two cuts
// do not exist, and between adjoining cuts nothing is lost. The header has the
// conditions as they were at from.
func Cut(ctx context.Context, r *Reader, create func(Header) (*Writer, error), from, to time.Duration, progress func(Stats)) (stats WriterStats, err error) {
	header := r.Header()
	header.Part = nil
	header.Edits = append(header.Edits[:len(header.Edits):len(header.Edits)], Edit{Op: EditCut, Detail: fmt.Sprintf("from %v to %v since boot", from, to)})
	var w *Writer
	defer func() {
		if w != nil {
			err = errors.Join(err, w.Close())
			stats = w.Stats()
		}
	}()
	// What precedes the first sample belongs to it.
	var first []Record
	inside, begun := false, false
	for {
		record, err := r.Record()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stats, err
		}
		if record.Kind == KindSample {
			at := record.Sample.At
			if at > to {
				break
			}
			inside = at > from
			if inside && w == nil {
				if w, err = create(header); err != nil {
					return stats, err
				}
				for _, before := range first {
					if err := w.WriteRecord(before); err != nil {
						return stats, err
					}
				}
			}
			if err := ctx.Err(); err != nil {
				return stats, err
			}
			begun, first = true, nil
			if progress != nil {
				progress(r.stats)
			}
		}
		switch {
		case inside:
			if err := w.WriteRecord(record); err != nil {
				return stats, err
			}
		case record.Kind == KindConditions:
			header.Conditions = *record.Conditions
		case !begun:
			first = append(first, record)
		}
	}
	if w == nil {
		return stats, ErrNoSample
	}
	return stats, nil
}
