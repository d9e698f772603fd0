package model

import (
	"fmt"
	"strings"
)

// Count writes a number with what it counts, for people: "1 window",
// "2 more windows", "3 processes". The noun is the last word of what.
func Count[N ~int | ~int64 | ~uint32 | ~uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %s", n, plural(what))
}

func plural(noun string) string {
	for _, hiss := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, hiss) {
			return noun + "es"
		}
	}
	if stem, ok := strings.CutSuffix(noun, "try"); ok {
		return stem + "tries"
	}
	return noun + "s"
}
