//go:build linux

package workload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Launch says how to make a process.
type Launch struct {
	// Command is a program that calls [RunServer] or [RunClient], not yet
	// started. Its standard input and output are taken; its standard error,
	// where none is set, is kept for error messages.
	Command *exec.Cmd
	// Start starts it, for example inside a network namespace; nil means
	// [exec.Cmd.Start].
	Start func(*exec.Cmd) error
}

// process is the parent's side of one process.
type process[I, T any] struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *bytes.Buffer // nil where the caller has its own
	detach func() bool   // from the context
	watch  func(I)

	ready  chan ready
	phases chan phaseStarted
	done   chan struct{}

	mu        sync.Mutex
	intervals []I
	totals    *T
	err       error // why it ended; valid once done is closed
}

// start starts the process, configures it and waits until it is ready. The
// process is killed when ctx ends.
func start[I, T any](ctx context.Context, launch Launch, config any, watch func(I)) (*process[I, T], ready, error) {
	cmd := launch.Command
	p := &process[I, T]{
		cmd:    cmd,
		watch:  watch,
		ready:  make(chan ready, 1),
		phases: make(chan phaseStarted, 16),
		done:   make(chan struct{}),
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// The runtime would interrupt a loop that it thinks hogs a processor,
	// every 10 ms, with a signal that ends epoll_wait.
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	// In a session of its own the process does not get the terminal's Ctrl-C,
	// which is for the parent to act on, and has a scheduling group of its own
	// (autogroup), so that one which spins takes no time from the parent's.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if cmd.Stderr == nil {
		p.stderr = new(bytes.Buffer)
		cmd.Stderr = p.stderr
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, ready{}, fmt.Errorf("make the pipe to %s: %w", cmd.Path, err)
	}
	p.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, ready{}, fmt.Errorf("make the pipe from %s: %w", cmd.Path, err)
	}
	begin := launch.Start
	if begin == nil {
		begin = (*exec.Cmd).Start
	}
	if err := begin(cmd); err != nil {
		return nil, ready{}, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go p.read(stdout)
	p.detach = context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	if err := p.write(config); err != nil {
		return nil, ready{}, errors.Join(err, p.kill())
	}
	select {
	case r := <-p.ready:
		return p, r, nil
	case <-p.done:
		return nil, ready{}, p.ended()
	}
}

// read takes the process's messages until it ends.
func (p *process[I, T]) read(stdout io.Reader) {
	defer close(p.done)
	var failure error
	reader := bufio.NewReader(stdout)
	for failure == nil {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.take(line)
		}
		failure = err
	}
	if failure != nil {
		// Whoever cannot be understood is not left running.
		_ = p.cmd.Process.Kill()
	}
	waitErr := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case failure != nil:
		p.err = failure
	case waitErr != nil:
		p.err = waitErr
	}
	if p.err != nil && p.stderr != nil && p.stderr.Len() > 0 {
		p.err = fmt.Errorf("%w; it said: %s", p.err, strings.TrimSpace(p.stderr.String()))
	}
}

func (p *process[I, T]) take(line []byte) error {
	var m message[I, T]
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("message %.100q: %w", line, err)
	}
	switch {
	case m.Error != "":
		return errors.New(m.Error)
	case m.Ready != nil:
		p.ready <- *m.Ready
	case m.Phase != nil:
		p.phases <- *m.Phase
	case m.Interval != nil:
		if client, ok := any(m.Interval).(*ClientInterval); ok {
			if m.Latency == nil || m.Excluded == nil {
				return fmt.Errorf("message %.100q has no histograms", line)
			}
			client.Latency = m.Latency
			client.RawLatency = m.Excluded
			client.RawLatency.Merge(m.Latency)
		}
		p.mu.Lock()
		p.intervals = append(p.intervals, *m.Interval)
		p.mu.Unlock()
		if p.watch != nil {
			p.watch(*m.Interval)
		}
	case m.Totals != nil:
		p.mu.Lock()
		p.totals = m.Totals
		p.mu.Unlock()
	default:
		return fmt.Errorf("message %.100q says nothing", line)
	}
	return nil
}

func (p *process[I, T]) write(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode for process %d: %w", p.pid(), err)
	}
	if _, err := p.stdin.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write to process %d: %w", p.pid(), err)
	}
	return nil
}

func (p *process[I, T]) pid() int { return p.cmd.Process.Pid }

func (p *process[I, T]) kill() error {
	_ = p.cmd.Process.Kill()
	<-p.done
	p.detach()
	return p.ended()
}

// ended says why the process ended without having been asked to.
func (p *process[I, T]) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("process %d ended: %w", p.pid(), p.err)
	}
	return fmt.Errorf("process %d ended unasked", p.pid())
}

func (p *process[I, T]) list() []I {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.intervals)
}

// stop ends the process in order. If ctx ends first, the process is killed.
func (p *process[I, T]) stop(ctx context.Context) (T, error) {
	var none T
	defer p.detach()
	if err := p.write(command{Stop: true}); err != nil {
		return none, errors.Join(err, p.kill())
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return none, errors.Join(fmt.Errorf("stop process %d: %w", p.pid(), ctx.Err()), p.kill())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return none, fmt.Errorf("process %d: %w", p.pid(), p.err)
	}
	if p.totals == nil {
		return none, fmt.Errorf("process %d ended without its totals", p.pid())
	}
	return *p.totals, nil
}

// Server is the parent's view of a server's process.
type Server struct {
	process *process[ServerInterval, ServerTotals]
	addr    netip.AddrPort
}

// StartServer starts a server and returns once it listens. The process is
// killed when ctx ends. Where watch is not nil, it is called with each
// interval as it comes, from another goroutine.
func StartServer(ctx context.Context, launch Launch, config ServerConfig, watch func(ServerInterval)) (*Server, error) {
	p, r, err := start[ServerInterval, ServerTotals](ctx, launch, config, watch)
	if err != nil {
		return nil, fmt.Errorf("load server: %w", err)
	}
	return &Server{process: p, addr: r.Addr}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// PID is the server's process ID.
func (s *Server) PID() int { return s.process.pid() }

// Done is closed when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Intervals returns what was reported so far.
func (s *Server) Intervals() []ServerInterval { return s.process.list() }

// Stop ends the server and returns its totals. It must be called once, also
// where the process has ended by itself, and then returns why.
func (s *Server) Stop(ctx context.Context) (ServerTotals, error) {
	totals, err := s.process.stop(ctx)
	if err != nil {
		err = fmt.Errorf("load server: %w", err)
	}
	return totals, err
}

// Client is the parent's view of a client's process.
type Client struct {
	process *process[ClientInterval, ClientTotals]
}

// StartClient starts a client and returns once all its connections are made.
// It offers no load before the first [Client.Phase]. The process is killed
// when ctx ends. Where watch is not nil, it is called with each interval as it
// comes, from another goroutine.
func StartClient(ctx context.Context, launch Launch, config ClientConfig, watch func(ClientInterval)) (*Client, error) {
	p, _, err := start[ClientInterval, ClientTotals](ctx, launch, config, watch)
	if err != nil {
		return nil, fmt.Errorf("load client: %w", err)
	}
	return &Client{process: p}, nil
}

// PID is the client's process ID.
func (c *Client) PID() int { return c.process.pid() }

// Done is closed when the process has ended.
func (c *Client) Done() <-chan struct{} { return c.process.done }

// Intervals returns what was reported so far.
func (c *Client) Intervals() []ClientInterval { return c.process.list() }

// Phase begins a phase and returns when it began, since boot. Phases must not
// be commanded from several goroutines at once.
func (c *Client) Phase(ctx context.Context, phase Phase) (time.Duration, error) {
	if err := c.process.write(command{Phase: &phase}); err != nil {
		return 0, fmt.Errorf("load client: phase %s: %w", phase.Name, err)
	}
	select {
	case started := <-c.process.phases:
		return started.At, nil
	case <-c.process.done:
		return 0, fmt.Errorf("load client: phase %s: %w", phase.Name, c.process.ended())
	case <-ctx.Done():
		return 0, fmt.Errorf("load client: phase %s: %w", phase.Name, ctx.Err())
	}
}

// Stop ends the load, waits up to 2 s for replies, ends the client and returns
// its totals. It must be called once, also where the process has ended by
// itself, and then returns why.
func (c *Client) Stop(ctx context.Context) (ClientTotals, error) {
	totals, err := c.process.stop(ctx)
	if err != nil {
		err = fmt.Errorf("load client: %w", err)
	}
	return totals, err
}
