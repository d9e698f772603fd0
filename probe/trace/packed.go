package trace

import (
	"strconv"
	"strings"
)

// Counts are packed into a string with one or two characters for most of them:
// the index of the first bucket that is not empty, then for each bucket up to
// the last that is not empty its difference from the bucket before. A
// difference d is written as the number 2d, or -2d-1 where it is negative, and a
// number by the characters of packedDigits:
//
//	0 to 61         its digit
//	62 to 1859      an escape and a digit: 62 plus 62 times the escape's
//	                position, plus the digit
//	more            its decimal digits between two ~
//
// Neighbouring buckets count about the same, and an entropy coder that sees one
// character for each of them needs about 40% less than for decimal numbers.
const (
	packedDigits  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	packedEscapes = "!#$%&'()*+,-./:;<=>?@[]^_`{|}"
	packedDecimal = '~'

	packedBase = uint64(len(packedDigits))
	packedTwo  = packedBase + packedBase*uint64(len(packedEscapes))
)

// packedDigit returns what a digit stands for, and packedBase for every other
// byte.
func packedDigit(c byte) uint64 {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0')
	case 'A' <= c && c <= 'Z':
		return uint64(c-'A') + 10
	case 'a' <= c && c <= 'z':
		return uint64(c-'a') + 36
	}
	return packedBase
}

// appendPacked appends counts as a packed string with its quotes.
func appendPacked(b []byte, counts []uint64) []byte {
	b = append(b, '"')
	first, last := 0, len(counts)-1
	for first < len(counts) && counts[first] == 0 {
		first++
	}
	if first == len(counts) {
		return append(b, '"')
	}
	for counts[last] == 0 {
		last--
	}
	b = appendPackedNumber(b, uint64(first))
	before := uint64(0)
	for _, n := range counts[first : last+1] {
		// The difference wraps, so that every pair of counts has one.
		d := int64(n - before)
		b = appendPackedNumber(b, uint64(d)<<1^uint64(d>>63))
		before = n
	}
	return append(b, '"')
}

func appendPackedNumber(b []byte, n uint64) []byte {
	switch {
	case n < packedBase:
		return append(b, packedDigits[n])
	case n < packedTwo:
		n -= packedBase
		return append(b, packedEscapes[n/packedBase], packedDigits[n%packedBase])
	}
	b = append(b, packedDecimal)
	b = strconv.AppendUint(b, n, 10)
	return append(b, packedDecimal)
}

// packed reads what appendPacked writes into counts, which are zero.
func (d *decoder) packed(counts []uint64) {
	s := &d.scan
	raw, escaped, ok := s.rawString()
	if !ok || len(raw) == 0 {
		return
	}
	if escaped {
		s.fail("packed counts with an escape")
		return
	}
	first, pos, ok := packedNumber(raw, 0)
	if !ok || first >= uint64(len(counts)) {
		s.fail("packed counts begin with no bucket")
		return
	}
	into, n := counts[first:], uint64(0)
	for i := 0; pos < len(raw); i++ {
		if i >= len(into) {
			s.fail("bucket %d does not exist (there are %d)", len(counts), len(counts))
			return
		}
		coded := packedDigit(raw[pos])
		if coded < packedBase {
			pos++
		} else if coded, pos, ok = packedNumber(raw, pos); !ok {
			s.fail("byte %d of packed counts is not what they are made of", pos)
			return
		}
		n += coded>>1 ^ -(coded & 1)
		into[i] = n
	}
}

// packedNumber reads one number from raw[pos:], and returns where it ends.
func packedNumber(raw []byte, pos int) (n uint64, end int, ok bool) {
	if digit := packedDigit(raw[pos]); digit < packedBase {
		return digit, pos + 1, true
	}
	if raw[pos] != packedDecimal {
		escape := strings.IndexByte(packedEscapes, raw[pos])
		if escape < 0 || pos+1 >= len(raw) {
			return 0, pos, false
		}
		digit := packedDigit(raw[pos+1])
		if digit == packedBase {
			return 0, pos, false
		}
		return packedBase + packedBase*uint64(escape) + digit, pos + 2, true
	}
	n, end, ok = parseUint(raw, pos+1)
	if !ok || end >= len(raw) || raw[end] != packedDecimal {
		return 0, pos, false
	}
	return n, end + 1, true
}

// counts reads counts in either form: packed, or as runs, which is how version
// 1 of the format has them.
func (d *decoder) counts(into []uint64) {
	if d.scan.space() == '"' {
		d.packed(into)
		return
	}
	d.runs(into)
}
