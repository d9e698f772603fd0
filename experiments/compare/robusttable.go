package compare

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// The files of a robustness table, beside the directories of the variants.
const (
	RobustTextFile = "robustness.txt"
	RobustCSVFile  = "robustness.csv"
	RobustRowsFile = "robustness.jsonl"
)

// RobustTable is one table of all variants of a directory.
type RobustTable struct {
	// Rows are base, best-static and the policies of each variant, over all of
	// its scenarios.
	Rows []RobustRow
	// Pairs are every two policies of each variant.
	Pairs []RobustPair
}

// RobustRow is one contender in one variant.
type RobustRow struct {
	Kind    string `json:"kind"` // "robustness"
	Variant string `json:"variant"`
	// Comparison says in a line what was compared.
	Comparison string `json:"comparison"`
	Summary
}

// RobustPair is one policy against another in one variant.
type RobustPair struct {
	Kind    string `json:"kind"` // "robustness_pair"
	Variant string `json:"variant"`
	Comparison
}

// ReadRobustTable reads the table of a directory of whole variants.
func ReadRobustTable(dir string) (RobustTable, error) {
	var out RobustTable
	r, err := ReadRobustness(dir)
	if err != nil {
		return out, err
	}
	for _, name := range r.Variants {
		sub := filepath.Join(dir, name)
		m, err := ReadManifest(sub)
		if err != nil {
			return out, err
		}
		names := []string{refBase, refBestStatic}
		policies := map[string]bool{}
		for _, c := range m.Plan.contenders() {
			if c.spec != "" {
				names = append(names, c.name)
				policies[c.name] = true
			}
		}
		rows, err := Collect([]string{sub}, names, false)
		if err != nil {
			return out, err
		}
		for _, row := range rows {
			out.Rows = append(out.Rows, RobustRow{"robustness", name, row.Comparison, row.Summary})
		}
		pairs, err := readComparisons(filepath.Join(sub, SummaryFile))
		if err != nil {
			return out, err
		}
		for _, c := range pairs {
			if c.Scenario == rows[0].Scenario && policies[c.A] && policies[c.B] {
				out.Pairs = append(out.Pairs, RobustPair{"robustness_pair", name, c})
			}
		}
	}
	return out, nil
}

func readComparisons(path string) ([]Comparison, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, notDirectory(err, "read the comparisons")
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	var out []Comparison
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Kind string `json:"kind"`
			Comparison
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, notDirectory(err, "%s:%d", path, n)
		}
		if line.Kind == "comparison" {
			out = append(out, line.Comparison)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, notDirectory(err, "read %s", path)
	}
	return out, nil
}

// WriteText writes the table for people.
func (t *RobustTable) WriteText(w io.Writer) error {
	var rows []Collected
	for _, r := range t.Rows {
		rows = append(rows, Collected{"collected", r.Variant, r.Comparison, r.Summary})
	}
	var b bytes.Buffer
	if err := WriteCollected(&b, rows, false); err != nil {
		return err
	}
	if len(t.Pairs) == 0 {
		_, err := w.Write(b.Bytes())
		return err
	}
	fmt.Fprintf(&b, "\npolicies against each other (first the violating windows beyond 1%%, then CPU; a win or a loss only where the paired 90%% interval excludes zero)\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "variant\tpolicy\tagainst\toutcome\tby\tviolating windows beyond 1%, points\tCPU %")
	for _, p := range t.Pairs {
		by := p.By
		if by == "" {
			by = "-"
		}
		fmt.Fprintln(table, strings.Join([]string{
			p.Variant, p.A, p.B, string(p.Outcome), by, interval(p.MoreViolating, 100, 1), signed(p.CostRatio),
		}, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteCSV writes a row per contender and variant.
func (t *RobustTable) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(append([]string{"variant"}, summaryHeader()...)); err != nil {
		return err
	}
	for i := range t.Rows {
		if err := c.Write(append([]string{t.Rows[i].Variant}, t.Rows[i].row()...)); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// WriteJSON writes a line per row, then one per pair.
func (t *RobustTable) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for i := range t.Rows {
		if err := e.Encode(&t.Rows[i]); err != nil {
			return fmt.Errorf("encode a row: %w", err)
		}
	}
	for i := range t.Pairs {
		if err := e.Encode(&t.Pairs[i]); err != nil {
			return fmt.Errorf("encode a pair: %w", err)
		}
	}
	return nil
}

// WriteFiles writes the table in all its forms.
func (t *RobustTable) WriteFiles(dir string) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{{RobustTextFile, t.WriteText}, {RobustCSVFile, t.WriteCSV}, {RobustRowsFile, t.WriteJSON}} {
		var out bytes.Buffer
		if err := f.write(&out); err != nil {
			return fmt.Errorf("make %s: %w", f.name, err)
		}
		if err := writeFile(filepath.Join(dir, f.name), out.Bytes()); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
