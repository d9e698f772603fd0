package compare

import (
	"context"
	"fmt"
	"math"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
	"autotune/tuner"
)

// Cell is one contender in one scenario with one seed.
type Cell struct {
	Scenario  string `json:"scenario"`
	Seed      uint64 `json:"seed"`
	Contender string `json:"contender"`
	// Setting is what a contender that keeps one setting kept; null otherwise.
	Setting *model.Settings `json:"setting"`
	// Delay is the distribution over all judged windows.
	Delay model.Histogram `json:"delay_histogram"`
	// Verdicts counts the journalled decisions by verdict, and Refusals those
	// refused by guard.
	Verdicts map[model.Verdict]int `json:"decisions_by_verdict"`
	Refusals map[string]int        `json:"refusals_by_guard"`
	// Dropped packets found the ring full.
	Dropped uint64 `json:"dropped_packets"`
	// Windows are in order.
	Windows []Window `json:"-"`
}

// Window is what happened in one window of a cell, over all queues.
type Window struct {
	Index int `json:"window"`
	// Due is the number of requests that clients wanted to send, Served that
	// of the responses that they got.
	Due    uint64 `json:"due"`
	Served uint64 `json:"served"`
	// Quantile is the SLO quantile of the delay in nanoseconds, and Median its
	// median; null where no request was served.
	Quantile *int64 `json:"quantile_ns"`
	Median   *int64 `json:"p50_ns"`
	// Violating: the quantile was above the SLO, or less than 97% of the due
	// requests were served.
	Violating bool `json:"violating"`
	// Late is the number of requests above the SLO.
	Late float64 `json:"late"`
	// Cycles are those of all cores.
	Cycles  float64 `json:"cycles"`
	Packets uint64  `json:"packets"`
	// Flush is the mean flush timeout over the queues, in nanoseconds, zero
	// for those with plain interrupts; Suspended the number of queues that may
	// suspend.
	Flush     float64 `json:"flush_ns"`
	Suspended int     `json:"suspended_queues"`
	// Changes is the number of queues whose settings changed before the
	// window, and Steps by how many steps of the grid in sum.
	Changes int     `json:"changes"`
	Steps   float64 `json:"change_steps"`
	// Refused is the number of decisions refused after the window, and
	// Exploring that of moves made to learn.
	Refused   int `json:"refused"`
	Exploring int `json:"exploring"`
}

// driver sets the simulated host. Before is called ahead of window w, after
// with what was seen of it.
type driver interface {
	before(ctx context.Context, w int, s *sim.Simulator) error
	after(ctx context.Context, s model.Sample) error
}

// fixedDriver leaves the host as it is.
type fixedDriver struct{}

func (fixedDriver) before(context.Context, int, *sim.Simulator) error { return nil }
func (fixedDriver) after(context.Context, model.Sample) error         { return nil }

// scheduleDriver sets all queues ahead of each window, as a reference does that
// knows the load.
type scheduleDriver struct {
	queues   int
	settings []model.Settings
}

func (d *scheduleDriver) before(ctx context.Context, w int, s *sim.Simulator) error {
	if w > 0 && d.settings[w] == d.settings[w-1] {
		return nil
	}
	config := make(model.Config, d.queues)
	for q := range d.queues {
		config[sim.SimulatedQueue(q)] = d.settings[w]
	}
	_, err := s.Apply(ctx, config)
	return err
}

func (d *scheduleDriver) after(context.Context, model.Sample) error { return nil }

// stepper decides upon a sample and applies what follows.
type stepper interface {
	Step(context.Context, model.Sample) error
}

// policyDriver lets a policy decide, with or without the guards.
type policyDriver struct {
	loop stepper
}

func (d *policyDriver) before(context.Context, int, *sim.Simulator) error { return nil }
func (d *policyDriver) after(ctx context.Context, s model.Sample) error {
	return d.loop.Step(ctx, s)
}

// tally counts decisions. It implements [tuner.Journal].
type tally struct {
	cell *Cell
	// refused and exploring count since they were last taken.
	refused, exploring int
	next               tuner.Journal
}

func (t *tally) Record(e tuner.Entry) error {
	t.cell.Verdicts[e.Verdict]++
	if e.Verdict == model.VerdictRefused {
		t.cell.Refusals[e.Guard]++
		t.refused++
	}
	if e.Verdict == model.VerdictApplied && e.Purpose == model.PurposeExploration {
		t.exploring++
	}
	if t.next != nil {
		return t.next.Record(e)
	}
	return nil
}

// run simulates one contender.
func (p *prepared) run(ctx context.Context, table *steady, scenario int, seed uint64, c contender, journal tuner.Journal) (Cell, error) {
	fail := func(err error) (Cell, error) {
		if ctx.Err() != nil {
			return Cell{}, ctx.Err()
		}
		return Cell{}, fmt.Errorf("%s, seed %d, %s: %w", p.scenarios[scenario].Name, seed, c.name, err)
	}
	s, windows, err := p.scenario(scenario, seed)
	if err != nil {
		return fail(err)
	}
	switch c.name {
	case refBase:
		cell, err := p.fixedCell(ctx, s, windows, seed, c.name, model.Settings{})
		if err != nil {
			return fail(err)
		}
		return cell, nil
	case p.Fixed():
		published, err := sim.CaseByName(c.name)
		if err != nil {
			return fail(err)
		}
		setting := published.NAPI
		if p.Regime == RegimeSteer {
			setting.BusyPoll = p.at(setting.GROFlushTimeout).BusyPoll
		}
		cell, err := p.fixedCell(ctx, s, windows, seed, c.name, setting)
		if err != nil {
			return fail(err)
		}
		return cell, nil
	case refBestStatic:
		cell, err := p.bestStatic(ctx, table, s, windows, seed)
		if err != nil {
			return fail(err)
		}
		return cell, nil
	case refOracle, refOracleTransient:
		loads := offered(s.Load, p.Queues, windows, p.Interval)
		d := &scheduleDriver{queues: p.Queues}
		for w, load := range loads {
			known := []float64{load}
			if c.name == refOracleTransient && w+1 < windows {
				known = append(known, loads[w+1])
			}
			d.settings = append(d.settings, table.choose(p.SLO, known...))
		}
		cell := p.cell(s, seed, c.name)
		if err := p.simulate(ctx, &cell, s, windows, seed, d.settings[0], func(*sim.Simulator, *tally) (driver, error) { return d, nil }, journal); err != nil {
			return fail(err)
		}
		return cell, nil
	}
	cell := p.cell(s, seed, c.name)
	err = p.simulate(ctx, &cell, s, windows, seed, model.Settings{}, func(host *sim.Simulator, t *tally) (driver, error) {
		pol, err := policy.Parse(seeded(c.spec, seed))
		if err != nil {
			return nil, err
		}
		d := &policyDriver{}
		if !p.Guarded {
			d.loop = newBare(pol, host, p.objective())
			return d, nil
		}
		cpus := map[model.Queue][]int{}
		for q := range p.Queues {
			cpus[sim.SimulatedQueue(q)] = []int{q}
		}
		d.loop, err = tuner.New(tuner.Options{
			Actuator: host, Policy: pol, Journal: t, Objective: p.objective(), CPUs: cpus,
		})
		return d, err
	}, journal)
	if err != nil {
		return fail(err)
	}
	return cell, nil
}

func (p *prepared) cell(s sim.Scenario, seed uint64, name string) Cell {
	return Cell{Scenario: s.Name, Seed: seed, Contender: name, Verdicts: map[model.Verdict]int{}, Refusals: map[string]int{}}
}

// fixedCell simulates one setting throughout.
func (p *prepared) fixedCell(ctx context.Context, s sim.Scenario, windows int, seed uint64, name string, setting model.Settings) (Cell, error) {
	a, err := p.fixedPassage(s, windows, seed, name, setting)
	if err != nil {
		return Cell{}, err
	}
	err = a.advance(ctx, windows)
	return *a.cell, err
}

// fixedPassage is the passage of one setting throughout.
func (p *prepared) fixedPassage(s sim.Scenario, windows int, seed uint64, name string, setting model.Settings) (*passage, error) {
	cell := p.cell(s, seed, name)
	cell.Setting = &setting
	return p.begin(&cell, s, windows, seed, setting, func(*sim.Simulator, *tally) (driver, error) { return fixedDriver{}, nil }, nil)
}

// truth is what happened in a window, of which a sample is a measurement.
type truth struct {
	due, served, packets, dropped uint64
	cycles                        float64
	delay                         model.Histogram
}

func (p *prepared) truth(s *sim.Simulator) truth {
	r := s.Window()
	seconds := r.Span.Seconds()
	t := truth{
		due: uint64(math.Round(r.OfferedQPS * seconds)), served: uint64(math.Round(r.QPS * seconds)),
		packets: r.Packets, dropped: r.Dropped, delay: r.Latency,
		cycles: r.Utilisation * seconds * float64(p.Queues) * p.preset.Host.ClockMHz * 1e6,
	}
	if p.Latency == LatencyServer {
		t.delay = r.Delay
	}
	return t
}

// short reports whether less was served than the load calls for.
func (t *truth) short() bool { return float64(t.served) < minAchieved*float64(t.due) }

func (p *prepared) window(index int, t *truth) Window {
	w := Window{Index: index, Due: t.due, Served: t.served, Cycles: math.Round(t.cycles), Packets: t.packets, Violating: t.short()}
	if t.delay.Count() > 0 {
		q, m := int64(t.delay.Quantile(p.Quantile)), int64(t.delay.Quantile(0.5))
		w.Quantile, w.Median = &q, &m
		w.Violating = w.Violating || time.Duration(q) > p.SLO
		// Where delays are of sampled requests, so is the share of late ones.
		w.Late = math.Round(late(&t.delay, p.SLO)/float64(t.delay.Count())*float64(t.served)*100) / 100
	}
	return w
}

// late returns the number of delays above a limit; those of the bucket that it
// falls into are split in proportion.
func late(h *model.Histogram, limit time.Duration) float64 {
	i := model.HistogramBucket(limit)
	low, high := model.HistogramBounds(i)
	share := float64(high-limit) / float64(high-low)
	return math.Round((float64(h.Above(limit))+share*float64(h.Counts[i]))*100) / 100
}

// note fills what the settings of the window say.
func (w *Window) note(active, before model.Config) {
	for i := range len(active) {
		q := sim.SimulatedQueue(i)
		s := active[q]
		if s.Mode() != model.ModeInterrupts {
			w.Flush += float64(s.GROFlushTimeout) / float64(len(active))
		}
		if s.Mode() == model.ModeSuspension {
			w.Suspended++
		}
		if old, ok := before[q]; ok && old != s {
			w.Changes++
			w.Steps += distance(old, s)
		}
	}
	w.Flush, w.Steps = math.Round(w.Flush), math.Round(w.Steps*1000)/1000
}
