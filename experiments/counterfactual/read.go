package counterfactual

import (
	"context"
	"errors"
	"io"

	"autotune/probe/trace"
)

// Read gathers what is left of a trace, with its single events or without.
func Read(ctx context.Context, reader *trace.Reader, events bool) (*Recording, error) {
	var r Recording
	for {
		record, err := reader.Record()
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case errors.Is(err, io.EOF):
			return &r, nil
		case err != nil:
			return nil, err
		}
		switch record.Kind {
		case trace.KindSample:
			r.Add(&record.Sample)
		case trace.KindEvents:
			if events {
				r.AddEvents(record.Events)
			}
		default:
		}
	}
}
