package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows a run to whoever watches: on a terminal one line that is
// rewritten with every window, above it what is done; elsewhere only the
// latter. Its methods may be called from any goroutine. What cannot be written
// is no reason to end a run.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	live     bool // a line is there to be rewritten
}

// erase returns to the start of a terminal's line and clears it.
const erase = "\r\x1b[K"

// done writes a line that stays.
func (p *progress) done(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		_, _ = io.WriteString(p.w, erase)
		p.live = false
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// now rewrites the live line.
func (p *progress) now(format string, args ...any) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.w, erase+fmt.Sprintf(format, args...))
	p.live = true
}

// end takes the live line away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		_, _ = io.WriteString(p.w, erase)
		p.live = false
	}
}

// line describes a moment or a phase.
func line(p50, p90 *time.Duration, cpu *float64) string {
	value := func(known bool, v float64, format string) string {
		if !known {
			return fmt.Sprintf("%*s", len(fmt.Sprintf(format, 0.0)), notKnown)
		}
		return fmt.Sprintf(format, v)
	}
	cost := 0.0
	if cpu != nil {
		cost = *cpu / float64(time.Microsecond)
	}
	return fmt.Sprintf("p50 %s us  p90 %s us  CPU %s us/request",
		value(p50 != nil, us(p50), "%6.0f"), value(p90 != nil, us(p90), "%6.0f"), value(cpu != nil, cost, "%6.1f"))
}

// remaining writes a duration as minutes and seconds.
func remaining(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	return fmt.Sprintf("%d:%02d left", int(d.Minutes()), int(d.Seconds())%60)
}
