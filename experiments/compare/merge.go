package compare

import (
	"errors"
	"fmt"
	"strings"
)

// ErrShards is wrapped by errors that say why shards do not make a whole.
var ErrShards = errors.New("the shards do not make a whole")

// Merge reads the directories of all shards of one comparison, in any order,
// and returns its cells in the plan's order. It names each shard that is
// missing, that is there twice, or that is of another plan, and how it
// differs.
func Merge(dirs []string) (Plan, []Cell, error) {
	refuse := func(format string, args ...any) (Plan, []Cell, error) {
		return Plan{}, nil, fmt.Errorf("%w: %w", fmt.Errorf(format, args...), ErrShards)
	}
	if len(dirs) == 0 {
		return refuse("no directory is given")
	}
	first, err := ReadManifest(dirs[0])
	if err != nil {
		return Plan{}, nil, err
	}
	if first.Shards == 0 {
		return refuse("%s holds a whole comparison, not a shard", dirs[0])
	}
	from := make(map[int]string)
	for _, dir := range dirs {
		m, err := ReadManifest(dir)
		if err != nil {
			return Plan{}, nil, err
		}
		if m.Shards == 0 {
			return refuse("%s holds a whole comparison, not a shard", dir)
		}
		if m.Shards != first.Shards {
			return refuse("%s is shard %d of %d, %s of %d", dir, m.Shard, m.Shards, dirs[0], first.Shards)
		}
		if differ := differences(first.Plan, m.Plan); len(differ) > 0 {
			return refuse("%s is of another comparison than %s: %s", dir, dirs[0], strings.Join(differ, "; "))
		}
		if m.Shard < 1 || m.Shard > m.Shards {
			return refuse("%s calls itself shard %d of %d", dir, m.Shard, m.Shards)
		}
		if other, dup := from[m.Shard]; dup {
			return refuse("%s and %s are both shard %d of %d", other, dir, m.Shard, m.Shards)
		}
		from[m.Shard] = dir
	}
	var missing []string
	for i := range first.Shards {
		if from[i+1] == "" {
			missing = append(missing, fmt.Sprintf("%d/%d", i+1, first.Shards))
		}
	}
	if len(missing) > 0 {
		return refuse("missing: shard %s", strings.Join(missing, ", "))
	}
	plan := first.Plan
	keys, err := plan.keys()
	if err != nil {
		return Plan{}, nil, err
	}
	out := make([]Cell, len(keys))
	for shard := range first.Shards {
		dir := from[shard+1]
		_, cells, err := ReadRaw(dir)
		if err != nil {
			return Plan{}, nil, err
		}
		want := deal(len(keys), shard+1, first.Shards)
		if len(cells) != len(want) {
			return refuse("%s has %d cells, shard %d/%d has %d", dir, len(cells), shard+1, first.Shards, len(want))
		}
		for n, i := range want {
			if got := cells[n].key(); got != keys[i] {
				return refuse("%s has the cell %v where shard %d/%d has %v", dir, got, shard+1, first.Shards, keys[i])
			}
			out[i] = cells[n]
		}
	}
	return plan, out, nil
}

// key names a cell.
type key struct {
	scenario  string
	seed      uint64
	contender string
}

func (k key) String() string { return fmt.Sprintf("%s, seed %d, %s", k.scenario, k.seed, k.contender) }

func (c *Cell) key() key { return key{c.Scenario, c.Seed, c.Contender} }

// keys returns the plan's cells in the order of the report. The scenarios must
// not have changed since.
func (p *Plan) keys() ([]key, error) {
	now := *p
	ready, err := now.prepare()
	if err != nil {
		return nil, err
	}
	if differ := differences(*p, now); len(differ) > 0 {
		return nil, fmt.Errorf("the plan's files have changed since: %s: %w", strings.Join(differ, "; "), ErrShards)
	}
	var out []key
	for _, j := range ready.jobs() {
		out = append(out, key{ready.scenarios[j.scenario].Name, j.seed, j.contender.name})
	}
	return out, nil
}

// differences lists the fields in which two plans differ, with both values.
func differences(a, b Plan) []string {
	x, y := a.fields(), b.fields()
	var out []string
	for _, name := range differing(a, b) {
		out = append(out, fmt.Sprintf("%s is %s and %s", name, y[name], x[name]))
	}
	return out
}
