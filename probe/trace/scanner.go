package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// maxDepth bounds the nesting of values that the decoder skips.
const maxDepth = 64

// scanner reads one JSON line. The first error sticks and moves the position to
// the end of the line, where every method fails at once: callers check err when
// they are done, and loops over keys and elements end by themselves.
type scanner struct {
	data []byte
	pos  int
	err  error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d of the line: "+format, append([]any{s.pos}, args...)...)
	}
	s.pos = len(s.data)
}

// space skips white space and returns the byte after it, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// open consumes the opening bracket c.
func (s *scanner) open(c byte) bool {
	if s.space() != c {
		s.fail("expected %q", c)
		return false
	}
	s.pos++
	return true
}

// more consumes the comma before the next element, or the closing bracket c.
func (s *scanner) more(first bool, c byte) bool {
	got := s.space()
	switch {
	case got == c:
		s.pos++
		return false
	case first && got != 0:
		return true
	case got == ',':
		s.pos++
		// A comma promises an element.
		if s.space() == c {
			s.fail("element missing after comma")
			return false
		}
		return true
	}
	s.fail("expected a comma or %q", c)
	return false
}

// key returns the next key of the object that is being read, and false at its
// end. The bytes are valid until the next call.
func (s *scanner) key(first bool) ([]byte, bool) {
	if !s.more(first, '}') {
		return nil, false
	}
	raw, escaped, ok := s.rawString()
	if !ok {
		return nil, false
	}
	if escaped {
		raw = []byte(s.unquote(raw))
	}
	if s.space() != ':' {
		s.fail("expected a colon")
		return nil, false
	}
	s.pos++
	return raw, true
}

// rawString consumes a string and returns what is between its quotes.
func (s *scanner) rawString() (raw []byte, escaped, ok bool) {
	if s.space() != '"' {
		s.fail("expected a string")
		return nil, false, false
	}
	start := s.pos + 1
	for i := start; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '"':
			s.pos = i + 1
			return s.data[start:i], escaped, true
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			s.fail("control character in a string")
			return nil, false, false
		}
	}
	s.fail("string without an end")
	return nil, false, false
}

// unquote resolves the escapes of a raw string.
func (s *scanner) unquote(raw []byte) string {
	var out string
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(quoted, '"')
	quoted = append(quoted, raw...)
	quoted = append(quoted, '"')
	if err := json.Unmarshal(quoted, &out); err != nil {
		s.fail("bad string: %v", err)
	}
	return out
}

func (s *scanner) str() string {
	raw, escaped, ok := s.rawString()
	switch {
	case !ok:
		return ""
	case escaped:
		return s.unquote(raw)
	}
	return string(bytes.ToValidUTF8(raw, []byte("\ufffd")))
}

// null consumes a null if one is next.
func (s *scanner) null() bool {
	if s.space() != 'n' {
		return false
	}
	s.literal("null")
	return true
}

func (s *scanner) literal(word string) {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		s.fail("expected %s", word)
		return
	}
	s.pos += len(word)
}

func (s *scanner) boolean() bool {
	if s.space() == 't' {
		s.literal("true")
		return s.err == nil
	}
	s.literal("false")
	return false
}

// uint consumes a whole number of 0 to limit.
func (s *scanner) uint(limit uint64) uint64 {
	s.space()
	n, end, ok := parseUint(s.data, s.pos)
	if !ok || n > limit {
		s.fail("expected a whole number of 0 to %d", limit)
		return 0
	}
	s.pos = end
	if end < len(s.data) {
		switch s.data[end] {
		case '.', 'e', 'E':
			s.fail("expected a whole number")
			return 0
		}
	}
	return n
}

// element returns the next count of an array of which something was read, and
// false at its end. Most of a trace is counts, so the form that this package
// writes has its own way.
func (s *scanner) element() (uint64, bool) {
	if data, pos := s.data, s.pos+1; pos < len(data) && data[pos-1] == ',' {
		if n, end, ok := parseUint(data, pos); ok && end < len(data) && (data[end] == ',' || data[end] == ']') {
			s.pos = end
			return n, true
		}
	}
	if !s.more(false, ']') {
		return 0, false
	}
	return s.uint(math.MaxUint64), true
}

func (s *scanner) int() int64 {
	if s.space() != '-' {
		return int64(s.uint(math.MaxInt64))
	}
	s.pos++
	// Reading the magnitude as unsigned makes the least number fit.
	return int64(-s.uint(1 << 63))
}

// parseUint reads decimal digits from data[pos:], and returns where they end.
func parseUint(data []byte, pos int) (n uint64, end int, ok bool) {
	start := pos
	for ; pos < len(data); pos++ {
		c := data[pos] - '0'
		if c > 9 {
			break
		}
		// Nineteen digits always fit.
		if pos-start >= 19 && (n > math.MaxUint64/10 || n == math.MaxUint64/10 && c > math.MaxUint64%10) {
			return 0, pos, false
		}
		n = n*10 + uint64(c)
	}
	if pos == start || pos-start > 1 && data[start] == '0' {
		return 0, pos, false
	}
	return n, pos, true
}

// skip consumes one value of any kind.
func (s *scanner) skip() {
	depth := 0
	for {
		switch c := s.space(); c {
		case '{', '[':
			if depth++; depth > maxDepth {
				s.fail("nested deeper than %d", maxDepth)
				return
			}
			s.pos++
			continue
		case '}', ']':
			if depth == 0 {
				s.fail("expected a value")
				return
			}
			depth--
			s.pos++
		case ',', ':':
			if depth == 0 {
				s.fail("expected a value")
				return
			}
			s.pos++
			continue
		case '"':
			s.rawString()
		case 't':
			s.literal("true")
		case 'f':
			s.literal("false")
		case 'n':
			s.literal("null")
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			s.skipNumber()
		default:
			s.fail("expected a value")
			return
		}
		if depth == 0 || s.err != nil {
			return
		}
	}
}

func (s *scanner) skipNumber() {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			s.pos++
		default:
			return
		}
	}
}

// end fails unless only white space is left.
func (s *scanner) end() {
	if s.err == nil && s.space() != 0 {
		s.fail("text after the value")
	}
}
