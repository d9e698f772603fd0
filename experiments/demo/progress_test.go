package demo

import (
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		name     string
		terminal bool
		want     string
	}{
		{"a terminal's line is rewritten", true, "one\n\r\x1b[Know 1\r\x1b[Know 2\r\x1b[Ktwo\n\r\x1b[Know 3\r\x1b[K"},
		{"a pipe gets plain lines", false, "one\ntwo\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			p := &progress{w: &b, terminal: tt.terminal}
			p.done("one")
			p.now("now %d", 1)
			p.now("now %d", 2)
			p.done("two")
			p.now("now %d", 3)
			p.end()
			p.end()
			if got := b.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLineKeepsItsWidth(t *testing.T) {
	known := line(pointer(83*time.Microsecond), pointer(1500*time.Microsecond), pointer(35200.0))
	if want := "p50     83 us  p90   1500 us  CPU   35.2 us/request"; known != want {
		t.Errorf("got %q, want %q", known, want)
	}
	if unknown := line(nil, nil, nil); len(unknown) != len(known) {
		t.Errorf("%q and %q differ in width", unknown, known)
	}
}

func TestRemaining(t *testing.T) {
	for in, want := range map[time.Duration]string{
		-time.Second: "0:00 left", 61 * time.Second: "1:01 left", 299600 * time.Millisecond: "5:00 left",
	} {
		if got := remaining(in); got != want {
			t.Errorf("remaining(%v) = %q, want %q", in, got, want)
		}
	}
}
