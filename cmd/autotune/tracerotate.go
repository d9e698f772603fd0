package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"autotune/probe/trace"
)

// rotationFlags say when a trace goes on in another file.
type rotationFlags struct {
	RotateSize byteSize      `help:"Go on in another file after so much, for example 100MiB; the files are FILE with a number before its extension." name:"rotate-size" placeholder:"SIZE"`
	RotateAge  time.Duration `help:"Go on in another file after this time, for example 1h." name:"rotate-age" placeholder:"TIME"`
	KeepSize   byteSize      `help:"Remove the oldest files of this recording before all of them exceed this." name:"keep-size" placeholder:"SIZE"`
}

// minRotate keeps a recording from becoming a directory of headers.
const (
	minRotateSize = 64 << 10
	minRotateAge  = time.Second
)

func (f rotationFlags) rotation() trace.Rotation {
	return trace.Rotation{Size: int64(f.RotateSize), Age: f.RotateAge, Keep: int64(f.KeepSize)}
}

// check refuses limits that mean nothing; path is the file, empty where no
// trace is written.
func (f rotationFlags) check(path string) error {
	switch {
	case !f.rotation().Enabled():
		return nil
	case path == "":
		return errors.New("--rotate-size, --rotate-age and --keep-size are about a trace: name its file")
	case path == "-":
		return errors.New("-o -: standard output does not go on in another file; leave out --rotate-size, --rotate-age and --keep-size")
	case f.RotateSize != 0 && f.RotateSize < minRotateSize:
		return fmt.Errorf("--rotate-size %v: at least %v", f.RotateSize, byteSize(minRotateSize))
	case f.RotateAge < 0 || f.RotateAge != 0 && f.RotateAge < minRotateAge:
		return fmt.Errorf("--rotate-age %v: at least %v", f.RotateAge, minRotateAge)
	case f.KeepSize != 0 && f.KeepSize < 4*max(f.RotateSize, minRotateSize):
		return fmt.Errorf("--keep-size %v: at least %v, four files", f.KeepSize, 4*max(f.RotateSize, minRotateSize))
	}
	return nil
}

// byteSize is a number of bytes.
type byteSize int64

func (b byteSize) String() string { return byteText(int64(b)) }

// UnmarshalText reads a number with a unit: B, KiB, MiB, GiB, TiB, or kB, MB,
// GB, TB in powers of ten.
func (b *byteSize) UnmarshalText(text []byte) error {
	s := string(text)
	i := strings.IndexFunc(s, func(c rune) bool { return c != '.' && (c < '0' || c > '9') })
	if i < 0 {
		i = len(s)
	}
	unit, known := map[string]float64{
		"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}[strings.TrimSpace(s[i:])]
	n, err := strconv.ParseFloat(s[:i], 64)
	if err != nil || !known || n*unit < 1 || n*unit > math.MaxInt64/2 {
		return fmt.Errorf("%q is no size; write for example 100MiB or 2GiB", text)
	}
	*b = byteSize(n * unit)
	return nil
}

// traceWriter is what a recording is written to: one file, or several.
type traceWriter interface {
	trace.Sink
	Close() error
	Stats() trace.WriterStats
}

func createTrace(path string, h trace.Header, o trace.Options, r trace.Rotation) (traceWriter, error) {
	if !r.Enabled() {
		return trace.Create(path, h, o)
	}
	return trace.CreateSeries(path, h, o, r)
}

// traceFiles are the files that there are, and how many were removed.
func traceFiles(path string, w traceWriter) (files []string, removed int) {
	if s, ok := w.(*trace.Series); ok {
		return s.Parts()
	}
	return []string{path}, 0
}
