package trace

import (
	"math"
	"strconv"
	"time"

	"autotune/model"
)

// column is one value of every row of a table: of every queue, or every CPU.
// Values of one kind beside each other, with the name once, take about half of
// what objects with names take once they are compressed.
type column[T any] struct {
	name string
	// write appends the row's value, and read sets it.
	write func([]byte, *T) []byte
	read  func(*decoder, *T)
	// required columns have no null and cannot be absent. The others are not
	// known where they are, as in a trace from before they existed.
	required bool
	// packed columns are of histograms. They are the last ones of a table.
	packed bool
}

// maxRows bounds the rows of a table, which cost much more memory than their
// text. A line is at its limit with fewer queues that do anything.
const maxRows = 1 << 14

// table is the form of a list of rows.
type table[T any] struct {
	columns []column[T]
	index   map[string]int
	// packed is the first column of histograms.
	packed int
}

func newTable[T any](columns ...column[T]) *table[T] {
	t := &table[T]{columns: columns, index: make(map[string]int, len(columns)), packed: len(columns)}
	for i, c := range columns {
		t.index[c.name] = i
		if c.packed {
			t.packed = min(t.packed, i)
		}
	}
	return t
}

// append appends rows as an object of columns; nil is null. Histograms is told
// where the columns of histograms begin and end.
func (t *table[T]) append(b []byte, rows []T, histograms *stretch) []byte {
	if rows == nil {
		return append(b, "null"...)
	}
	for i := range t.columns {
		if i == t.packed {
			histograms.begin = len(b)
		}
		b = append(b, "{,"[min(i, 1)], '"')
		b = append(b, t.columns[i].name...)
		b = append(b, `":`...)
		if len(rows) == 0 {
			b = append(b, '[')
		}
		for j := range rows {
			b = append(b, "[,"[min(j, 1)])
			b = t.columns[i].write(b, &rows[j])
		}
		b = append(b, ']')
	}
	histograms.end = len(b)
	return append(b, '}')
}

// stretch is a part of a text.
type stretch struct{ begin, end int }

// read reads what append writes. The hint only sets the first allocation.
func (t *table[T]) read(d *decoder, hint int) []T {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	rows := make([]T, 0, hint)
	seen := make([]bool, len(t.columns))
	begun := false
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		i, known := t.index[string(key)]
		if !known {
			s.skip()
			continue
		}
		if seen[i] {
			s.fail("column %q is there twice", t.columns[i].name)
			return nil
		}
		seen[i] = true
		if !s.open('[') {
			return nil
		}
		// The first column says how many rows there are.
		n, grows := 0, !begun
		begun = true
		for begin := true; s.more(begin, ']'); begin = false {
			switch {
			case n < len(rows):
			case !grows:
				s.fail("column %q has more than %d values", t.columns[i].name, len(rows))
				return nil
			case n == maxRows:
				s.fail("column %q has more than %d values", t.columns[i].name, maxRows)
				return nil
			default:
				rows = append(rows, *new(T))
			}
			if t.columns[i].required || !s.null() {
				t.columns[i].read(d, &rows[n])
			}
			n++
		}
		if n < len(rows) && s.err == nil {
			s.fail("column %q has %d values, the first has %d", t.columns[i].name, n, len(rows))
			return nil
		}
	}
	for i, c := range t.columns {
		if c.required && !seen[i] && s.err == nil {
			s.fail("column %q is missing", c.name)
			return nil
		}
	}
	return rows
}

func counter[T any](name string, at func(*T) *uint64) column[T] {
	return column[T]{
		name: name, required: true,
		write: func(b []byte, row *T) []byte { return strconv.AppendUint(b, *at(row), 10) },
		read:  func(d *decoder, row *T) { *at(row) = d.scan.uint(math.MaxUint64) },
	}
}

func number[T any](name string, at func(*T) *uint32) column[T] {
	return column[T]{
		name: name, required: true,
		write: func(b []byte, row *T) []byte { return strconv.AppendUint(b, uint64(*at(row)), 10) },
		read:  func(d *decoder, row *T) { *at(row) = uint32(d.scan.uint(math.MaxUint32)) },
	}
}

func duration[T any](name string, at func(*T) *time.Duration) column[T] {
	return column[T]{
		name: name, required: true,
		write: func(b []byte, row *T) []byte { return strconv.AppendInt(b, int64(*at(row)), 10) },
		read:  func(d *decoder, row *T) { *at(row) = time.Duration(d.scan.int()) },
	}
}

func maybeCounter[T any](name string, at func(*T) **uint64) column[T] {
	return column[T]{
		name:  name,
		write: func(b []byte, row *T) []byte { return appendCount(b, *at(row)) },
		read:  func(d *decoder, row *T) { *at(row) = d.count() },
	}
}

func maybeDuration[T any](name string, at func(*T) **time.Duration) column[T] {
	return column[T]{
		name:  name,
		write: func(b []byte, row *T) []byte { return appendDuration(b, *at(row)) },
		read:  func(d *decoder, row *T) { *at(row) = d.duration() },
	}
}

func maybeHistogram[T any](name string, at func(*T) **model.Histogram) column[T] {
	return column[T]{
		name: name, packed: true,
		write: func(b []byte, row *T) []byte { return appendHistogram(b, *at(row)) },
		read:  func(d *decoder, row *T) { *at(row) = d.histogram() },
	}
}

// part is a counter of a group that is known as a whole or not at all.
func part[T, G any](name string, group func(*T) **G, at func(*G) *uint64) column[T] {
	return column[T]{
		name: name,
		write: func(b []byte, row *T) []byte {
			g := *group(row)
			if g == nil {
				return append(b, "null"...)
			}
			return strconv.AppendUint(b, *at(g), 10)
		},
		read: func(d *decoder, row *T) {
			g := group(row)
			if *g == nil {
				*g = new(G)
			}
			*at(*g) = d.scan.uint(math.MaxUint64)
		},
	}
}
