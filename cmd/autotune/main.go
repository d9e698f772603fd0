package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	// The first signal ends the work and lets the originals be put back; the
	// commands ignore later ones while they do that. A hang-up is a lost
	// terminal, unless nohup had it ignored.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	// Output that nobody reads is an error like any other, and no reason to
	// die without putting the originals back.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// cli is the command line. Each command is a struct with a Run method in a
// file of its own.
type cli struct {
	Doctor     doctorCmd     `cmd:"" help:"What works here, what does not, why, and what to do."`
	List       listCmd       `cmd:"" help:"NAPI instances, their queues and settings."`
	Top        topCmd        `cmd:"" help:"The same as list --live, as a live view on a terminal."`
	Run        runCmd        `cmd:"" help:"Observe and recommend; with --apply, tune."`
	Restore    restoreCmd    `cmd:"" help:"Put back what an earlier run changed."`
	Record     recordCmd     `cmd:"" help:"Write what the probes see to a trace; nothing is written to the kernel."`
	Replay     replayCmd     `cmd:"" help:"What a policy would have decided on a trace; with --verify, whether the run can be repeated."`
	Trace      traceCmd      `cmd:"" help:"Look at traces, cut, merge and anonymize them, or import a series of counters."`
	Export     exportCmd     `cmd:"" help:"Write a trace as CSV or Parquet."`
	Simulate   simulateCmd   `cmd:"" help:"Simulate one setting, a table, a fit, or a check against this kernel."`
	Busypoll   busypollCmd   `cmd:"" help:"How running processes busy poll: list, or set."`
	Compare    compareCmd    `cmd:"" help:"Compare policies on simulated scenarios, with intervals, tables and plots."`
	Explain    explainCmd    `cmd:"" help:"One decision of a journal or trace in full."`
	Experiment experimentCmd `cmd:"" help:"Live experiments in a test bed of network namespaces."`

	Version kong.VersionFlag `help:"Print the version."`
	Config  configFlag       `help:"Take flags from this TOML file; the command line wins." placeholder:"FILE"`
}

// streams are what a command may write to.
type streams struct {
	out, err io.Writer
}

// exited carries the code with which kong wants to exit (after --help).
type exited int

func newParser(c *cli, stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("autotune"),
		kong.Description("Adaptive tuning of Linux network receive processing, per NAPI instance."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Vars{"version": version()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ValueFormatter(withDefault),
	)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			asked, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(asked)
		}
	}()
	var c cli
	parser, err := newParser(&c, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "autotune: %v\n", err)
		return exitFailed
	}
	command, err := parser.Parse(asked(args))
	switch {
	case unread(err, stdout): // of --help
		return exitFailed
	case err != nil:
		fmt.Fprintf(stderr, "autotune: %s\n", parseText(parser.Model, err))
		return exitUsage
	}
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(streams{out: stdout, err: stderr})
	if err == nil {
		return exitDone
	}
	var coded *exitError
	if !errors.As(err, &coded) {
		coded = &exitError{code: exitFailed, err: err}
	}
	switch {
	case coded.err == nil || unread(coded.err, stdout):
	case ctx.Err() != nil && onlyCanceled(coded.err):
		fmt.Fprintf(stderr, "autotune %s: interrupted\n", commandName(command.Selected()))
	default:
		fmt.Fprintf(stderr, "autotune %s: %v\n", commandName(command.Selected()), sentence(coded.err))
	}
	return coded.code
}

// commandName returns what was typed for a command: a default command goes by
// the name of the one above it.
func commandName(n *kong.Node) string {
	for n.Parent != nil && n.Parent.DefaultCmd == n {
		n = n.Parent
	}
	if n.Parent != nil && n.Parent.Type != kong.ApplicationNode {
		return commandName(n.Parent) + " " + n.Name
	}
	return n.Name
}
