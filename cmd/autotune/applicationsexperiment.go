package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"autotune/experiments/servers"
)

// applicationsCmd measures what suspension does to unmodified servers.
type applicationsCmd struct {
	Only   []string      `help:"Only these of memcached, memcached-busy, memcached-busy-fifo, redis, nginx and net/http." placeholder:"NAME"`
	Rate   float64       `help:"Offer this many requests per second in place of each program's own rate; those that are always busy are left out." placeholder:"N"`
	Rounds int           `help:"How often each contender takes its turn; at least 5 for intervals." default:"5"`
	Span   time.Duration `help:"Length of a measurement." default:"3s"`
	Seed   uint64        `help:"Names the client's random numbers." default:"1"`
	Output string        `short:"o" help:"Write the raw rows to this file, as JSON lines." type:"path" placeholder:"FILE"`
	JSON   bool          `help:"One object per line." name:"json"`
}

// Run implements the command.
func (c *applicationsCmd) Run(ctx context.Context, std streams) error {
	if c.Rounds < 1 || c.Span < 250*time.Millisecond {
		return usageError(errors.New("--rounds must be positive and --span at least 250ms"))
	}
	if c.Rate != 0 && !(c.Rate >= 1 && c.Rate <= 1e6) {
		return usageError(fmt.Errorf("--rate %v: from 1 to 1000000 requests per second", c.Rate))
	}
	if err := demoPossible(); err != nil {
		return cannotError(err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it as tuner and client: %w", err)
	}
	programs := servers.Programs(self)
	if len(c.Only) > 0 {
		var chosen []servers.Program
		for _, name := range c.Only {
			i := slices.IndexFunc(programs, func(p servers.Program) bool { return p.Name == name })
			if i < 0 {
				return usageError(fmt.Errorf("--only %s: there are memcached, memcached-busy, memcached-busy-fifo, redis, nginx and net/http", name))
			}
			chosen = append(chosen, programs[i])
		}
		programs = chosen
	}
	if c.Rate > 0 {
		programs = slices.DeleteFunc(programs, func(p servers.Program) bool { return p.Closed })
		for i := range programs {
			programs[i].Rate = c.Rate
		}
	}
	if len(programs) == 0 {
		return usageError(errors.New("--rate: the chosen programs are always busy, whatever is offered"))
	}
	rows, err := servers.Run(ctx, servers.Options{
		Programs: programs, Rounds: c.Rounds, Settle: time.Second, Span: c.Span, Seed: c.Seed, Self: self,
		Client:   func() *exec.Cmd { return exec.Command(self, "experiment", "client") },
		Progress: func(format string, args ...any) { fmt.Fprintf(std.err, format+"\n", args...) },
	})
	switch {
	case err != nil && ctx.Err() != nil:
		err = ctx.Err() // how servers and clients ended then is no news
	case errors.Is(err, servers.ErrCannotRun):
		err = cannotError(err)
	}
	return errors.Join(err, c.print(std, rows))
}

func (c *applicationsCmd) print(std streams, rows []servers.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if c.Output != "" {
		var lines strings.Builder
		for _, r := range rows {
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			lines.Write(append(line, '\n'))
		}
		if err := os.WriteFile(c.Output, []byte(lines.String()), 0o644); err != nil {
			return fmt.Errorf("write the raw rows: %w", err)
		}
	}
	compared := servers.Summarize(rows)
	if c.JSON {
		encoder := json.NewEncoder(std.out)
		for _, line := range compared {
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}
	if err := servers.WriteMarkdown(std.out, compared); err != nil {
		return err
	}
	fmt.Fprintln(std.out)
	for _, line := range compared {
		if line.Verdict == "" {
			fmt.Fprintf(std.out, "%s: will it gain from suspension? doctor said beforehand: %s (%s)\n", line.Program, line.Advice.Gain, line.Advice.Detail)
			continue
		}
		fmt.Fprintf(std.out, "%s, %s against untouched: %s\n", line.Program, line.Contender, line.Verdict)
	}
	return nil
}

// httpServerCmd is Go's own HTTP server with a small answer.
type httpServerCmd struct {
	Addr string `arg:""`
}

// Run implements the command.
func (c *httpServerCmd) Run(ctx context.Context, _ streams) error {
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", 64))
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(body)
		}),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
