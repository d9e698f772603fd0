package demo

import (
	"testing"
	"time"
)

func TestParseTaken(t *testing.T) {
	const stat = `cpu  400 0 200 900 10 0 5 3 0 0
cpu0 100 20 50 700 10 1 2 3 60 0
cpu10 300 0 150 200 0 0 3 0 0 0
intr 123 0 1
ctxt 99
`
	for _, tt := range []struct {
		name string
		cpu  int
		want time.Duration
		fail bool
	}{
		{"all but idle, iowait and guest", 0, 1760 * time.Millisecond, false},
		{"a CPU whose number begins alike", 10, 4530 * time.Millisecond, false},
		{"a CPU that is not there", 1, 0, true},
	} {
		got, err := parseTaken([]byte(stat), tt.cpu)
		if (err != nil) != tt.fail || got != tt.want {
			t.Errorf("%s: got %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
	if _, err := parseTaken([]byte("cpu0 1 x"), 0); err == nil {
		t.Error("a time that is no number was taken")
	}
	if got, err := taken(0); err != nil || got <= 0 {
		t.Errorf("this machine's CPU 0: %v, %v", got, err)
	}
}
