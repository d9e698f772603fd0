package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"autotune/tuner"
)

// RunOptions say how a plan is simulated, none of which changes a result, unless
// AnyBuild is set without reason.
type RunOptions struct {
	// Shard and Shards name a part of the plan's cells, 1 to Shards; zero
	// Shards is all.
	Shard, Shards int
	// Table is the file that keeps the table of steady states, and Tables a
	// directory that keeps one for each machine, target quantile and length of
	// window; both empty keep none.
	Table, Tables string
	// Kept, where not empty, is a directory that keeps finished cells: those
	// that it has are taken from there, and the others added as they end.
	Kept string
	// AnyBuild takes references, and tables of steady states, from any build
	// of autotune that was told so too: who works on a policy knows that the
	// simulator is the same.
	AnyBuild bool
	// Workers is the number of goroutines; zero is one per usable CPU.
	Workers int
	// Progress, when not nil, is told what is going on, one call at a time.
	Progress func(string)
	// Journal, when not nil, returns where the decisions of a cell go.
	Journal func(scenario string, seed uint64, contender string) (tuner.Journal, error)
}

// job is one cell of a plan.
type job struct {
	scenario  int
	seed      uint64
	contender contender
}

// jobs returns the plan's cells in the order of the report.
func (p *prepared) jobs() []job {
	var out []job
	for s := range p.scenarios {
		for n := range p.Seeds {
			for _, c := range p.contenders() {
				out = append(out, job{s, p.FirstSeed + uint64(n), c})
			}
		}
	}
	return out
}

// deal returns which of n cells belong to a shard. Cells are dealt like a
// shuffled pack, so that shards take about the same time whatever the pattern
// of costly cells.
func deal(n, shard, shards int) []int {
	order := rand.New(rand.NewPCG(1, 1)).Perm(n)
	var out []int
	for i := range n {
		if shards == 0 || order[i]%shards == shard-1 {
			out = append(out, i)
		}
	}
	return out
}

// Run simulates the plan, or the shard of it that the options name, and returns
// the cells in the plan's order. It fills what of the plan follows from files.
func Run(ctx context.Context, plan *Plan, o RunOptions) ([]Cell, error) {
	if o.Shards < 0 || o.Shards > 0 && (o.Shard < 1 || o.Shard > o.Shards) {
		return nil, fmt.Errorf("%w: there is no shard %d of %d", ErrPlan, o.Shard, o.Shards)
	}
	p, err := plan.prepare()
	if err != nil {
		return nil, err
	}
	if err := plan.runnable(); err != nil {
		return nil, err
	}
	if o.AnyBuild {
		p.referenceBuild = ""
	}
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	file := o.Table
	if o.Tables != "" {
		file = filepath.Join(o.Tables, "steady-"+p.steadyKey()[:12]+".json")
	}
	if file != "" {
		// Before what takes long, and would be lost.
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w: the table of steady states is to be kept in %s, which is no directory", ErrPlan, filepath.Dir(file))
		}
	}
	var mine []job
	all := p.jobs()
	for _, i := range deal(len(all), o.Shard, o.Shards) {
		mine = append(mine, all[i])
	}
	cells := make([]Cell, len(mine))
	kept, err := p.kept(o.Kept)
	if err != nil {
		return nil, err
	}
	missing, err := kept.fill(p, mine, cells, o.Journal != nil)
	if err != nil || len(missing) == 0 {
		return cells, err
	}
	if n := len(mine) - len(missing); n > 0 {
		progress(fmt.Sprintf("cells: %d of %d kept from before", n, len(mine)))
	}
	table, err := p.loadSteady(ctx, file, workers(o.Workers), progress)
	if err != nil {
		return nil, err
	}
	err = parallel(ctx, len(missing), workers(o.Workers), func(n int) error {
		i := missing[n]
		j := mine[i]
		var journal tuner.Journal
		if o.Journal != nil && j.contender.spec != "" {
			var err error
			if journal, err = o.Journal(p.scenarios[j.scenario].Name, j.seed, j.contender.name); err != nil {
				return err
			}
		}
		var err error
		cells[i], err = p.run(ctx, table, j.scenario, j.seed, j.contender, journal)
		if c, ok := journal.(interface{ Close() error }); ok {
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			return err
		}
		return kept.keep(p, j, cells[i])
	}, func(done int) {
		progress(fmt.Sprintf("cells: %d of %d", len(mine)-len(missing)+done, len(mine)))
	})
	if err != nil {
		return nil, err
	}
	return cells, nil
}
