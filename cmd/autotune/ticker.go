package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// tickerWait is how long work may go on without a word.
const tickerWait = 2 * time.Second

// ticker tells of progress: on a terminal in one line that is written over, and
// else in a line every ten seconds.
type ticker struct {
	w        io.Writer
	terminal bool
	last     time.Time
	width    int
}

func newTicker(w io.Writer) *ticker {
	return &ticker{w: w, terminal: isTerminal(w), last: time.Now()}
}

func (t *ticker) say(text string) {
	every := 10 * time.Second
	if t.terminal {
		every = 200 * time.Millisecond
	}
	if t.width == 0 {
		every = tickerWait
	}
	if time.Since(t.last) < every {
		return
	}
	t.last = time.Now()
	if !t.terminal {
		fmt.Fprintln(t.w, text)
		t.width = 1
		return
	}
	fmt.Fprintf(t.w, "\r%s%s", text, strings.Repeat(" ", max(0, t.width-len(text))))
	t.width = len(text)
}

// end leaves the line.
func (t *ticker) end() {
	if t.terminal && t.width > 0 {
		fmt.Fprintln(t.w)
	}
}
