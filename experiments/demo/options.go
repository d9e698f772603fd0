package demo

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"autotune/experiments/servers"
	"autotune/experiments/workload"
	"autotune/model"
)

// ErrOptions is wrapped by every refusal of [Options].
var ErrOptions = errors.New("demo options")

// Options configure [Run]. The zero value of each field means its default;
// Tuners, ClientCommand, and ServerCommand unless there is a Program, have none
// and must be set.
type Options struct {
	// Contenders take turns in each round. The first must hold still (an
	// empty Spec): the others are compared with it. Default:
	// [DefaultContenders], or [SteeredContenders] with a Program.
	Contenders []Contender
	// Judged names the contender that the verdict is about; the default is
	// the last one.
	Judged string
	// Phases are run in order by every contender in every round. Default:
	// [DefaultPhases], or [ProgramPhases] with a Program.
	Phases []Phase
	// Calibration is how long the base runs alone under high load to fix the
	// SLO; the default is the length of the busiest phase.
	Calibration time.Duration
	// Program is the server under load, as it is installed here; nil means the
	// server of experiments/workload. Its epoll contexts follow the settings
	// ([TuningRequest.Steer]), and Server does not apply. One that is always
	// busy (Closed) has no load that could change, and is refused.
	Program *servers.Program
	// Server and Client configure the load; addresses, CPUs, intervals and the
	// Program's exchange are filled in.
	Server workload.ServerConfig
	Client workload.ClientConfig
	// Rounds is how often every contender runs; the default is 5, the fewest
	// that can be judged ([MinRounds]).
	Rounds int
	// Window is the length of a tuner's sample and of a point of the
	// timeline; the default is 125 ms.
	Window time.Duration
	// SLOFactor sets the SLO: that many times the median p90 of the base in
	// the busiest phase. Default 2.
	SLOFactor float64
	// Quick makes one short round, without a verdict.
	Quick bool
	// Seed decides the order of contenders within each round. Any value,
	// zero too, is one.
	Seed uint64
	// Progress takes what a person watches; default none. Terminal says that
	// it understands carriage returns and ANSI escapes.
	Progress io.Writer
	Terminal bool
	// Report is the path of the HTML report; the record is written beside it,
	// with the extension .jsonl. Empty means neither.
	Report string
	// Tuners tunes.
	Tuners Tuners
	// ServerCommand and ClientCommand return a command, not yet started, that
	// calls [workload.RunServer] or [workload.RunClient]: as a rule the
	// caller's own binary with hidden arguments.
	ServerCommand, ClientCommand func() *exec.Cmd
	// Parameters are shown in the report, such as the policy's defaults that
	// a spec leaves open.
	Parameters map[string]string
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Contenders) == 0 {
		o.Contenders = DefaultContenders()
		if o.Program != nil {
			o.Contenders = SteeredContenders()
		}
	}
	if o.Judged == "" {
		o.Judged = o.Contenders[len(o.Contenders)-1].Name
	}
	if len(o.Phases) == 0 {
		o.Phases = DefaultPhases()
		if o.Program != nil {
			o.Phases = ProgramPhases(*o.Program)
		}
		if o.Quick {
			o.Phases = Shortened(o.Phases, quickPhase)
		}
	}
	if o.Rounds == 0 {
		o.Rounds = MinRounds
		if o.Quick {
			o.Rounds = 1
		}
	}
	if o.Window == 0 {
		o.Window = 125 * time.Millisecond
	}
	if o.SLOFactor == 0 {
		o.SLOFactor = 2
	}
	if o.Calibration == 0 {
		o.Calibration = o.Phases[busiest(o.Phases)].Duration
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o, o.check()
}

func (o Options) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	if o.Contenders[0].Spec != "" {
		return fail("the first contender, %q, must hold still, since the others are compared with it: leave its policy empty", o.Contenders[0].Name)
	}
	if len(o.Contenders) < 2 {
		return fail("there is nothing to compare with %q: name a second contender", o.Contenders[0].Name)
	}
	names := map[string]bool{}
	for _, c := range o.Contenders {
		if c.Name == "" || names[c.Name] {
			return fail("contender name %q is empty or taken: give each its own", c.Name)
		}
		names[c.Name] = true
	}
	if !names[o.Judged] || o.Judged == o.Contenders[0].Name {
		return fail("contender %q cannot be judged: name one of those compared with %q", o.Judged, o.Contenders[0].Name)
	}
	phases := map[string]bool{}
	for _, p := range o.Phases {
		switch {
		case p.Name == "" || phases[p.Name]:
			return fail("phase name %q is empty or taken: give each its own", p.Name)
		case p.Load != LoadLow && p.Load != LoadHigh:
			return fail("phase %q has load %q: use %q or %q", p.Name, p.Load, LoadLow, LoadHigh)
		case p.Rate <= 0:
			return fail("phase %q offers %g requests per second: use more than 0", p.Name, p.Rate)
		case p.Duration < 4*o.Window:
			return fail("phase %q lasts %v: use at least four windows of %v", p.Name, p.Duration, o.Window)
		}
		phases[p.Name] = true
	}
	switch {
	case o.Program != nil && o.Program.Closed:
		return fail("the load of %s does not change: use a program with a rate", o.Program.Name)
	case o.Rounds < 1:
		return fail("%d rounds: use at least 1, or %d for a verdict", o.Rounds, MinRounds)
	case o.Calibration < 4*o.Window:
		return fail("a calibration of %v: use at least four windows of %v", o.Calibration, o.Window)
	case o.Window < 50*time.Millisecond:
		return fail("a window of %v holds too few requests: use at least 50ms", o.Window)
	case o.SLOFactor <= 1:
		return fail("an SLO of %g times the base cannot be held by the base itself: use more than 1", o.SLOFactor)
	case o.Tuners == nil:
		return fail("no Tuners")
	case o.ServerCommand == nil && o.Program == nil || o.ClientCommand == nil:
		return fail("no command for the load's server or client")
	}
	return nil
}

// busiest returns the index of the phase with the highest offered rate.
func busiest(phases []Phase) int {
	best := 0
	for i, p := range phases {
		if p.Rate > phases[best].Rate {
			best = i
		}
	}
	return best
}

// objective is the quantile that the demo's SLO is about.
const objectiveQuantile = 0.90

func objective(slo time.Duration) model.Objective {
	return model.Objective{SLO: slo, Quantile: objectiveQuantile}
}
