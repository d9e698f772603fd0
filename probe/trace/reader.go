package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"

	"autotune/model"
)

// The limits of what is read: they bound the memory that a hostile trace can
// ask for. [Writer] stays far below them.
const (
	maxFrameBytes = 32 << 20
	maxLineBytes  = 4 << 20
)

// ReaderOptions tune a [Reader].
type ReaderOptions struct {
	// Salvage makes the reader go on after damage: damaged frames are skipped
	// and kept in [Stats], and a cut-off tail ends the trace like its proper
	// end. A damaged header leaves [Reader.Header] empty.
	Salvage bool
	// AllowTruncated makes a cut-off tail end the trace like its proper end,
	// io.EOF; [Stats] has it. Without it the end is a [*TruncatedError].
	AllowTruncated bool
	// OnRecord, if set, is handed every record that [Reader.Next] passes over
	// on its way to the next sample. An error of it ends the reading.
	OnRecord func(Record) error
}

// Reader reads one trace, frame by frame, in memory that does not depend on the
// trace's length. A frame is delivered only if all of it is sound. It is not
// safe for concurrent use.
type Reader struct {
	options ReaderOptions
	frames  frames
	file    io.Closer
	zstd    *zstd.Decoder
	decoder decoder
	header  Header
	schema  int
	stats   Stats

	// content is the decompressed frame, rest its part not yet delivered.
	content, rest []byte
	// frame and offset are those of the frame that rest is from, ordinal the
	// number of the next one.
	frame   int
	offset  int64
	ordinal int
	// sequence is the number that the next frame line must have, before what
	// was recorded up to here by its count.
	sequence uint64
	before   Gap
	// resumed is set after skipped damage, until a frame line tells what was
	// skipped.
	resumed bool
	err     error
	// path is the file being read where there are several, more those after
	// it.
	path string
	more []string
	// part is the number of the file being read.
	part *Part
}

// Open opens the trace file path and reads its header. The reader must be
// closed.
func Open(path string, options ReaderOptions) (*Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	r, err := NewReader(file, options)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	r.file = file
	return r, nil
}

// NewReader reads the header of a trace from src. It fails with an error that
// wraps [ErrNotTrace] or [ErrSchema] where the rest could not be understood.
// Closing the reader does not close src.
func NewReader(src io.Reader, options ReaderOptions) (*Reader, error) {
	decoder, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxFrameBytes),
		zstd.WithDecoderMaxMemory(maxFrameBytes))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	r := &Reader{
		options: options,
		frames:  frames{src: src, limit: maxFrameBytes},
		zstd:    decoder,
	}
	if err := r.start(); err != nil {
		decoder.Close()
		return nil, err
	}
	return r, nil
}

// start reads the header, or finds the first sound frame when salvaging.
func (r *Reader) start() error {
	if !r.frames.need(1) && errors.Is(r.frames.err, io.EOF) {
		return fmt.Errorf("%w: it is empty", ErrNotTrace)
	}
	if !r.options.Salvage && r.frames.need(4) && !looksLikeFrame(r.frames.buf[r.frames.start:]) {
		return fmt.Errorf("%w: it is not zstd-compressed", ErrNotTrace)
	}
	if err := r.load(); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: no frame can be read", ErrNotTrace)
		}
		return err
	}
	line, _, _ := bytes.Cut(r.rest, []byte("\n"))
	if len(line) > maxLineBytes {
		return fmt.Errorf("trace header: %w", ErrTooLarge)
	}
	header, schema, err := parseHeader(line)
	switch {
	case err == nil:
		r.header, r.schema = header, schema
		r.rest = r.rest[min(len(line)+1, len(r.rest)):]
		r.sequence = 1
		r.resumed = false
		return nil
	case r.resumed && errors.Is(err, ErrNotTrace):
		if kind, kindErr := lineKind(line); kindErr != nil || kind != KindFrame {
			return err
		}
		r.stats.HeaderLost = true
		return nil
	}
	return err
}

func looksLikeFrame(b []byte) bool {
	magic := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	return magic == frameMagic || magic&skippableMask == skippableMagic
}

// Header returns the trace's first line.
func (r *Reader) Header() Header { return r.header }

// SchemaVersion returns the version of the format that the trace is in; 0 where
// a salvage had to go without the header.
func (r *Reader) SchemaVersion() int { return r.schema }

// Stats returns what was met so far.
func (r *Reader) Stats() Stats {
	stats := r.stats
	stats.Unknown = maps.Clone(stats.Unknown)
	stats.Damaged = slices.Clone(stats.Damaged)
	return stats
}

// Close frees the decoder and closes a file that [Open] opened.
func (r *Reader) Close() error {
	r.err = ErrClosed
	r.zstd.Close()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Next returns the next sample, passing over other records, and io.EOF at the
// end. A cut-off tail is a [*TruncatedError], damage a [*FrameError], each after
// all samples before it; the options say which of them end the trace. Errors
// are final.
func (r *Reader) Next(ctx context.Context) (model.Sample, error) {
	for {
		if err := ctx.Err(); err != nil {
			return model.Sample{}, err
		}
		record, err := r.Record()
		if err != nil {
			return model.Sample{}, err
		}
		if record.Kind == KindSample {
			return record.Sample, nil
		}
		if r.options.OnRecord != nil {
			if err := r.options.OnRecord(record); err != nil {
				r.err = err
				return model.Sample{}, err
			}
		}
	}
}

// Records iterates over all records that are left. The error that ends the
// iteration is yielded last; the proper end is not an error.
func (r *Reader) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			record, err := r.Record()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// Record returns the next record of a kind that carries something: a sample,
// the outcome of an apply, a journal entry, conditions, events or a gap. Its errors
// are those of [Reader.Next].
func (r *Reader) Record() (Record, error) {
	for r.err == nil {
		if len(r.rest) == 0 {
			if r.err = r.load(); r.err != nil {
				r.err = r.nextPart(r.err)
			}
			continue
		}
		line, rest, _ := bytes.Cut(r.rest, []byte("\n"))
		r.rest = rest
		if len(line) == 0 {
			continue
		}
		record, deliver, err := r.decode(line)
		if err != nil {
			r.rest = nil
			r.err = r.damage(err)
			continue
		}
		if deliver {
			return record, nil
		}
	}
	return Record{}, r.err
}
