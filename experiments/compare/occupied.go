package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOccupied is wrapped by errors that say what a directory holds, which would
// be overwritten.
var ErrOccupied = errors.New("name another directory with -o, or overwrite it with --force")

func occupied(format string, args ...any) error {
	return fmt.Errorf("%s; %w", fmt.Sprintf(format, args...), ErrOccupied)
}

// Holds reports whether dir holds all of this part of a prepared plan (0 of 0 is
// the whole). The error, which wraps [ErrOccupied], says what else is there. A
// table of steady states alone, or rows of a run that did not finish, are no
// obstacle.
func Holds(dir string, plan Plan, shard, shards int) (bool, error) {
	m, err := ReadManifest(dir)
	switch {
	case errors.Is(err, ErrDirectory) && !present(dir, ManifestFile):
		for _, name := range []string{RobustnessFile, HTMLFile, TextFile, SummaryFile, CellsFile} {
			if present(dir, name) {
				return false, occupied("%s has a %s that is not of this comparison", dir, name)
			}
		}
		return false, nil
	case err != nil:
		return false, occupied("%s has a %s that cannot be read", dir, ManifestFile)
	}
	if err := m.sameAs(dir, plan, shard, shards); err != nil {
		return false, err
	}
	return there(dir, plan, shard, shards), nil
}

// sameAs returns an error that wraps [ErrOccupied] unless the manifest of dir is
// of this part of this plan.
func (m *Manifest) sameAs(dir string, plan Plan, shard, shards int) error {
	if names := differing(m.Plan, plan); len(names) > 0 {
		return occupied("%s holds another comparison: %s differ", dir, strings.Join(names, ", "))
	}
	if m.Shard != shard || m.Shards != shards {
		return occupied("%s holds %s of this comparison, not %s", dir, part(m.Shard, m.Shards), part(shard, shards))
	}
	return nil
}

func part(shard, shards int) string {
	if shards == 0 {
		return "all"
	}
	return fmt.Sprintf("shard %d of %d", shard, shards)
}

// VariantsFit returns nil where the variants may be run, or gone on with, in dir,
// and otherwise an error that wraps [ErrOccupied] and says what is there.
func VariantsFit(dir string, variants []Variant, shard, shards int) error {
	if present(dir, ManifestFile) {
		return occupied("%s holds a comparison, and not variants", dir)
	}
	names := make([]string, len(variants))
	for i, v := range variants {
		names[i] = v.Name
	}
	if r, err := ReadRobustness(dir); err == nil {
		for _, name := range r.Variants {
			if !slices.Contains(names, name) {
				return occupied("%s holds a table that has the variant %s too", dir, name)
			}
		}
	}
	for _, v := range variants {
		sub := filepath.Join(dir, v.Name)
		m, err := ReadManifest(sub)
		if err != nil {
			continue // it did not finish
		}
		if err := m.sameAs(sub, v.Plan, shard, shards); err != nil {
			return err
		}
	}
	return nil
}

func present(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// fields are what a plan decides, by their names in the manifest.
func (p *Plan) fields() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if text, err := json.Marshal(p); err == nil {
		_ = json.Unmarshal(text, &out)
	}
	return out
}

// differing names the fields in which two plans differ.
func differing(a, b Plan) []string {
	x, y := a.fields(), b.fields()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if string(x[name]) != string(y[name]) {
			out = append(out, name)
		}
	}
	return out
}
