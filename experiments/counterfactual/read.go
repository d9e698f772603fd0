package counterfactual

import (
	"context"
	"errors"
	"io"

	"autotune/probe/trace"
)

// Read gathers what is left of a trace, single events included.
func Read(ctx context.Context, reader *trace.Reader) (*Recording, error) {
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
			r.AddEvents(record.Events)
		default:
		}
	}
}
