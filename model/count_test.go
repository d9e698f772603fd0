package model

import "testing"

func TestCountAgreesWithItsNoun(t *testing.T) {
	for _, tc := range []struct {
		n    int
		what string
		want string
	}{
		{0, "window", "0 windows"},
		{1, "window", "1 window"},
		{2, "more window", "2 more windows"},
		{1, "process", "1 process"},
		{3, "process", "3 processes"},
		{2, "entry", "2 entries"},
		{-1, "queue", "-1 queues"},
	} {
		if got := Count(tc.n, tc.what); got != tc.want {
			t.Errorf("Count(%d, %q) = %q, want %q", tc.n, tc.what, got, tc.want)
		}
	}
}
