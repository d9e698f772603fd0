//go:build linux

package workload

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// queueSize is the room for requests that wait for a connection: at 40,000
	// requests per second, 26 s of a server that answers nothing.
	queueSize = 1 << 20
	// sendsPerRound keeps a round short of [GapThreshold], so that catching up
	// is not taken for a gap.
	sendsPerRound = 4
	// drainLimit bounds how long a stopping client waits for replies.
	drainLimit = 2 * time.Second
	never      = time.Duration(1<<63 - 1)
)

// RunClient is the main loop of a client's process: it reads its
// [ClientConfig] from input, connects, offers load by phases until it is told
// to stop or input ends, and reports on output. Both should be pipes. As
// [RunServer], it takes the process over.
func RunClient(input, output *os.File) error {
	l, err := newLoop(input, output)
	if err != nil {
		return err
	}
	err = runClient(l)
	if err != nil {
		err = errors.Join(err, l.send(message[ClientInterval, ClientTotals]{Error: err.Error()}))
	}
	return errors.Join(err, l.close())
}

func runClient(l *loop) error {
	var config ClientConfig
	if err := l.configure(&config); err != nil {
		return err
	}
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	c := &clientLoop{
		loop:    l,
		config:  config,
		random:  rand.New(rand.NewPCG(config.Seed, 0)),
		request: make([]byte, config.MessageSize),

		replySize: config.MessageSize,
		queue:     make([]time.Duration, queueSize),
		due:       never,
		interval:  ClientInterval{Gaps: newGaps()},
		latency:   NewLatency(),
		excluded:  NewLatency(),
	}
	return c.run()
}

type clientLoop struct {
	*loop
	config  ClientConfig
	random  *rand.Rand
	request []byte
	// replySize is the length of a reply.
	replySize int
	conns     []clientConn
	// idle is a ring of the connections without a request in flight, the
	// longest idle first.
	idle            []int
	idleHead, idles int
	// queue is a ring of the due times of requests that wait.
	queue             []time.Duration
	queueHead, queued int

	due  time.Duration // when the next request becomes due
	last time.Duration // when the loop was last seen running
	// gapEnd is the end of the client's latest gap, serverGapEnd that of the
	// server's latest stolen one, as its replies tell.
	gapEnd, serverGapEnd time.Duration

	interval    ClientInterval
	intervalEnd time.Duration
	// latency and excluded are of this interval; each request is in one.
	latency, excluded *Latency
	line              []byte
	phase             Phase
	measuredFrom      time.Duration
	totals            ClientTotals
	stopping          bool
	drainDeadline     time.Duration
}

type clientConn struct {
	fd     int
	due    time.Duration
	buffer []byte
	have   int
}

func (c *clientLoop) run() (err error) {
	defer func() { err = errors.Join(err, c.disconnect()) }()
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.settle(c.config.CPU, c.config.RuntimeCPU, c.config.Nice); err != nil {
		return err
	}
	if err := c.watch(int(c.input.file.Fd()), inputToken); err != nil {
		return err
	}
	if err := c.send(message[ClientInterval, ClientTotals]{Ready: &ready{Addr: c.config.Addr}}); err != nil {
		return err
	}
	c.interval.Start = c.clock.now()
	c.intervalEnd = c.interval.Start + c.config.Interval
	c.interval.Settling = true // until the first phase
	c.last = c.interval.Start
	for !c.drained() {
		if err := c.round(); err != nil {
			return err
		}
	}
	if err := c.report(c.clock.now()); err != nil {
		return err
	}
	return c.send(message[ClientInterval, ClientTotals]{Totals: &c.totals})
}

func (c *clientLoop) drained() bool {
	return c.stopping && (c.queued == 0 && c.idles == len(c.conns) || c.last > c.drainDeadline)
}

// round does what is due and collects what came, once.
func (c *clientLoop) round() error {
	now := c.notice()
	for c.due <= now {
		c.enqueue(c.due)
		c.due += c.phase.gap(c.random)
	}
	for c.phase.Closed && !c.stopping && c.queued < min(c.idles, sendsPerRound) {
		c.enqueue(now)
	}
	for range sendsPerRound {
		if c.queued == 0 || c.idles == 0 {
			break
		}
		if err := c.sendNext(); err != nil {
			return err
		}
	}
	c.interval.MaxBacklog = max(c.interval.MaxBacklog, c.queued)
	if c.last >= c.intervalEnd {
		if err := c.report(c.last); err != nil {
			return err
		}
	}
	events, err := c.poll()
	if err != nil {
		return err
	}
	for i := range events {
		token := events[i].Fd
		if token == inputToken {
			err := c.commands(c.do)
			if errors.Is(err, io.EOF) {
				err = c.do(command{Stop: true})
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := c.receive(int(token)); err != nil {
			return err
		}
	}
	return nil
}

// poll returns what is ready, and sleeps for it only where that is wanted and
// nothing can be sent.
func (c *clientLoop) poll() ([]unix.EpollEvent, error) {
	var timeout unix.Timespec
	if !c.config.Sleep || c.queued > 0 && c.idles > 0 {
		return c.wait(&timeout)
	}
	now := c.notice()
	until := min(c.due, c.intervalEnd)
	if until <= now {
		return c.wait(&timeout)
	}
	timeout = unix.NsecToTimespec(int64(until - now))
	events, err := c.wait(&timeout)
	// However the sleep ended, it should have ended by then.
	c.last = min(c.clock.now(), until)
	return events, err
}

// notice reads the clock and logs a gap if the loop came late.
func (c *clientLoop) notice() time.Duration {
	now := c.clock.now()
	if span := now - c.last; span > GapThreshold {
		c.interval.Gaps.add(Gap{Start: c.last, Span: span, Cause: GapLate})
		c.gapEnd = now
	}
	c.last = now
	return now
}

func (c *clientLoop) enqueue(due time.Duration) {
	c.interval.Offered++
	if c.queued == len(c.queue) {
		c.interval.Dropped++
		return
	}
	c.queue[(c.queueHead+c.queued)%len(c.queue)] = due
	c.queued++
}

func (c *clientLoop) sendNext() error {
	index := c.idle[c.idleHead]
	conn := &c.conns[index]
	n, errno := rawWrite(conn.fd, c.request)
	if errno == unix.EINTR {
		return nil
	}
	if errno != 0 {
		return fmt.Errorf("write a request: %w", errno)
	}
	if n != len(c.request) {
		return fmt.Errorf("write a request: %d of %d bytes fit, use a smaller message size", n, len(c.request))
	}
	conn.due = c.queue[c.queueHead]
	c.queueHead = (c.queueHead + 1) % len(c.queue)
	c.queued--
	c.idleHead = (c.idleHead + 1) % len(c.idle)
	c.idles--
	c.interval.Sent++
	return nil
}

func (c *clientLoop) receive(index int) error {
	conn := &c.conns[index]
	n, errno := rawRead(conn.fd, conn.buffer[conn.have:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case errno != 0:
		return fmt.Errorf("read a reply: %w", errno)
	case n == 0:
		return errors.New("read a reply: the server closed the connection")
	}
	conn.have += n
	if conn.have < len(conn.buffer) {
		return nil
	}
	conn.have = 0
	now := c.notice()
	c.idle[(c.idleHead+c.idles)%len(c.idle)] = index
	c.idles++
	if c.config.Exchange == nil {
		c.serverGapEnd = max(c.serverGapEnd, time.Duration(binary.LittleEndian.Uint64(conn.buffer)))
	}
	c.record(conn.due, now)
	return nil
}

func (c *clientLoop) record(due, now time.Duration) {
	c.interval.Completed++
	if due < c.measuredFrom {
		c.interval.Carried++
		return
	}
	// A gap ended before the reply was read, so they overlap if it ended
	// after the request was due.
	switch {
	case due < c.gapEnd:
		c.interval.ExcludedClient++
		c.excluded.record(now - due)
	case due < c.serverGapEnd:
		c.interval.ExcludedServer++
		c.excluded.record(now - due)
	default:
		c.latency.record(now - due)
	}
}

func (c *clientLoop) do(cmd command) error {
	if cmd.Stop && !c.stopping { // an input that has ended stays readable
		now := c.clock.now()
		if err := c.report(now); err != nil {
			return err
		}
		c.stopping = true
		c.due = never
		c.drainDeadline = now + drainLimit
		c.interval.Settling = true
	}
	if cmd.Phase == nil || c.stopping {
		return nil
	}
	phase := *cmd.Phase
	if err := phase.check(); err != nil {
		return err
	}
	if phase.Fresh {
		c.interval.Dropped += uint64(c.queued)
		c.queued = 0
	}
	now := c.clock.now()
	if err := c.report(now); err != nil {
		return err
	}
	c.phase = phase
	c.measuredFrom = now + phase.Settle
	c.interval.Phase, c.interval.Rate, c.interval.Settling = phase.Name, phase.Rate, phase.Settle > 0
	if phase.Settle > 0 {
		c.intervalEnd = min(c.intervalEnd, c.measuredFrom)
	}
	c.due = never
	if phase.Rate > 0 && !phase.Closed {
		c.due = now + phase.gap(c.random)
	}
	return c.send(message[ClientInterval, ClientTotals]{Phase: &phaseStarted{Name: phase.Name, At: now}})
}

// report sends the interval that ends now and begins the next.
func (c *clientLoop) report(now time.Duration) error {
	c.interval.End = now
	c.interval.Backlog = c.queued
	in := &c.interval
	line, err := appendInterval(c.line[:0], in, c.latency, c.excluded)
	if err != nil {
		return err
	}
	c.line = line
	if _, err := c.output.Write(line); err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	c.totals.Offered += in.Offered
	c.totals.Sent += in.Sent
	c.totals.Completed += in.Completed
	c.totals.Dropped += in.Dropped
	c.totals.Excluded += in.ExcludedClient + in.ExcludedServer
	c.totals.Gaps += in.Gaps.Count
	c.totals.GapTime += in.Gaps.Total
	in.Gaps.reset()
	c.latency.histogram.Reset()
	c.excluded.histogram.Reset()
	*in = ClientInterval{
		Start:      now,
		Phase:      c.phase.Name,
		Settling:   c.stopping || in.Phase == "" || now < c.measuredFrom,
		Rate:       c.phase.Rate,
		Gaps:       in.Gaps,
		MaxBacklog: c.queued,
	}
	c.intervalEnd = now + c.config.Interval
	if now < c.measuredFrom {
		c.intervalEnd = min(c.intervalEnd, c.measuredFrom)
	}
	return nil
}

// appendInterval encodes an interval's message. It is what the loop does that
// takes longest, and must stay well below [GapThreshold].
func appendInterval(line []byte, in *ClientInterval, latency, excluded *Latency) ([]byte, error) {
	numbers, err := json.Marshal(message[ClientInterval, ClientTotals]{Interval: in})
	if err != nil {
		return line, fmt.Errorf("encode a report: %w", err)
	}
	line = append(line, numbers[:len(numbers)-1]...)
	line = append(line, `,"latency":`...)
	line = latency.appendJSON(line)
	line = append(line, `,"excluded":`...)
	line = excluded.appendJSON(line)
	return append(line, "}\n"...), nil
}

func (c *clientLoop) connect() error {
	if x := c.config.Exchange; x != nil {
		size, err := x.rehearse(c.config.Addr)
		if err != nil {
			return err
		}
		c.request, c.replySize = x.Request, size
	}
	c.idle = make([]int, c.config.Connections)
	for index := range c.config.Connections {
		fd, err := socket()
		if err != nil {
			return err
		}
		c.conns = append(c.conns, clientConn{fd: fd, buffer: make([]byte, c.replySize)})
		if err := unix.Connect(fd, sockaddr(c.config.Addr)); err != nil {
			return fmt.Errorf("connect to %v: %w", c.config.Addr, err)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("make a connection non-blocking: %w", err)
		}
		if err := c.watch(fd, int32(index)); err != nil {
			return err
		}
		c.idle[index] = index
		c.idles++
	}
	return nil
}

func (c *clientLoop) disconnect() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, unix.Close(conn.fd))
	}
	return errors.Join(errs...)
}
