package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"autotune/actuate"
	"autotune/model"

	tea "charm.land/bubbletea/v2"
)

type topCmd struct {
	Iface string `arg:"" optional:"" help:"Only this interface; all that have NAPI instances by default."`
	Netns string `help:"Network namespace, by name or path." placeholder:"NAME|PATH"`

	Interval    time.Duration `help:"Length of a window." default:"1s"`
	ProbeBudget probeBudget   `help:"Share of a CPU that the probes may take before they sample less, 1% by default; none: no limit." name:"probe-budget" placeholder:"PERCENT"`
}

// Run implements the command. It writes nothing to the kernel.
func (c *topCmd) Run(ctx context.Context, std streams) (err error) {
	switch {
	case c.Interval < minWindow || c.Interval > maxWindow:
		return usageError(intervalError(c.Interval))
	case !isTerminal(std.out):
		return usageError(errors.New("it needs a terminal; autotune list --live prints the same, and --json for programs"))
	}
	host, err := openToLook(ctx, c.Netns, c.Iface)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	return c.show(ctx, host, os.Stdin, std)
}

// show runs the view until q is pressed or ctx ends. The options are for
// terminals that tell no size.
func (c *topCmd) show(ctx context.Context, host *actuate.Host, in io.Reader, std streams, options ...tea.ProgramOption) (err error) {
	source, err := openLive(ctx, std, host, c.Interval, c.ProbeBudget)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	boot, err := bootTime()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	options = append(options, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(std.out), tea.WithoutSignalHandler())
	program := tea.NewProgram(&topModel{names: ifnames(host), boot: boot}, options...)
	ended := make(chan error, 1)
	go func() {
		for {
			sample, err := source.Next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				ended <- err
				program.Quit()
				return
			}
			program.Send(sample)
		}
	}()
	_, err = program.Run()
	stopped := ctx.Err() != nil
	cancel()
	// The source is read by one goroutine at a time: wait before closing it.
	if readErr := <-ended; readErr != nil {
		return fmt.Errorf("read sample: %w", readErr)
	}
	if stopped {
		// Ended from outside, as a service manager or a test does.
		return nil
	}
	return err
}

// topModel is the state of the view: the last window, and how to show it.
type topModel struct {
	names         map[int]string
	boot          time.Time
	sample        *model.Sample
	width, height int
	order         topOrder
}

// Init implements [tea.Model].
func (m *topModel) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case model.Sample:
		m.sample = &msg
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "s":
			m.order = m.order.next()
		}
	}
	return m, nil
}
