package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Collected is a summary of one comparison among several.
type Collected struct {
	Kind      string `json:"kind"` // "collected"
	Directory string `json:"directory"`
	// Comparison says in a line what was compared.
	Comparison string `json:"comparison"`
	Summary
}

// Collect reads the summaries of several comparisons, for one table of them
// all. Of each it takes those over all of its scenarios, or with perScenario
// those of each. Names limits the contenders; without, it is the policies and
// best-static.
func Collect(dirs, names []string, perScenario bool) ([]Collected, error) {
	var out []Collected
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	for _, dir := range dirs {
		m, err := ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		if m.Shards > 0 {
			return nil, fmt.Errorf("%s holds shard %d of %d; merge them first: %w", dir, m.Shard, m.Shards, ErrDirectory)
		}
		all, err := readSummaries(filepath.Join(dir, SummaryFile))
		if err != nil {
			return nil, err
		}
		want := names
		if len(want) == 0 {
			want = []string{refBestStatic}
			for _, c := range m.Plan.contenders() {
				if c.spec != "" {
					want = append(want, c.name)
				}
			}
		}
		several := slices.ContainsFunc(all, func(s Summary) bool { return s.Scenario == AllScenarios })
		for _, s := range all {
			if !slices.Contains(want, s.Contender) || several && !perScenario && s.Scenario != AllScenarios {
				continue
			}
			delete(missing, s.Contender)
			out = append(out, Collected{"collected", dir, m.Plan.describe(), s})
		}
	}
	for _, name := range names {
		if missing[name] {
			return nil, fmt.Errorf("no directory has the contender %s: %w", name, ErrPlan)
		}
	}
	return out, nil
}

func readSummaries(path string) ([]Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, notDirectory(err, "read the summary")
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	var out []Summary
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Kind string `json:"kind"`
			Summary
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, notDirectory(err, "%s:%d", path, n)
		}
		if line.Kind == "summary" {
			out = append(out, line.Summary)
		}
	}
	return out, lines.Err()
}

// WriteCollected writes one table of all, aligned, or as Markdown.
func WriteCollected(w io.Writer, all []Collected, markdown bool) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if markdown {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
			return
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	header := []string{
		"comparison", "scenario", "contender", "violating windows %", "minus best-static, points", "kcycles/request",
		"vs best-static %", "vs oracle %", "saving of oracle's %", "worst window us", "settling", "changes", "per 60 at rest", "refused",
	}
	row(header...)
	if markdown {
		row(slices.Repeat([]string{"---"}, len(header))...)
	}
	for i := range all {
		s := &all[i].Summary
		row(
			filepath.Base(all[i].Directory), s.Scenario, s.Contender, interval(s.ViolatingWindows, 100, 1), interval(s.MoreViolating, 100, 1),
			interval(s.CyclesPerRequest, 1e-3, 2), signed(s.VsBestStatic), signed(s.VsOracle), interval(s.SavingOverBase, 100, 0),
			optional(s.WorstWindow), settlingText(s), interval1(s.Changes, 1), interval1(s.RestChanges, 1), interval1(s.Refused, 1),
		)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	// What each name stands for.
	b.WriteByte('\n')
	seen := map[string]bool{}
	for _, c := range all {
		if !seen[c.Directory] {
			seen[c.Directory] = true
			mark := ""
			if markdown {
				mark = "* "
			}
			fmt.Fprintf(&b, "%s%s: %s\n", mark, filepath.Base(c.Directory), c.Comparison)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
