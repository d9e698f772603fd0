package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"autotune/model"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// topOrder is what the rows are ordered by.
type topOrder string

const (
	topByQueue   topOrder = "queue"
	topByPackets topOrder = "packets"
	topByDelay   topOrder = "p99"
)

func (o topOrder) next() topOrder {
	switch o {
	case topByPackets:
		return topByDelay
	case topByDelay:
		return topByQueue
	default:
		return topByPackets
	}
}

// Width of a bar in cells.
const topBar = 10

// View implements [tea.Model].
func (m *topModel) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

// text is what the view shows.
func (m *topModel) text() string {
	if m.sample == nil {
		return "waiting for the first window; q quits"
	}
	head, alarm := lipgloss.NewStyle().Bold(true), lipgloss.NewStyle().Foreground(lipgloss.Color("9"))
	s := m.sample
	lines := []string{
		head.Render(fmt.Sprintf("autotune top  %s  window of %v  by %s", m.boot.Add(s.At).Format("15:04:05"), s.Span.Round(time.Millisecond), cmp.Or(m.order, topByQueue))),
	}
	lines = append(lines, topCPUs(s)...)
	lines = append(lines, "")
	rows := rates(s, m.names)
	m.order.sort(rows)
	table := strings.Split(strings.TrimSuffix(topTable(rows), "\n"), "\n")
	lines = append(lines, head.Render(table[0]))
	lines = append(lines, table[1:]...)
	for _, r := range rows {
		if r.Absent != nil {
			lines = append(lines, alarm.Render(fmt.Sprintf("%s queue %d is absent: %s", r.Ifname, r.Queue, *r.Absent)))
		}
	}
	if s.Lost > 0 {
		lines = append(lines, alarm.Render(fmt.Sprintf("the probes lost %s in this window: its numbers are too low", model.Count(s.Lost, "event"))))
	}
	return m.fit(append(lines, "", "q quits, s changes the order"))
}

// fit cuts what the terminal has no room for: at the right, and of the rows the
// last.
func (m *topModel) fit(lines []string) string {
	if m.height > 0 && len(lines) > m.height {
		hidden := len(lines) - m.height + 1
		lines = append(lines[:m.height-1:m.height-1], fmt.Sprintf("%d more lines", hidden))
	}
	if m.width > 0 {
		cut := lipgloss.NewStyle().MaxWidth(m.width)
		for i := range lines {
			lines[i] = cut.Render(lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

func (o topOrder) sort(rows []rateLine) {
	value := func(r rateLine) float64 {
		switch {
		case o == topByPackets && r.PacketsPerSecond != nil:
			return *r.PacketsPerSecond
		case o == topByDelay && r.DelayP99 != nil:
			return float64(*r.DelayP99)
		}
		return -1
	}
	// Stable: equals stay in the order of their queues.
	slices.SortStableFunc(rows, func(a, b rateLine) int { return cmp.Compare(value(b), value(a)) })
}

// topCPUs shows each CPU: how busy it is, and with receiving.
func topCPUs(s *model.Sample) []string {
	var lines []string
	for i := range s.CPUs {
		c := &s.CPUs[i]
		if s.Span <= 0 {
			continue
		}
		busy := float64(c.Busy) / float64(s.Span)
		line := fmt.Sprintf("CPU %-3d %s %4s busy", c.CPU, bar(busy), percent(&busy))
		if c.NetRX != nil {
			share := float64(*c.NetRX) / float64(s.Span)
			line += fmt.Sprintf("  %4s NET_RX", percent(&share))
		}
		if steal := float64(c.Steal) / float64(s.Span); steal > 0 {
			line += fmt.Sprintf("  %4s stolen", percent(&steal))
		}
		lines = append(lines, line)
	}
	return lines
}

func bar(share float64) string {
	full := int(max(0, min(1, share))*topBar + 0.5)
	return "[" + strings.Repeat("|", full) + strings.Repeat(" ", topBar-full) + "]"
}

func topTable(rows []rateLine) string {
	var out bytes.Buffer
	t := newTable(&out, "DEVICE", "QUEUE", "NAPI", "PACKETS/S", "POLLS/S", "IRQ", "TIMER", "APP", "THREAD", "EMPTY", "P50", "P99", "CPU/PACKET", "DEFER", "FLUSH", "SUSPEND")
	for i := range rows {
		r := &rows[i]
		loops := r.columns()
		t.row(r.Ifname, fmt.Sprint(r.Queue), orDash(r.NAPIID), decimals(r.PacketsPerSecond, 0), decimals(r.PollsPerSecond, 0),
			percent(loops.interrupt), percent(loops.timer), percent(loops.application), percent(loops.thread), percent(r.EmptyShare),
			rounded(r.DelayP50), rounded(r.DelayP99), rounded(r.CPUPerPacket),
			orDash(r.DeferHardIRQs), orDashTime(r.GROFlushTimeout), orDashTime(r.IRQSuspendTimeout))
	}
	_ = t.flush() // a buffer takes everything
	return out.String()
}
