package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
)

var sampleStart = []byte(`{"kind":"sample",`)

// decode decodes one line, and reports whether it is to be delivered.
func (r *Reader) decode(line []byte) (Record, bool, error) {
	if len(line) > maxLineBytes {
		return Record{}, false, fmt.Errorf("line of %d bytes: %w", len(line), ErrTooLarge)
	}
	kind := KindSample
	if !bytes.HasPrefix(line, sampleStart) {
		var err error
		if kind, err = lineKind(line); err != nil {
			return Record{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	record := Record{Kind: kind}
	switch kind {
	case KindSample:
		var err error
		if record.Sample, err = r.decoder.sample(line); err != nil {
			return Record{}, false, err
		}
		r.stats.Samples++
		r.before.Samples++
		return record, true, nil
	case KindJournal:
		entry, err := journalEntry(line)
		if err != nil {
			return Record{}, false, err
		}
		record.Entry = entry
		r.other()
		return record, true, nil
	case KindApply:
		var in applyLine
		if err := unmarshal(line, &in); err != nil {
			return Record{}, false, err
		}
		record.Outcome = &in.Outcome
		r.other()
		return record, true, nil
	case KindConditions:
		var in conditionsLine
		if err := unmarshal(line, &in); err != nil {
			return Record{}, false, err
		}
		record.At, record.Conditions = in.At, &in.Conditions
		r.other()
		return record, true, nil
	case KindEvents:
		events, err := r.decoder.events(line)
		if err != nil {
			return Record{}, false, err
		}
		record.Events = &events
		r.other()
		return record, true, nil
	case KindGap:
		var in gapLine
		if err := unmarshal(line, &in); err != nil {
			return Record{}, false, err
		}
		record.Gap = in.Gap
		r.stats.Gaps.add(in.Gap)
		return record, true, nil
	case KindFrame:
		return record, false, r.frameStart(line)
	case KindEnd:
		return record, false, r.end(line)
	case KindHeader:
		return record, false, fmt.Errorf("%w: a second header (traces that were joined must be read one by one)", ErrCorrupt)
	}
	r.unknown(kind)
	return record, false, nil
}

func (r *Reader) other() {
	r.stats.Others++
	r.before.Others++
}

func unmarshal(line []byte, into any) error {
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

const maxUnknownKinds = 64

func (r *Reader) unknown(kind Kind) {
	if r.stats.Unknown == nil {
		r.stats.Unknown = make(map[Kind]uint64)
	}
	if _, known := r.stats.Unknown[kind]; !known && len(r.stats.Unknown) >= maxUnknownKinds {
		kind = ""
	}
	r.stats.Unknown[kind]++
	// A later version counts its own kinds among the others.
	r.before.Others++
}

// frameStart checks that no frame is missing before this one.
func (r *Reader) frameStart(line []byte) error {
	var in frameLine
	if err := unmarshal(line, &in); err != nil {
		return err
	}
	if err := checkSchema(in.SchemaVersion); err != nil {
		return err
	}
	if r.resumed {
		r.missing(Gap{Samples: in.Samples, Others: in.Others})
		r.resumed = false
	} else if in.Frame != r.sequence {
		err := fmt.Errorf("%w: this is frame %d of the recording, expected %d", ErrMissing, in.Frame, r.sequence)
		if !r.options.Salvage {
			return err
		}
		if err := r.forgive(&FrameError{File: r.path, Frame: r.frame, Offset: r.offset, Err: err}); err != nil {
			return err
		}
		r.missing(Gap{Samples: in.Samples, Others: in.Others})
		r.resumed = false
	}
	r.sequence = in.Frame + 1
	return nil
}

func (r *Reader) end(line []byte) error {
	var in endLine
	if err := unmarshal(line, &in); err != nil {
		return err
	}
	r.stats.Ended = true
	if r.resumed {
		r.missing(Gap{Samples: in.Samples, Others: in.Others})
		r.resumed = false
	}
	return nil
}
