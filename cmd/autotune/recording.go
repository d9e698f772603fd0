package main

import (
	"errors"
	"fmt"

	"autotune/probe/trace"
)

// verifiable refuses a trace in which the run is not as it was recorded.
func verifiable(path string, h trace.Header) error {
	switch {
	case h.Run == nil:
		return fmt.Errorf("%s is a mere recording: there is no run to verify; replay it with --policy", path)
	case h.Part != nil && h.Part.Number > 0:
		return fmt.Errorf("%s begins with part %d of its recording, and what the run knew by then is in those before: name all of them, from the first", path, h.Part.Number)
	case len(h.Edits) > 0:
		return fmt.Errorf("%s is not as it was recorded (%s): only the original can be verified; replay it with --policy", path, h.Edits[len(h.Edits)-1].Op)
	}
	return nil
}

func openTrace(path string) (*trace.Reader, error) {
	return trace.Open(path, trace.ReaderOptions{AllowTruncated: true})
}

func (c *replayCmd) open(rec recording) (*trace.Reader, error) {
	return trace.OpenParts(rec, trace.ReaderOptions{AllowTruncated: true, Salvage: c.Salvage})
}

// recording is one trace, in a file or in its parts.
type recording []string

func (r recording) String() string {
	if len(r) == 1 {
		return r[0]
	}
	return fmt.Sprintf("%s and %d more", r[0], len(r)-1)
}

// damaged reports whether an error says that a trace is not as it was written.
func damaged(err error) bool {
	var frame *trace.FrameError
	return errors.As(err, &frame) || errors.Is(err, trace.ErrMissing)
}

// recordingsOf tells which files are parts of one recording. Parts that are
// not beside each other in their order are refused: replayed one by one, they
// would all begin afresh.
func recordingsOf(files []string, salvage bool) ([]recording, error) {
	var out []recording
	var before *trace.Part
	seen := map[string]string{}
	for _, path := range files {
		reader, err := trace.Open(path, trace.ReaderOptions{AllowTruncated: true, Salvage: salvage})
		if err != nil {
			return nil, err
		}
		part := reader.Header().Part
		if err := reader.Close(); err != nil {
			return nil, err
		}
		switch {
		case part != nil && before != nil && part.Recording == before.Recording && part.Number == before.Number+1:
			out[len(out)-1] = append(out[len(out)-1], path)
		case part != nil && seen[part.Recording] != "":
			return nil, fmt.Errorf("%s is part %d of the recording of %s, which does not follow there: name the parts in their order, none left out", path, part.Number, seen[part.Recording])
		default:
			out = append(out, recording{path})
		}
		if part != nil {
			seen[part.Recording] = path
		}
		before = part
	}
	return out, nil
}
