package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"autotune/experiments/demo"
	"autotune/experiments/servers"
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
	Quick      bool           `help:"One short round, without a verdict."`
	Server     string         `help:"What is under load: built-in, or memcached, redis or nginx as installed here, whose epoll contexts follow the settings." default:"built-in" placeholder:"NAME"`
	Contenders []string       `help:"Further contenders, as policy specs." placeholder:"SPEC" sep:";"`
	Policy     string         `help:"The contender that is judged." default:"greybox" placeholder:"SPEC"`
	Rounds     int            `help:"How often each contender runs; at least 5 for a verdict." default:"0" hidden:""`
	Phase      *time.Duration `help:"Length of a phase; 5.5s by default, 3s with a --server that is installed here." placeholder:"DURATION"`
	Rates      []float64      `help:"Requests per second under low and under high load; by default 5000,40000." placeholder:"LOW,HIGH"`
	Seed       uint64         `help:"Decides the order of the contenders in each round." default:"1"`
	Output     string         `short:"o" help:"Directory of report.html and the raw rows." default:"demo-report" type:"path" placeholder:"DIR"`
	JSON       bool           `help:"One object per line." name:"json"`
}

// Run implements the command: 0 means that the target was met, 4 that it was
// missed or that the measurements do not decide.
func (c *demoCmd) Run(ctx context.Context, std streams) error {
	if _, err := policy.Parse(c.Policy); err != nil {
		return usageError(err)
	}
	program, err := c.program()
	if err != nil {
		return err
	}
	contenders, err := c.contenders(program)
	if err != nil {
		return err
	}
	phases, err := c.phases(program)
	if err != nil {
		return usageError(err)
	}
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

	report := filepath.Join(c.Output, "report.html")
	result, err := demo.Run(ctx, demo.Options{
		Contenders:    contenders,
		Judged:        "autotune",
		Phases:        phases,
		Program:       program,
		Rounds:        c.Rounds,
		Quick:         c.Quick,
		Seed:          c.Seed,
		Progress:      std.err,
		Terminal:      isTerminal(std.err),
		Report:        report,
		Tuners:        newDemoTuners(state, std.err),
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

// program returns the server to start, nil for the built-in one.
func (c *demoCmd) program() (*servers.Program, error) {
	if c.Server == demo.BuiltIn {
		return nil, nil
	}
	// net/http would be this program itself, which is not what is installed, and
	// the load of one that is always busy does not change.
	var names []string
	for _, p := range servers.Programs("") {
		if p.Name == "net/http" || p.Closed {
			continue
		}
		if p.Name != c.Server {
			names = append(names, p.Name)
			continue
		}
		if err := p.Available(); err != nil {
			return nil, cannotError(err)
		}
		return &p, nil
	}
	return nil, usageError(fmt.Errorf("--server %s: there are %s, %s", c.Server, demo.BuiltIn, strings.Join(names, ", ")))
}

// contenders returns the fixed ones, those asked for, and the judged one.
func (c *demoCmd) contenders(program *servers.Program) ([]demo.Contender, error) {
	contenders := demo.DefaultContenders()
	if program != nil {
		contenders = demo.SteeredContenders()
	}
	judged := &contenders[len(contenders)-1]
	judged.Spec = c.Policy
	var further []demo.Contender
	for _, spec := range c.Contenders {
		if _, err := policy.Parse(spec); err != nil {
			return nil, usageError(err)
		}
		// "base" is the name of the one that all are compared with.
		further = append(further, demo.Contender{Name: "policy " + spec, Spec: spec})
	}
	return slices.Insert(contenders, len(contenders)-1, further...), nil
}

// phases returns those of a length or of rates that were asked for, nil otherwise.
func (c *demoCmd) phases(program *servers.Program) ([]demo.Phase, error) {
	if c.Phase == nil && c.Rates == nil {
		return nil, nil
	}
	phases := demo.DefaultPhases()
	if program != nil {
		phases = demo.ProgramPhases(*program)
	}
	if c.Phase != nil {
		phases = demo.Shortened(phases, *c.Phase)
	}
	if c.Rates == nil {
		return phases, nil
	}
	if len(c.Rates) != 2 || !(c.Rates[0] > 0) || !(c.Rates[1] > c.Rates[0]) || math.IsInf(c.Rates[1], 0) {
		return nil, errors.New("--rates takes two rates in requests per second, the low load's and the higher of the high load, as in --rates 5000,40000")
	}
	for i := range phases {
		phases[i].Rate = c.Rates[0]
		if phases[i].Load == demo.LoadHigh {
			phases[i].Rate = c.Rates[1]
		}
	}
	return phases, nil
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
		return fmt.Errorf("it makes network namespaces and loads BPF programs, which needs root; %s", instead)
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
