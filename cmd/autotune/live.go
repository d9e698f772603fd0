package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
)

// rateLine is one NAPI instance over one window, in the output of
// list --live --json.
type rateLine struct {
	Kind    string        `json:"kind"` // "napi_rates"
	At      time.Duration `json:"at_ns"`
	Span    time.Duration `json:"span_ns"`
	Netns   uint64        `json:"netns"`
	Ifname  string        `json:"ifname"`
	Ifindex int           `json:"ifindex"`
	Queue   int           `json:"queue"`
	NAPIID  *uint32       `json:"napi_id"`
	// Absent is why the queue has no read-back; null where it has one. What
	// follows is then null, and so is all that was not observed.
	Absent *string `json:"absent"`

	Packets          *uint64    `json:"packets"`
	PacketsPerSecond *float64   `json:"packets_per_s"`
	PollsPerSecond   *float64   `json:"polls_per_s"`
	Loops            []loopRate `json:"loops"`
	// EmptyShare and FullShare are shares of all polls, PacketsPerPoll is over
	// those that found packets; null where there were none.
	EmptyShare     *float64 `json:"empty_share"`
	FullShare      *float64 `json:"full_share"`
	PacketsPerPoll *float64 `json:"packets_per_poll"`

	TimerArmsPerSecond  *float64 `json:"timer_arms_per_s"`
	TimerFiresPerSecond *float64 `json:"timer_fires_per_s"`

	// The server-side delay of requests; null where none was followed.
	DelaySamples *uint64        `json:"delay_samples"`
	DelayP50     *time.Duration `json:"delay_p50_ns"`
	DelayP99     *time.Duration `json:"delay_p99_ns"`
	RingWaitP50  *time.Duration `json:"ring_wait_p50_ns"`
	// RingWaitSource is "polls", or "hardware" where the device's time stamps
	// were used.
	RingWaitSource *model.RingWaitSource `json:"ring_wait_source"`
	// Stamps are null where the device stamps nothing, or its clock is not yet
	// known.
	Stamps        *model.Stamps  `json:"receive_stamps"`
	SocketWaitP50 *time.Duration `json:"socket_wait_p50_ns"`

	CPUPerPacket *time.Duration `json:"cpu_per_packet_ns"`

	DeferHardIRQs     *uint32 `json:"defer_hard_irqs"`
	GROFlushTimeout   *int64  `json:"gro_flush_timeout_ns"`
	IRQSuspendTimeout *int64  `json:"irq_suspend_timeout_ns"`
	// LostEvents counts what the probes dropped in the window, over all
	// queues: the numbers of such a window are too low.
	LostEvents uint64 `json:"lost_events"`
}

// loopRate is what one of the kernel's loops did for one NAPI instance.
type loopRate struct {
	Loop             string  `json:"loop"`
	Polls            uint64  `json:"polls"`
	Packets          uint64  `json:"packets"`
	PollsPerSecond   float64 `json:"polls_per_s"`
	PacketsPerSecond float64 `json:"packets_per_s"`
	// PollShare is the loop's share of the polls; null where there were none.
	PollShare *float64 `json:"poll_share"`
}

// namedLoop is one loop with its counts.
type namedLoop struct {
	name   string
	counts model.PollCounts
}

// loopCounts takes a queue's polls apart by who ran them and, where that was
// observed, by what started them.
func loopCounts(q *model.QueueSample) []namedLoop {
	if q.TimerSoftirq == nil || q.TimerThread == nil {
		return []namedLoop{{"softirq", q.Softirq}, {"thread", q.Thread}, {"application", q.Busy}}
	}
	return []namedLoop{
		{"softirq_interrupt", minus(q.Softirq, *q.TimerSoftirq)}, {"softirq_timer", *q.TimerSoftirq},
		{"thread_interrupt", minus(q.Thread, *q.TimerThread)}, {"thread_timer", *q.TimerThread},
		{"application", q.Busy},
	}
}

// minus takes a part of counts away. Both were read one after the other, so a
// part can be ahead by what came in between.
func minus(whole, part model.PollCounts) model.PollCounts {
	return model.PollCounts{
		Polls:   whole.Polls - min(part.Polls, whole.Polls),
		Packets: whole.Packets - min(part.Packets, whole.Packets),
		Empty:   whole.Empty - min(part.Empty, whole.Empty),
		Full:    whole.Full - min(part.Full, whole.Full),
	}
}

// columns are the loops as the table has them.
type columns struct{ interrupt, timer, application, thread *float64 }

func (l *rateLine) columns() columns {
	polls := make(map[string]uint64)
	var all uint64
	for _, loop := range l.Loops {
		polls[loop.Loop] = loop.Polls
		all += loop.Polls
	}
	c := columns{application: share(polls["application"], all)}
	if _, split := polls["softirq_timer"]; split {
		c.interrupt = share(polls["softirq_interrupt"]+polls["thread_interrupt"], all)
		c.timer = share(polls["softirq_timer"]+polls["thread_timer"], all)
	}
	c.thread = share(polls["thread"]+polls["thread_interrupt"]+polls["thread_timer"], all)
	return c
}

func (c *listCmd) checkLive() error {
	switch {
	case !c.Live && (c.Duration != 0 || c.Interval != nil || c.ProbeBudget != 0):
		return errors.New("--duration, --interval and --probe-budget are for --live")
	case c.Interval != nil && (*c.Interval < minWindow || *c.Interval > maxWindow):
		return intervalError(*c.Interval)
	case c.Duration < 0:
		return fmt.Errorf("--duration %v: leave it out to go on until stopped", c.Duration)
	}
	return nil
}

// openLive opens the source of list --live and top, and names the probes that
// are missing. The caller closes it.
func openLive(ctx context.Context, std streams, host *actuate.Host, interval time.Duration, budget probeBudget) (*probe.Source, error) {
	// Neither shows cycles.
	source, err := probe.Open(ctx, probe.Options{Interval: interval, Inventory: host, Clocks: host, Budget: float64(budget), NoCounters: true})
	if err != nil {
		return nil, openError(err)
	}
	for _, m := range source.Missing() {
		fmt.Fprintf(std.err, "without %s: %s (%v)\n", m.Name, m.Lost, m.Err)
	}
	return source, nil
}

// live prints what each NAPI instance does, window by window.
func (c *listCmd) live(ctx context.Context, std streams, host *actuate.Host) (err error) {
	interval := time.Second
	if c.Interval != nil {
		interval = *c.Interval
	}
	if c.Duration > 0 {
		interval = max(minWindow, min(interval, c.Duration))
	}
	source, err := openLive(ctx, std, host, interval, c.ProbeBudget)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	boot, err := bootTime()
	if err != nil {
		return err
	}
	names := ifnames(host)
	wipe := !c.JSON && isTerminal(std.out)
	// Windows are a little shorter or longer than the interval.
	for seen := time.Duration(0); c.Duration == 0 || seen < c.Duration-interval/2; {
		sample, err := source.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read sample: %w", err)
		}
		seen += sample.Span
		lines := rates(&sample, names)
		if c.JSON {
			for _, line := range lines {
				if err := printJSON(std.out, line); err != nil {
					return err
				}
			}
			continue
		}
		if wipe {
			fmt.Fprint(std.out, "\x1b[H\x1b[2J")
		}
		if err := printRates(std.out, &sample, boot, lines); err != nil {
			return err
		}
	}
	return nil
}

// ifnames gives the names of the host's interfaces by index.
func ifnames(host *actuate.Host) map[int]string {
	names := make(map[int]string)
	for _, d := range host.Devices() {
		names[d.Link.Index] = d.Link.Name
	}
	return names
}

// rates makes the lines of one sample: a queue each, in their order.
func rates(s *model.Sample, names map[int]string) []rateLine {
	costs := model.Costs(s)
	observed := make(map[model.Queue]*model.QueueSample, len(s.Queues))
	for i := range s.Queues {
		observed[s.Queues[i].Queue] = &s.Queues[i]
	}
	lines := make([]rateLine, 0, len(s.Active)+len(s.Absent))
	for _, q := range sampledQueues(s) {
		line := rateLine{
			Kind: "napi_rates", At: s.At, Span: s.Span,
			Netns: q.Netns, Ifname: names[q.Ifindex], Ifindex: q.Ifindex, Queue: q.Index,
			LostEvents: s.Lost,
		}
		if id, ok := s.NAPIIDs[q]; ok {
			line.NAPIID = &id
		}
		if why, ok := s.Absent[q]; ok {
			line.Absent = &why
		}
		if active, ok := s.Active[q]; ok {
			flush, suspend := int64(active.GROFlushTimeout), int64(active.IRQSuspendTimeout)
			line.DeferHardIRQs, line.GROFlushTimeout, line.IRQSuspendTimeout = &active.DeferHardIRQs, &flush, &suspend
		}
		if seen := observed[q]; seen != nil && s.Span > 0 {
			line.observe(seen, s.Span)
			if cost, ok := costs[q]; ok && *line.Packets > 0 {
				perPacket := cost / time.Duration(*line.Packets)
				line.CPUPerPacket = &perPacket
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// observe fills in what was polled.
func (l *rateLine) observe(q *model.QueueSample, span time.Duration) {
	perSecond := func(n uint64) float64 { return float64(n) / span.Seconds() }
	var all model.PollCounts
	l.Loops = []loopRate{}
	loops := loopCounts(q)
	for _, loop := range loops {
		all = all.Plus(loop.counts)
	}
	for _, loop := range loops {
		l.Loops = append(l.Loops, loopRate{
			Loop: loop.name, Polls: loop.counts.Polls, Packets: loop.counts.Packets,
			PollsPerSecond: perSecond(loop.counts.Polls), PacketsPerSecond: perSecond(loop.counts.Packets),
			PollShare: share(loop.counts.Polls, all.Polls),
		})
	}
	packets, polls := perSecond(all.Packets), perSecond(all.Polls)
	l.Packets, l.PacketsPerSecond, l.PollsPerSecond = &all.Packets, &packets, &polls
	l.EmptyShare, l.FullShare = share(all.Empty, all.Polls), share(all.Full, all.Polls)
	l.PacketsPerPoll = share(all.Packets, all.Polls-min(all.Empty, all.Polls))
	if q.Timer != nil {
		arms, fires := perSecond(q.Timer.Arms), perSecond(q.Timer.Fires)
		l.TimerArmsPerSecond, l.TimerFiresPerSecond = &arms, &fires
	}
	if q.Delay != nil {
		n := q.Delay.Count()
		l.DelaySamples = &n
	}
	l.DelayP50, l.DelayP99 = quantileOf(q.Delay, 0.5), quantileOf(q.Delay, 0.99)
	if source := q.RingWaitSource(); source != "" {
		l.RingWaitSource = &source
	}
	l.Stamps = q.Stamps
	l.RingWaitP50, l.SocketWaitP50 = quantileOf(q.RingWait, 0.5), quantileOf(q.SocketWait, 0.5)
}

func share(part, whole uint64) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

func quantileOf(h *model.Histogram, q float64) *time.Duration {
	if h.Count() == 0 {
		return nil
	}
	d := h.Quantile(q)
	return &d
}

// printRates prints one window as a table.
func printRates(w io.Writer, s *model.Sample, boot time.Time, lines []rateLine) error {
	fmt.Fprintf(w, "%s  window of %v\n", boot.Add(s.At).Format("15:04:05.000"), s.Span.Round(time.Millisecond))
	t := newTable(w, "DEVICE", "QUEUE", "NAPI", "PACKETS/S", "POLLS/S", "BY IRQ", "BY TIMER", "BY APP", "IN THREAD",
		"EMPTY", "PACKETS/POLL", "FIRES/S", "P50", "P99", "CPU/PACKET", "DEFER", "FLUSH", "SUSPEND")
	for _, line := range lines {
		loops := line.columns()
		t.row(line.Ifname, fmt.Sprint(line.Queue), orDash(line.NAPIID),
			decimals(line.PacketsPerSecond, 0), decimals(line.PollsPerSecond, 0),
			percent(loops.interrupt), percent(loops.timer), percent(loops.application), percent(loops.thread),
			percent(line.EmptyShare), decimals(line.PacketsPerPoll, 2), decimals(line.TimerFiresPerSecond, 0),
			rounded(line.DelayP50), rounded(line.DelayP99), rounded(line.CPUPerPacket),
			orDash(line.DeferHardIRQs), orDashTime(line.GROFlushTimeout), orDashTime(line.IRQSuspendTimeout))
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, line := range lines {
		if line.Absent != nil {
			fmt.Fprintf(w, "%s queue %d is absent: %s\n", line.Ifname, line.Queue, *line.Absent)
		}
	}
	if s.Lost > 0 {
		fmt.Fprintf(w, "the probes lost %s in this window: its numbers are too low\n", model.Count(s.Lost, "event"))
	}
	_, err := fmt.Fprintln(w)
	return err
}

// sampledQueues returns the queues that a sample tells of, in their order.
func sampledQueues(s *model.Sample) []model.Queue {
	seen := make(map[model.Queue]bool, len(s.Active)+len(s.Absent))
	for q := range s.Active {
		seen[q] = true
	}
	for q := range s.Absent {
		seen[q] = true
	}
	return slices.SortedFunc(maps.Keys(seen), model.Queue.Compare)
}

func decimals(x *float64, n int) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'f', n, 64)
}

func percent(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**x)
}

// rounded prints a duration to three digits or so.
func rounded(d *time.Duration) string {
	if d == nil {
		return "-"
	}
	switch {
	case *d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case *d >= 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}
