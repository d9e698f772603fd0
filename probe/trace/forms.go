package trace

import (
	"slices"

	"autotune/model"
)

// countsForm is a way to pack the histograms of a column. The rounded ones make one
// string of all of them, in which a space separates one from the next, and the
// number after the index of the first bucket is what it counts, undoubled, and those
// after it are differences between levels.
type countsForm int

const (
	// countsExact takes any counts.
	countsExact countsForm = iota
	// countsLevels takes what [roundCounts] leaves.
	countsLevels
	// countsPairs takes what [roundPairs] leaves, and has each two buckets as one.
	countsPairs

	countsSeparator = ' '
)

// countsSuffixes follow a column's name where its histograms have the form.
var countsSuffixes = [...]string{countsExact: "", countsLevels: "_levels", countsPairs: "_pairs"}

// formOf returns the shortest form that takes the histograms of all rows.
func formOf[T any](rows []T, counts func(*T) []uint64) countsForm {
	pairs, levels := true, true
	var most uint64
	var sums [model.HistogramBuckets / 2]uint64
	for i := range rows {
		c := counts(&rows[i])
		if c == nil {
			return countsExact
		}
		if pairs {
			var of []uint64
			of, pairs = pairsOf(sums[:0], c)
			pairs = pairs && rounded(of)
		}
		levels = levels && rounded(c)
		if !pairs && !levels {
			return countsExact
		}
		most = max(most, slices.Max(c))
	}
	switch {
	case most == 0:
		return countsExact
	case pairs:
		return countsPairs
	default:
		return countsLevels
	}
}

// append appends a column of so many rows of counts.
func (f countsForm) append(b []byte, rows int, counts func(row int) []uint64) []byte {
	if f == countsExact {
		b = append(b, '[')
		for row := range rows {
			if row > 0 {
				b = append(b, ',')
			}
			if c := counts(row); c != nil {
				b = appendPacked(b, c)
			} else {
				b = append(b, "null"...)
			}
		}
		return append(b, ']')
	}
	b = append(b, '"')
	for row := range rows {
		if row > 0 {
			b = append(b, countsSeparator)
		}
		c := counts(row)
		if f == countsPairs {
			var sums [model.HistogramBuckets / 2]uint64
			c, _ = pairsOf(sums[:0], c)
		}
		b = appendLevels(b, c)
	}
	return append(b, '"')
}

// appendLevels appends rounded counts.
func appendLevels(b []byte, counts []uint64) []byte {
	first := slices.IndexFunc(counts, func(n uint64) bool { return n != 0 })
	if first < 0 {
		return b
	}
	last := len(counts) - 1
	for counts[last] == 0 {
		last--
	}
	b = appendPackedNumber(b, uint64(first))
	b = appendPackedNumber(b, counts[first])
	before := levelOf(counts[first])
	for _, n := range counts[first+1 : last+1] {
		level := levelOf(n)
		d := int64(level - before)
		b = appendPackedNumber(b, uint64(d)<<1^uint64(d>>63))
		before = level
	}
	return b
}

// read reads the counts of one row, which are zero, and fails s where they are not
// of a rounded form.
func (f countsForm) read(s *scanner, text []byte, counts []uint64) bool {
	if f == countsPairs {
		if len(counts)%2 != 0 {
			s.fail("pairs of %d buckets", len(counts))
			return false
		}
		var sums [model.HistogramBuckets / 2]uint64
		pairs := sums[:len(counts)/2]
		ok := readLevels(s, text, pairs)
		splitPairs(counts, pairs)
		return ok
	}
	return readLevels(s, text, counts)
}

// readLevels reads what appendLevels writes.
func readLevels(s *scanner, text []byte, counts []uint64) bool {
	if len(text) == 0 {
		return true
	}
	first, pos, ok := packedNumber(text, 0)
	if !ok || first >= uint64(len(counts)) || pos == len(text) {
		s.fail("packed counts begin with no bucket")
		return false
	}
	into := counts[first:]
	if into[0], pos, ok = packedNumber(text, pos); !ok {
		s.fail("byte %d of packed counts is not what they are made of", pos)
		return false
	}
	level := levelOf(into[0])
	for i := 1; pos < len(text); i++ {
		if i >= len(into) {
			s.fail("bucket %d does not exist (there are %d)", len(counts), len(counts))
			return false
		}
		coded := packedDigit(text[pos])
		if coded < packedBase {
			pos++
		} else if coded, pos, ok = packedNumber(text, pos); !ok {
			s.fail("byte %d of packed counts is not what they are made of", pos)
			return false
		}
		if level += coded>>1 ^ -(coded & 1); level > lastLevel {
			s.fail("bucket %d counts more than there can be", int(first)+i)
			return false
		}
		into[i] = levelCount(level)
	}
	return true
}
