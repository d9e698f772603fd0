package trace

import (
	"bytes"
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
	// counts and fill are set in columns of histograms, which are the last ones of
	// a table: counts returns those of a row, nil where they are not known, and
	// fill those that are to be read, all 0.
	counts, fill func(*T) []uint64
}

// maxRows bounds the rows of a table, which cost much more memory than their
// text. A line is at its limit with fewer queues that do anything.
const maxRows = 1 << 14

// table is the form of a list of rows.
type table[T any] struct {
	columns []column[T]
	index   map[string]columnForm
	// packed is the first column of histograms.
	packed int
}

// columnForm is a column, and the form that its histograms have.
type columnForm struct {
	column int
	form   countsForm
}

func newTable[T any](columns ...column[T]) *table[T] {
	t := &table[T]{columns: columns, index: make(map[string]columnForm, len(columns)), packed: len(columns)}
	for i, c := range columns {
		t.index[c.name] = columnForm{column: i}
		if c.counts != nil {
			t.packed = min(t.packed, i)
			for form, suffix := range countsSuffixes {
				t.index[c.name+suffix] = columnForm{i, countsForm(form)}
			}
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
		c := &t.columns[i]
		b = append(b, "{,"[min(i, 1)], '"')
		b = append(b, c.name...)
		if c.counts != nil {
			form := formOf(rows, c.counts)
			b = append(b, countsSuffixes[form]...)
			b = append(b, `":`...)
			b = form.append(b, len(rows), func(row int) []uint64 { return c.counts(&rows[row]) })
			continue
		}
		b = append(b, `":[`...)
		for j := range rows {
			if j > 0 {
				b = append(b, ',')
			}
			b = c.write(b, &rows[j])
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
		known, ok := t.index[string(key)]
		if !ok {
			s.skip()
			continue
		}
		i := known.column
		if seen[i] {
			s.fail("column %q is there twice", t.columns[i].name)
			return nil
		}
		seen[i] = true
		// The first column says how many rows there are.
		n, grows := 0, !begun
		begun = true
		next := func() *T {
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
			n++
			return &rows[n-1]
		}
		if known.form == countsExact {
			readArray(d, &t.columns[i], next)
		} else {
			readRounded(d, &t.columns[i], known.form, next)
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

// readArray reads a column's values into the rows that next returns, which is nil
// where there are too many.
func readArray[T any](d *decoder, c *column[T], next func() *T) {
	s := &d.scan
	if !s.open('[') {
		return
	}
	for first := true; s.more(first, ']'); first = false {
		row := next()
		switch {
		case row == nil:
			return
		case !c.required && s.null():
		case c.fill != nil:
			d.counts(c.fill(row))
		default:
			c.read(d, row)
		}
	}
}

// readRounded reads a column of rounded histograms.
func readRounded[T any](d *decoder, c *column[T], form countsForm, next func() *T) {
	s := &d.scan
	raw, escaped, ok := s.rawString()
	if escaped {
		s.fail("packed counts with an escape")
	}
	for more := ok && !escaped; more; {
		var text []byte
		text, raw, more = bytes.Cut(raw, []byte{countsSeparator})
		row := next()
		if row == nil {
			return
		}
		if !form.read(s, text, c.fill(row)) {
			return
		}
	}
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
		name: name,
		counts: func(row *T) []uint64 {
			if h := *at(row); h != nil {
				return h.Counts[:]
			}
			return nil
		},
		fill: func(row *T) []uint64 {
			h := new(model.Histogram)
			*at(row) = h
			return h.Counts[:]
		},
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
