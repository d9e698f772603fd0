package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"autotune/experiments/testbed"
)

// port is where programs listen, in the namespace of their bed.
const port = 7000

// Process is a program that serves in a test bed. It is ended by
// [Process.Stop], and at the latest with the bed.
type Process struct {
	cmd  *exec.Cmd
	addr netip.AddrPort
	dir  string

	done chan struct{}
	// said and err are of the process, and valid once done is closed.
	said bytes.Buffer
	err  error
}

// Start starts the program at the server's end of the bed and returns once it
// listens, with all its threads on the CPU and, where it is Realtime, under
// SCHED_FIFO, as the bed's NAPI threads have to be ([testbed.Options.Realtime]).
func Start(ctx context.Context, bed *testbed.Bed, program Program, cpu int) (p *Process, err error) {
	if err := program.Available(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "autotune-server-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for %s: %w", program.Name, err)
	}
	p = &Process{addr: netip.AddrPortFrom(bed.Server().Addr, port), dir: dir, done: make(chan struct{})}
	if err := p.start(bed, program); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := errors.Join(p.await(ctx, bed), pin(p.PID(), cpu, program.Realtime)); err != nil {
		p.kill()
		return nil, errors.Join(p.explain(err), os.RemoveAll(dir))
	}
	return p, nil
}

func (p *Process) start(bed *testbed.Bed, program Program) error {
	if err := os.Chmod(p.dir, 0o777); err != nil { // servers change their user
		return fmt.Errorf("open the directory of %s to its user: %w", program.Name, err)
	}
	cmd, err := program.command(p.addr, p.dir)
	if err != nil {
		return err
	}
	p.cmd = cmd
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	// The terminal's Ctrl-C is for whoever runs the experiment, and ends things
	// in order.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := bed.Server().Start(cmd); err != nil {
		return err
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return nil
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Addr is where the program listens.
func (p *Process) Addr() netip.AddrPort { return p.addr }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop kills the process and returns once it has ended. Where it ended before
// by itself, Stop says so and what it said.
func (p *Process) Stop(ctx context.Context) error {
	var unasked error
	select {
	case <-p.done:
		unasked = p.explain(fmt.Errorf("%s ended unasked: %w", p.cmd.Path, p.ended()))
	default:
		_ = p.cmd.Process.Kill()
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.cmd.Path, ctx.Err())
	}
	return errors.Join(unasked, os.RemoveAll(p.dir))
}

// ended says how a process that has ended did.
func (p *Process) ended() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// explain adds to an error what a process that has ended had said.
func (p *Process) explain(err error) error {
	said := strings.TrimSpace(p.said.String())
	if err == nil || said == "" {
		return err
	}
	return fmt.Errorf("%w; the server said: %.300s", err, said)
}

// await returns once the program accepts connections.
func (p *Process) await(ctx context.Context, bed *testbed.Bed) error {
	var last error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %w", p.cmd.Path, p.ended())
		default:
		}
		last = bed.Client().Do(func() error {
			conn, err := net.DialTimeout("tcp", p.addr.String(), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if last == nil {
			return nil
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the server does not listen on %v: %w", p.addr, last))
}

// pin puts all threads of a process onto one CPU, with realtime under SCHED_FIFO
// as the NAPI thread is.
func pin(pid, cpu int, realtime bool) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("list the server's threads: %w", err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return fmt.Errorf("thread %q: %w", task.Name(), err)
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pin thread %d to CPU %d: %w", tid, cpu, err)
		}
		if !realtime {
			continue
		}
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if err := unix.SchedSetAttr(tid, attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("put thread %d under SCHED_FIFO: %w", tid, err)
		}
	}
	return nil
}
