package compare

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keptCells is a directory of finished cells, a file each. A comparison that was
// interrupted goes on from them, and one with a policy more simulates only what
// is new. A file is named by all that its cell depends on, so that comparisons
// share a directory and nothing stale is taken.
//
// Without a directory nothing is kept.
type keptCells struct {
	dir string
	// loads are those of the table that references choose by, where they depend
	// on all that is compared.
	loads []float64
}

// kept returns the cells that a directory keeps for the plan.
func (p *prepared) kept(dir string) (keptCells, error) {
	k := keptCells{dir: dir}
	if dir == "" || len(p.Traces) == 0 {
		return k, nil
	}
	var err error
	k.loads, err = p.neededLoads()
	return k, err
}

// keptVersion is that of the files.
const keptVersion = 1

// digest identifies all that the rows of a cell depend on: the plan but for who
// and what else is compared, and what the references choose by.
func (k keptCells) digest(p *prepared, j job) string {
	plan := p.Plan
	plan.Policies, plan.References, plan.Scenarios, plan.Digests, plan.Traces, plan.Seeds, plan.FirstSeed = nil, nil, nil, nil, nil, 0, 0
	var choice []any
	if j.contender.spec == "" {
		plan.Program = p.referenceBuild
		choice = []any{steadyVersion, p.grid(), bestStaticTries, doubtful, k.loads}
	}
	file := &p.scenarios[j.scenario]
	return digest([]any{keptVersion, plan, choice, file.Name, file.Digest, j.seed, j.contender.name, p.preset})
}

// fill sets the cells that the directory has, and returns the indices of the
// others. With journals, those of policies are among them: a kept cell has none.
func (k keptCells) fill(p *prepared, jobs []job, cells []Cell, journals bool) ([]int, error) {
	if k.dir != "" {
		if err := os.MkdirAll(k.dir, 0o755); err != nil {
			return nil, fmt.Errorf("%w: the directory that keeps cells cannot be made: %w", ErrPlan, err)
		}
	}
	var missing []int
	for i, j := range jobs {
		found := false
		if k.dir != "" && (!journals || j.contender.spec == "") {
			var err error
			if cells[i], found, err = k.take(p, j); err != nil {
				return nil, err
			}
		}
		if !found {
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// path returns the file of a cell. Its name starts with what people look for.
func (k keptCells) path(p *prepared, j job) string {
	name := fmt.Sprintf("%s-%d-%s", p.scenarios[j.scenario].Name, j.seed, j.contender.name)
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	// A spec can be longer than a file's name may be.
	const longest = 120
	return filepath.Join(k.dir, name[:min(len(name), longest)]+"-"+k.digest(p, j)[:16]+".jsonl.zst")
}

// take returns the cell, if it is there. What cannot be read (a damaged file)
// counts as absent: it is simulated again.
func (k keptCells) take(p *prepared, j job) (Cell, bool, error) {
	text, err := os.ReadFile(k.path(p, j))
	if errors.Is(err, fs.ErrNotExist) {
		return Cell{}, false, nil
	}
	if err != nil {
		return Cell{}, false, fmt.Errorf("read a kept cell: %w", err)
	}
	cells, err := decodeRows(bytes.NewReader(text))
	if err != nil || len(cells) != 1 {
		return Cell{}, false, nil
	}
	want := key{p.scenarios[j.scenario].Name, j.seed, j.contender.name}
	if cells[0].key() != want || len(cells[0].Windows) != p.windows(&p.scenarios[j.scenario]) {
		return Cell{}, false, nil
	}
	return cells[0], true, nil
}

// keep writes a finished cell as a whole.
func (k keptCells) keep(p *prepared, j job, c Cell) error {
	if k.dir == "" {
		return nil
	}
	text, err := encodeRows([]Cell{c})
	if err == nil {
		err = writeFile(k.path(p, j), text)
	}
	if err != nil {
		return fmt.Errorf("keep a cell: %w", err)
	}
	return nil
}
