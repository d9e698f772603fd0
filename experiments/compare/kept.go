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
}

// keptVersion is that of the files.
const keptVersion = 1

// cellDigest identifies all that the rows of a cell depend on: the plan but for who
// and what else is compared, and what the references choose by.
func (p *prepared) cellDigest(j job) (string, error) {
	plan := p.Plan
	plan.Policies, plan.References, plan.Scenarios, plan.Digests, plan.Traces, plan.Seeds, plan.FirstSeed = nil, nil, nil, nil, nil, 0, 0
	var choice any
	if j.contender.spec == "" {
		plan.Program = p.referenceBuild
		chosen := []any{steadyVersion, p.grid(), bestStaticTries, doubtful}
		if len(p.Traces) > 0 {
			// The loads of the table depend on all that is compared.
			loads, err := p.neededLoads()
			if err != nil {
				return "", err
			}
			chosen = append(chosen, loads)
		}
		choice = chosen
	}
	file := &p.scenarios[j.scenario]
	return digest([]any{keptVersion, plan, choice, file.Name, file.Digest, j.seed, j.contender.name, p.preset}), nil
}

// fill sets the cells that the directory has, and returns the indices of the
// others. With journals, those of policies are among them: a kept cell has none.
func (k keptCells) fill(p *prepared, jobs []job, cells []Cell, journals bool) ([]int, error) {
	if k.dir != "" {
		if err := os.MkdirAll(k.dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the directory that keeps cells: %w", err)
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
func (k keptCells) path(p *prepared, j job) (string, error) {
	id, err := p.cellDigest(j)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%d-%s", p.scenarios[j.scenario].Name, j.seed, j.contender.name)
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	// A spec can be longer than a file's name may be.
	const longest = 120
	return filepath.Join(k.dir, name[:min(len(name), longest)]+"-"+id[:16]+".jsonl.zst"), nil
}

// take returns the cell, if it is there. What cannot be read (a damaged file)
// counts as absent: it is simulated again.
func (k keptCells) take(p *prepared, j job) (Cell, bool, error) {
	path, err := k.path(p, j)
	if err != nil {
		return Cell{}, false, err
	}
	text, err := os.ReadFile(path)
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
	path, err := k.path(p, j)
	var text []byte
	if err == nil {
		text, err = encodeRows([]Cell{c})
	}
	if err == nil {
		err = writeFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("keep a cell: %w", err)
	}
	return nil
}
