package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The frame format is RFC 8878, sections 3.1.1 and 3.1.2.
const (
	frameMagic        = 0xFD2FB528
	skippableMagic    = 0x184D2A50
	skippableMask     = 0xFFFFFFF0
	maxBlock          = 128 << 10
	blockHeaderLength = 3
	checksumLength    = 4
)

// maxBlocks bounds the walk through a frame of empty blocks.
const maxBlocks = 1 << 16

// maxIdleReads is how often a reader may return nothing before it is given up.
const maxIdleReads = 100

// errCut: the input ends inside a frame.
var errCut = errors.New("input ends inside a frame")

// frames splits a byte stream into zstd frames by their block headers, without
// decompressing, so that every frame has a position and can be skipped. It
// buffers one frame.
type frames struct {
	src   io.Reader
	limit int

	buf        []byte
	start, end int
	// offset is the position of buf[start] in the stream.
	offset int64
	// err is what ended src, io.EOF included; idle counts the reads in a row
	// that brought nothing.
	err  error
	idle int
}

// need makes n bytes available from start on, and reports whether there are.
// The buffer grows with what arrives, never with what is announced.
func (f *frames) need(n int) bool {
	for f.end-f.start < n && f.err == nil {
		if f.end == len(f.buf) {
			if f.start >= len(f.buf)/2 && f.start > 0 {
				f.end = copy(f.buf, f.buf[f.start:f.end])
				f.start = 0
			} else {
				grown := make([]byte, max(64<<10, 2*len(f.buf)))
				f.end = copy(grown, f.buf[f.start:f.end])
				f.start = 0
				f.buf = grown
			}
		}
		got, err := f.src.Read(f.buf[f.end:])
		f.end += got
		switch {
		case err != nil:
			f.err = err
		case got > 0:
			f.idle = 0
		default:
			if f.idle++; f.idle >= maxIdleReads {
				f.err = io.ErrNoProgress
			}
		}
	}
	return f.end-f.start >= n
}

// short is the error of a failed need.
func (f *frames) short() error {
	if errors.Is(f.err, io.EOF) {
		return errCut
	}
	return f.err
}

// next returns the frame at the current position without moving past it; at
// the end of the stream, io.EOF. An incomplete frame is errCut. Skippable
// frames are passed over. The bytes are valid until the next call of any
// method.
func (f *frames) next() ([]byte, error) {
	for {
		if !f.need(1) {
			return nil, f.err
		}
		if !f.need(4) {
			return nil, f.short()
		}
		magic := binary.LittleEndian.Uint32(f.buf[f.start:])
		switch {
		case magic == frameMagic:
			n, err := f.length()
			if err != nil {
				return nil, err
			}
			return f.buf[f.start : f.start+n], nil
		case magic&skippableMask == skippableMagic:
			if !f.need(8) {
				return nil, f.short()
			}
			n := int64(binary.LittleEndian.Uint32(f.buf[f.start+4:]))
			if err := f.discard(8 + n); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: no frame begins here", ErrCorrupt)
		}
	}
}

// length walks the blocks of the frame at the current position, makes all of
// it available and returns its length.
func (f *frames) length() (int, error) {
	if !f.need(5) {
		return 0, f.short()
	}
	descriptor := f.buf[f.start+4]
	if descriptor&(1<<3) != 0 {
		return 0, fmt.Errorf("%w: reserved bit in a frame header", ErrCorrupt)
	}
	if descriptor&3 != 0 {
		return 0, fmt.Errorf("%w: frame needs a dictionary", ErrCorrupt)
	}
	single := descriptor>>5&1 == 1
	pos := 5
	if !single {
		pos++
	}
	sizeLength := [4]int{0, 2, 4, 8}[descriptor>>6]
	if sizeLength == 0 && single {
		sizeLength = 1
	}
	if !f.need(pos + sizeLength) {
		return 0, f.short()
	}
	content := f.contentSize(pos, sizeLength)
	if content > uint64(f.limit) {
		return 0, fmt.Errorf("%w: frame of %d bytes, limit %d", ErrTooLarge, content, f.limit)
	}
	pos += sizeLength
	// plain is the content of the blocks whose size needs no decompression.
	blocks, plain := 0, 0
	for last := false; !last; blocks++ {
		if !f.need(pos + blockHeaderLength) {
			return 0, f.short()
		}
		b := f.buf[f.start+pos:]
		header := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		last = header&1 == 1
		size := header >> 3
		if size > maxBlock {
			return 0, fmt.Errorf("%w: block of %d bytes", ErrCorrupt, size)
		}
		switch header >> 1 & 3 {
		case 0:
			plain += size
		case 1: // one byte, repeated size times
			plain += size
			size = 1
		case 3:
			return 0, fmt.Errorf("%w: reserved block type", ErrCorrupt)
		}
		if blocks >= maxBlocks {
			return 0, fmt.Errorf("%w: frame of more than %d blocks", ErrTooLarge, maxBlocks)
		}
		pos += blockHeaderLength + size
		if max(pos, plain) > f.limit {
			return 0, fmt.Errorf("%w: frame of more than %d bytes", ErrTooLarge, f.limit)
		}
	}
	if content > uint64(blocks)*maxBlock {
		return 0, fmt.Errorf("%w: frame of %d blocks announces %d bytes", ErrCorrupt, blocks, content)
	}
	// Accepting frames without one would let a single flipped bit turn the
	// check off.
	if descriptor&(1<<2) == 0 {
		return 0, fmt.Errorf("%w: frame without a checksum", ErrCorrupt)
	}
	pos += checksumLength
	if !f.need(pos) {
		return 0, f.short()
	}
	return pos, nil
}

// contentSize decodes the frame content size field, 0 where there is none.
func (f *frames) contentSize(pos, length int) uint64 {
	b := f.buf[f.start+pos:]
	switch length {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b)) + 256
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// advance moves the position past n buffered bytes.
func (f *frames) advance(n int) {
	f.start += n
	f.offset += int64(n)
}

// discard moves the position by n bytes, reading over what is not buffered.
func (f *frames) discard(n int64) error {
	for n > 0 {
		if !f.need(1) {
			return f.short()
		}
		step := int(min(n, int64(f.end-f.start)))
		f.advance(step)
		n -= int64(step)
	}
	return nil
}

// resync moves the position to the next place after offset where a frame may
// begin, and reports whether there is one. Otherwise all input is used up.
func (f *frames) resync(offset int64) bool {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	if !f.need(1) {
		return false
	}
	if f.offset == offset {
		f.advance(1)
	}
	for {
		if i := bytes.Index(f.buf[f.start:f.end], magic); i >= 0 {
			f.advance(i)
			return true
		}
		// The last bytes may be the beginning of a magic number.
		if keep := len(magic) - 1; f.end-f.start > keep {
			f.advance(f.end - f.start - keep)
		}
		if !f.need(len(magic)) {
			f.advance(f.end - f.start)
			return false
		}
	}
}

// frameAfter reports whether a complete frame begins in what is buffered after
// the current position: then the frame here is damaged, not cut off.
func (f *frames) frameAfter() bool {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	rest := f.buf[f.start:f.end]
	for tries, i := 0, 1; tries < 16 && i < len(rest); tries++ {
		n := bytes.Index(rest[i:], magic)
		if n < 0 {
			return false
		}
		probe := frames{buf: rest, start: i + n, end: len(rest), limit: f.limit, err: io.EOF}
		if _, err := probe.length(); err == nil {
			return true
		}
		i += n + 1
	}
	return false
}

// zeros reports whether all that is left of the stream is zero bytes, as a file
// system leaves them after a power failure. It uses up the zeros.
func (f *frames) zeros() (n int64, all bool) {
	for f.need(1) {
		for i, c := range f.buf[f.start:f.end] {
			if c != 0 {
				f.advance(i)
				return n + int64(i), false
			}
		}
		n += int64(f.end - f.start)
		f.advance(f.end - f.start)
	}
	return n, true
}

// atZero reports whether the byte at the current position is zero.
func (f *frames) atZero() bool { return f.need(1) && f.buf[f.start] == 0 }
