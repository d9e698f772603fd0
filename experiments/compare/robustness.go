package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RobustnessFile says what a directory of variants holds. It is written last.
const RobustnessFile = "robustness.json"

// Robustness is the content of a [RobustnessFile]: each variant is a comparison
// in a directory of its name.
type Robustness struct {
	Kind     string   `json:"kind"` // "robustness"
	Variants []string `json:"variants"`
	// Shard and Shards name the part; both are 0 where it is all.
	Shard  int `json:"shard"`
	Shards int `json:"shards"`
}

// RunVariants simulates the variants, or of each the shard that the options
// name, into directories below dir. A variant that is there already, of the same
// plan and shard, is not simulated again: what was interrupted goes on.
func RunVariants(ctx context.Context, variants []Variant, dir string, o RunOptions) error {
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	if o.Tables == "" {
		o.Tables = dir
	}
	if err := os.Remove(filepath.Join(dir, RobustnessFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace what the directory says of itself: %w", err)
	}
	r := Robustness{Kind: "robustness", Shard: o.Shard, Shards: o.Shards}
	for n, v := range variants {
		r.Variants = append(r.Variants, v.Name)
		sub := filepath.Join(dir, v.Name)
		o.Progress = func(text string) { progress(fmt.Sprintf("%s (%d of %d): %s", v.Name, n+1, len(variants), text)) }
		if there(sub, v.Plan, o.Shard, o.Shards) {
			continue
		}
		plan := v.Plan
		cells, err := Run(ctx, &plan, o)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if err := keepVariant(sub, plan, o.Shard, o.Shards, cells); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	return writeRobustness(dir, r)
}

// there reports whether a directory holds the plan's cells, undamaged.
func there(dir string, plan Plan, shard, shards int) bool {
	m, _, err := ReadRaw(dir)
	if err != nil || m.Shard != shard || m.Shards != shards || len(differences(m.Plan, plan)) > 0 {
		return false
	}
	if shards > 0 {
		return true
	}
	_, err = os.Stat(filepath.Join(dir, SummaryFile))
	return err == nil
}

// keepVariant writes the rows of a variant, and its report where it is whole.
func keepVariant(dir string, plan Plan, shard, shards int, cells []Cell) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of a variant: %w", err)
	}
	if shards == 0 {
		r, err := NewReport(plan, cells)
		if err != nil {
			return err
		}
		if err := r.WriteFiles(dir); err != nil {
			return err
		}
	}
	return WriteRaw(dir, plan, shard, shards, cells)
}

func writeRobustness(dir string, r Robustness) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the variants: %w", err)
	}
	if err := writeFile(filepath.Join(dir, RobustnessFile), append(text, '\n')); err != nil {
		return fmt.Errorf("write the variants: %w", err)
	}
	return nil
}

// ReadRobustness reads what a directory of variants says of itself. The error
// wraps [ErrDirectory] and os.ErrNotExist where it is none.
func ReadRobustness(dir string) (Robustness, error) {
	var r Robustness
	path := filepath.Join(dir, RobustnessFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return r, notDirectory(err, "%s has no %s", dir, RobustnessFile)
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Kind != "robustness" || len(r.Variants) == 0 {
		return r, notDirectory(err, "%s does not name variants", path)
	}
	return r, nil
}

// MergeVariants joins shards of variants, variant by variant, into out. Unless
// force is set, other results that are there make an error that wraps
// [ErrOccupied].
func MergeVariants(dirs []string, out string, force bool) error {
	var first Robustness
	for i, dir := range dirs {
		r, err := ReadRobustness(dir)
		if err != nil {
			return err
		}
		if i == 0 {
			first = r
		}
		if !slices.Equal(r.Variants, first.Variants) {
			return fmt.Errorf("%s has the variants %s, %s has %s: %w", dir, strings.Join(r.Variants, ", "), dirs[0], strings.Join(first.Variants, ", "), ErrShards)
		}
	}
	// All are checked before the first is written.
	type whole struct {
		Variant
		cells []Cell
	}
	var merged []whole
	var variants []Variant
	for _, name := range first.Variants {
		var parts []string
		for _, dir := range dirs {
			parts = append(parts, filepath.Join(dir, name))
		}
		plan, cells, err := Merge(parts)
		if err != nil {
			return err
		}
		v := Variant{name, plan}
		merged, variants = append(merged, whole{v, cells}), append(variants, v)
	}
	if !force {
		if err := VariantsFit(out, variants, 0, 0); err != nil {
			return err
		}
	}
	for i, name := range first.Variants {
		if err := keepVariant(filepath.Join(out, name), merged[i].Plan, 0, 0, merged[i].cells); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return writeRobustness(out, Robustness{Kind: "robustness", Variants: first.Variants})
}
