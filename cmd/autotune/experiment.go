package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"autotune/experiments/demo"
	"autotune/experiments/workload"
	"autotune/model/policy"

	"golang.org/x/sys/unix"
)

type experimentCmd struct {
	Demo           demoCmd           `cmd:"" help:"Tune a real NAPI instance under real load and judge the result."`
	Counterfactual counterfactualCmd `cmd:"" help:"Predict settings from a recording, then measure them."`
	Applications   applicationsCmd   `cmd:"" help:"Measure what suspension does to memcached, redis, nginx and net/http, unmodified."`
	Server         loadServerCmd     `cmd:"" hidden:""`
	Client         loadClientCmd     `cmd:"" hidden:""`
	HTTP           httpServerCmd     `cmd:"" hidden:"" name:"http"`
}

type demoCmd struct {
	Quick      bool          `help:"One short round, without a verdict."`
	Contenders []string      `help:"Further contenders, as policy specs." placeholder:"SPEC" sep:";"`
	Policy     string        `help:"The contender that is judged." default:"aimd:start=100us,step=50us,max=200us" placeholder:"SPEC"`
	Rounds     int           `help:"How often each contender runs; at least 5 for a verdict." default:"0" hidden:""`
	Phase      time.Duration `help:"Length of a phase." default:"0" hidden:""`
	Seed       uint64        `help:"Decides the order of the contenders in each round." default:"1"`
	Output     string        `short:"o" help:"Directory of report.html and the raw rows." default:"demo-report" type:"path" placeholder:"DIR"`
	JSON       bool          `help:"One object per line." name:"json"`
}

// Run implements the command: 0 means that the target was met, 4 that it was
// missed or that the measurements do not decide.
func (c *demoCmd) Run(ctx context.Context, std streams) error {
	if _, err := policy.Parse(c.Policy); err != nil {
		return usageError(err)
	}
	contenders := []demo.Contender{{Name: "base"}, {Name: "fixed 200us", Spec: "static:defer=100,flush=200us"}}
	for _, spec := range c.Contenders {
		if _, err := policy.Parse(spec); err != nil {
			return usageError(err)
		}
		// "base" is the name of the one that all are compared with.
		contenders = append(contenders, demo.Contender{Name: "policy " + spec, Spec: spec})
	}
	contenders = append(contenders, demo.Contender{Name: "autotune", Spec: c.Policy})
	if err := demoPossible(); err != nil {
		return cannotError(err)
	}
	if err := os.MkdirAll(c.Output, 0o755); err != nil {
		return usageError(fmt.Errorf("make the directory of the report: %w", err))
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it as load server and client: %w", err)
	}
	state, err := os.MkdirTemp("", "autotune-demo-")
	if err != nil {
		return fmt.Errorf("make a state directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(state) }()

	phases := demo.DefaultPhases()
	if c.Quick {
		phases = demo.QuickPhases()
	}
	if c.Phase > 0 {
		for i := range phases {
			phases[i].Duration = c.Phase
		}
	}
	report := filepath.Join(c.Output, "report.html")
	result, err := demo.Run(ctx, demo.Options{
		Contenders:    contenders,
		Judged:        "autotune",
		Phases:        phases,
		Rounds:        c.Rounds,
		Quick:         c.Quick,
		Seed:          c.Seed,
		Progress:      std.err,
		Terminal:      isTerminal(std.err),
		Report:        report,
		Tuners:        newDemoTuners(state),
		ServerCommand: func() *exec.Cmd { return exec.Command(self, "experiment", "server") },
		ClientCommand: func() *exec.Cmd { return exec.Command(self, "experiment", "client") },
		Parameters:    map[string]string{"policy": c.Policy},
	})
	if errors.Is(err, demo.ErrOptions) {
		return usageError(err)
	}
	if errors.Is(err, demo.ErrCannotRun) {
		return cannotError(err)
	}
	if len(result.Rows) > 0 {
		err = errors.Join(err, c.print(std, result, report))
	}
	if err != nil {
		return err
	}
	if result.Verdict != nil && result.Verdict.Outcome != demo.Met {
		return &exitError{code: exitMissed}
	}
	return nil
}

func (c *demoCmd) print(std streams, result demo.Result, report string) error {
	if c.JSON {
		return demo.WriteSummary(std.out, result)
	}
	err := demo.WriteTable(std.out, result)
	fmt.Fprintf(std.out, "\nreport: %s (raw rows beside it: %s)\n", report, demo.RecordPath(report))
	return err
}

// demoPossible says precisely why not, and what to run instead.
func demoPossible() error {
	const instead = "autotune doctor says what this host lacks, autotune list what it has"
	if os.Geteuid() != 0 {
		return fmt.Errorf("the demo makes network namespaces and loads BPF programs, which needs root; %s", instead)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel version %q is not understood: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 13 {
		return fmt.Errorf("kernel %s cannot set a NAPI instance (napi-set came with 6.13); %s", release, instead)
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Errorf("the kernel carries no type information (CONFIG_DEBUG_INFO_BTF): %w; %s", err, instead)
	}
	return nil
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && !strings.EqualFold(os.Getenv("TERM"), "dumb")
}

type loadServerCmd struct{}

// Run implements the command.
func (c *loadServerCmd) Run(context.Context, streams) error {
	return workload.RunServer(os.Stdin, os.Stdout)
}

type loadClientCmd struct{}

// Run implements the command.
func (c *loadClientCmd) Run(context.Context, streams) error {
	return workload.RunClient(os.Stdin, os.Stdout)
}
