package compare

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"autotune/experiments/scenarios"
	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
)

// ErrPlan is wrapped by every error that says that a plan cannot be run.
var ErrPlan = errors.New("not a comparison")

// Regime is what the simulated application does.
type Regime string

const (
	// RegimeSuspend has an application that prefers busy polling by itself, so
	// that interrupts may be suspended.
	RegimeSuspend Regime = "suspend"
	// RegimeSteer has one that does not, but may be made to by the settings.
	RegimeSteer Regime = "steer"
	// RegimeDeferral has neither, so that interrupts can only be deferred.
	RegimeDeferral Regime = "deferral"
)

// Latency is whose delay is held against the SLO, and shown to policies.
type Latency string

const (
	// LatencyClient is what clients see, as the published runs report it.
	LatencyClient Latency = "client"
	// LatencyServer is the server-side delay, all that a live host knows.
	LatencyServer Latency = "server"
)

// Plan is everything that decides what a comparison simulates. Two comparisons
// with equal plans have equal results.
type Plan struct {
	// Program is the version of autotune: results of two versions are not
	// mixed.
	Program string `json:"program"`
	// Policies are specs of model/policy, in the order of the report.
	Policies []string `json:"policies"`
	// References are those that are run beside base, best-static and oracle,
	// which always are: the fixed case (suspend20 or defer20) and
	// oracle-transient. Nil is both.
	References []string `json:"references"`
	// Scenarios are what [scenarios.Load] takes.
	Scenarios []string `json:"scenarios"`
	// Digests identify the contents of Scenarios; [Plan.Prepare] fills them.
	Digests []string `json:"scenario_digests"`
	// Traces are recorded loads, compared after Scenarios.
	Traces []Trace `json:"traces"`
	// Seeds is the number of repetitions, from FirstSeed on.
	Seeds     int    `json:"seeds"`
	FirstSeed uint64 `json:"first_seed"`
	// SLO is the target for the Quantile of the delay in each window.
	SLO      time.Duration `json:"slo_ns"`
	Quantile float64       `json:"slo_quantile"`
	// Interval is the length of a window, and Windows their number in each
	// scenario without a duration of its own.
	Interval time.Duration `json:"interval_ns"`
	Windows  int           `json:"windows"`
	// Skip is the number of windows at the start that are shown but not
	// judged.
	Skip int `json:"skip_windows"`
	// Preset is the machine, a name or path, and PresetDigest its contents.
	Preset       string `json:"preset"`
	PresetDigest string `json:"preset_digest"`
	// Fitted, where not nil, is the machine, made from Preset.
	Fitted  *sim.Preset `json:"fitted_preset"`
	Regime  Regime      `json:"regime"`
	Latency Latency     `json:"latency"`
	// Queues is the number of the host's queues that are simulated, with that
	// share of its load.
	Queues int `json:"queues"`
	// Guarded runs policies behind the guards; otherwise what they propose is
	// written as it is.
	Guarded bool `json:"guarded"`
	// Plant is how the simulated machine differs from the preset.
	Plant Plant `json:"plant"`
	// LoadScale multiplies the scenarios' loads, recorded ones included.
	LoadScale float64 `json:"load_scale"`
	// MaxFlush is the largest flush timeout of the references.
	MaxFlush time.Duration `json:"max_flush_ns"`
}

// prepared is a plan with what it names.
type prepared struct {
	Plan
	preset    *sim.Preset
	scenarios []scenarios.File
	// full is the number of queues of the whole host.
	full int
	// referenceBuild is the build of autotune whose references count; empty is
	// any.
	referenceBuild string
}

const (
	maxSeeds   = 10000
	maxWindows = 1000000
)

// Prepare checks the plan, and fills what follows from the contents of the
// files it names. Every error wraps [ErrPlan] or comes from a file.
func (p *Plan) Prepare() error {
	_, err := p.prepare()
	return err
}

func (p *Plan) prepare() (*prepared, error) {
	bad := func(format string, args ...any) (*prepared, error) {
		return nil, fmt.Errorf("%w: %w", ErrPlan, fmt.Errorf(format, args...))
	}
	switch {
	case len(p.Scenarios)+len(p.Traces) == 0:
		return bad("no scenario is given; there are %s", strings.Join(scenarios.Names(), ", "))
	case p.Seeds < 1 || p.Seeds > maxSeeds:
		return bad("%d seeds are not in 1 to %d", p.Seeds, maxSeeds)
	case p.SLO <= 0:
		return bad("an SLO of %v; a delay target is above 0, for example 250us", p.SLO)
	case !(p.Quantile > 0 && p.Quantile < 1):
		return bad("a quantile of %v; it is between 0 and 1, for example 0.99", p.Quantile)
	case p.Interval < 10*time.Millisecond || p.Interval > time.Minute:
		return bad("windows of %v are not in 10ms to 1m", p.Interval)
	case p.Windows < 1 || p.Windows > maxWindows:
		return bad("%d windows are not in 1 to %d", p.Windows, maxWindows)
	case p.Skip < 0 || p.Skip >= p.Windows:
		return bad("of %s %d cannot be skipped", model.Count(p.Windows, "window"), p.Skip)
	case p.Regime != RegimeSuspend && p.Regime != RegimeSteer && p.Regime != RegimeDeferral:
		return bad("regime %q; there are suspend, steer and deferral", p.Regime)
	case p.Latency != LatencyClient && p.Latency != LatencyServer:
		return bad("latency %q; there are client and server", p.Latency)
	case !(p.LoadScale > 0) || math.IsInf(p.LoadScale, 0):
		return bad("the load cannot be scaled by %v", p.LoadScale)
	case p.MaxFlush < gridStart || p.MaxFlush > 10*time.Millisecond:
		return bad("a largest flush timeout of %v is not in %v to 10ms", p.MaxFlush, gridStart)
	}
	for _, name := range p.References {
		if !slices.Contains(p.optional(), name) {
			return bad("reference %s; beside base, best-static and oracle there are %s", name, strings.Join(p.optional(), " and "))
		}
	}
	if err := p.Plant.check(); err != nil {
		return bad("%w", err)
	}
	preset, err := p.machine()
	if err != nil {
		return nil, err
	}
	out := &prepared{full: preset.Host.Queues}
	// Each queue of a recorded load has its own: there is no host to have a
	// share of.
	if p.Queues < 1 || p.Queues > preset.Host.Queues && len(p.Scenarios) > 0 {
		return bad("%s; preset %s has %d", model.Count(p.Queues, "queue"), p.Preset, preset.Host.Queues)
	}
	if p.Plant.Skew != 0 && p.Queues < 2 {
		return bad("plant skew=%v: one queue has all the load; simulate several", p.Plant.Skew)
	}
	p.PresetDigest = digest(preset)
	p.Digests = nil
	names := map[string]bool{}
	for _, name := range p.Scenarios {
		file, err := scenarios.Load(name)
		if err != nil {
			return nil, err
		}
		if names[file.Name] {
			return bad("scenario %s is given twice", file.Name)
		}
		names[file.Name] = true
		if file.Duration > 0 && file.Duration < time.Duration(p.Skip+1)*p.Interval {
			return bad("scenario %s lasts %v, less than %s of %v", file.Name, file.Duration, model.Count(p.Skip+1, "window"), p.Interval)
		}
		p.Digests = append(p.Digests, file.Digest)
		out.scenarios = append(out.scenarios, file)
	}
	for i := range p.Traces {
		t := &p.Traces[i]
		file, err := scenarios.Given(t.Name, t.About, t.Duration, t.Digest, t.Load)
		switch n := len(t.Load.PerSecond); {
		case err != nil:
			return bad("%w", err)
		case names[t.Name] || t.Name == AllScenarios:
			return bad("scenario %s is given twice, or is what all are called together; give the trace another name", t.Name)
		case t.Duration < time.Duration(p.Skip+1)*p.Interval:
			return bad("trace %s lasts %v, less than %s of %v", t.Name, t.Duration, model.Count(p.Skip+1, "window"), p.Interval)
		case n > 0 && n != p.Queues:
			return bad("trace %s has a load for %s, and %d are simulated", t.Name, model.Count(n, "queue"), p.Queues)
		case p.Plant.Skew != 0:
			return bad("plant skew=%v: the queues of a recording have each its own load", p.Plant.Skew)
		}
		names[t.Name] = true
		out.scenarios = append(out.scenarios, file)
	}
	seen := map[string]bool{}
	for _, spec := range p.Policies {
		if seen[spec] {
			return bad("policy %s is given twice", spec)
		}
		seen[spec] = true
		if isReference(spec) {
			continue
		}
		if _, err := policy.Parse(spec); err != nil {
			return bad("%w", err)
		}
	}
	out.Plan, out.referenceBuild = *p, p.Program
	if out.preset, err = p.Plant.preset(preset, p.Queues); err != nil {
		return bad("%w", err)
	}
	return out, nil
}

// machine returns the preset that is simulated, before the plant changes it.
func (p *Plan) machine() (*sim.Preset, error) {
	if p.Fitted != nil {
		return p.Fitted, p.Fitted.Check()
	}
	return sim.LoadPreset(p.Preset)
}

// runnable refuses a plan whose recorded loads are not at hand.
func (p *Plan) runnable() error {
	for i := range p.Traces {
		if len(p.Traces[i].Load.PerSecond) == 0 {
			return fmt.Errorf("%w: the load of trace %s is not here", ErrPlan, p.Traces[i].Name)
		}
	}
	return nil
}

// windows returns the number of windows of a scenario.
func (p *prepared) windows(f *scenarios.File) int {
	if f.Duration > 0 {
		return max(1, int(f.Duration/p.Interval))
	}
	return p.Windows
}

// scenario returns the i-th scenario with the share of the load that falls on
// the simulated queues.
func (p *prepared) scenario(i int, seed uint64) (sim.Scenario, int, error) {
	f := &p.scenarios[i]
	n := p.windows(f)
	share := float64(p.Queues) / float64(p.full)
	if i >= len(p.Scenarios) {
		share = 1
	}
	s, err := f.Scenario(time.Duration(n)*p.Interval, seed, p.LoadScale*share)
	if err != nil {
		return s, 0, err
	}
	return s, n, nil
}

func (p *prepared) objective() model.Objective {
	return model.Objective{SLO: p.SLO, Quantile: p.Quantile}
}

// contender is who runs in a cell: a reference, or a policy.
type contender struct {
	name string
	// spec is the policy's; empty for a reference.
	spec string
}

// The references.
const (
	refBase            = "base"
	refBestStatic      = "best-static"
	refOracle          = "oracle"
	refOracleTransient = "oracle-transient"
)

// Fixed returns the name of the published case that is run beside the others,
// as what a cautious administrator would set.
func (p *Plan) Fixed() string {
	if p.Regime == RegimeDeferral {
		return "defer20"
	}
	return "suspend20"
}

func isReference(name string) bool {
	return slices.Contains([]string{refBase, refBestStatic, refOracle, refOracleTransient}, name)
}

// optional returns the references that a comparison can do without.
func (p *Plan) optional() []string { return []string{p.Fixed(), refOracleTransient} }

// contenders returns who is compared, references first.
func (p *Plan) contenders() []contender {
	var out []contender
	for _, name := range []string{refBase, p.Fixed(), refBestStatic, refOracle, refOracleTransient} {
		if p.References != nil && slices.Contains(p.optional(), name) && !slices.Contains(p.References, name) {
			continue
		}
		out = append(out, contender{name: name})
	}
	for _, spec := range p.Policies {
		if !isReference(spec) {
			out = append(out, contender{name: spec, spec: spec})
		}
	}
	return out
}

// Contenders returns the names of who is compared, references first.
func (p *Plan) Contenders() []string {
	var out []string
	for _, c := range p.contenders() {
		out = append(out, c.name)
	}
	return out
}

func workers(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}
