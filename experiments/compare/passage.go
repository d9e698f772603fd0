package compare

import (
	"context"

	"autotune/model"
	"autotune/model/sim"
	"autotune/tuner"
)

// passage is a cell in the making: it can be left after any window and taken up
// again later, or never, when what is known of it is enough.
type passage struct {
	p      *prepared
	host   *sim.Simulator
	driver driver
	tally  *tally
	active model.Config
	cell   *Cell
	// windows is how many the cell will have, and violating how many of those
	// judged so far violate.
	windows, violating int
}

// begin returns a cell's passage before its first window.
func (p *prepared) begin(cell *Cell, s sim.Scenario, windows int, seed uint64, start model.Settings, drive func(*sim.Simulator, *tally) (driver, error), journal tuner.Journal) (*passage, error) {
	host, err := sim.New(p.options(p.host(start), s.Load, seed, 0))
	if err != nil {
		return nil, err
	}
	t := &tally{cell: cell, next: journal}
	d, err := drive(host, t)
	if err != nil {
		return nil, err
	}
	cell.Windows = make([]Window, 0, windows)
	return &passage{p: p, host: host, driver: d, tally: t, cell: cell, windows: windows}, nil
}

// done reports whether the cell has all its windows.
func (a *passage) done() bool { return len(a.cell.Windows) == a.windows }

// step simulates one window.
func (a *passage) step(ctx context.Context) error {
	w := len(a.cell.Windows)
	if err := a.driver.before(ctx, w, a.host); err != nil {
		return err
	}
	sample, err := a.host.Next(ctx)
	if err != nil {
		return err
	}
	now := a.p.truth(a.host)
	window := a.p.window(w, &now)
	window.note(sample.Active, a.active)
	a.active = sample.Active
	a.cell.Dropped += now.dropped
	if w >= a.p.Skip {
		a.cell.Delay.Merge(&now.delay)
		if window.Violating {
			a.violating++
		}
	}
	if err := a.driver.after(ctx, sample); err != nil {
		return err
	}
	window.Refused, window.Exploring = a.tally.refused, a.tally.exploring
	a.tally.refused, a.tally.exploring = 0, 0
	a.cell.Windows = append(a.cell.Windows, window)
	return nil
}

// advance simulates until the cell is done, or until more of its judged windows
// violate than of use.
func (a *passage) advance(ctx context.Context, most int) error {
	for !a.done() && a.violating <= most {
		if err := a.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// simulate fills the cell's windows.
func (p *prepared) simulate(ctx context.Context, cell *Cell, s sim.Scenario, windows int, seed uint64, start model.Settings, drive func(*sim.Simulator, *tally) (driver, error), journal tuner.Journal) error {
	a, err := p.begin(cell, s, windows, seed, start, drive, journal)
	if err != nil {
		return err
	}
	return a.advance(ctx, windows)
}
