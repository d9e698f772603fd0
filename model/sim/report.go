package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"
)

var nan = math.NaN()

// ColumnError is how far a column of a simulated table is from a measured one,
// over the cases of one load, or of all.
type ColumnError struct {
	// Load is empty for all loads together.
	Load   string `json:"load"`
	Column string `json:"column"`
	// Median, Mean and Max are of the absolute relative errors; Worst is the
	// cell of the largest.
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	Max    float64 `json:"max"`
	Worst  string  `json:"worst"`
	// Spearman is the rank correlation over cases, NaN for all loads together.
	Spearman float64 `json:"-"`
	Cells    int     `json:"cells"`
}

// Errors compares the cells that both tables have, by load and over all.
func Errors(got, want []Cell) []ColumnError {
	type pair struct{ got, want Cell }
	var pairs []pair
	var loads []string
	for _, w := range want {
		for _, g := range got {
			if g.Case == w.Case && g.Load == w.Load {
				pairs = append(pairs, pair{g, w})
				if !slices.Contains(loads, w.Load) {
					loads = append(loads, w.Load)
				}
			}
		}
	}
	var out []ColumnError
	for _, load := range append(loads, "") {
		for _, column := range Columns() {
			e := ColumnError{Load: load, Column: column.Name, Spearman: nan}
			var errs, x, y []float64
			for _, p := range pairs {
				if load != "" && p.want.Load != load {
					continue
				}
				g, w := column.Value(p.got), column.Value(p.want)
				relative := math.Abs(g/w - 1)
				errs, x, y = append(errs, relative), append(x, g), append(y, w)
				if relative >= e.Max {
					e.Max, e.Worst = relative, p.want.Case+" at "+p.want.Load
				}
			}
			if len(errs) == 0 {
				continue
			}
			e.Cells = len(errs)
			e.Mean = stat.Mean(errs, nil)
			e.Median = median(errs)
			if load != "" && len(x) > 2 {
				e.Spearman = Spearman(x, y)
			}
			out = append(out, e)
		}
	}
	return out
}

// Spearman returns the rank correlation of two samples of equal length, ties
// with their mean rank; NaN when one of them is constant.
func Spearman(x, y []float64) float64 { return stat.Correlation(ranks(x), ranks(y), nil) }

func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j-1) / 2
		}
		i = j
	}
	return out
}

// WriteErrors writes the errors as an aligned table, in percent.
func WriteErrors(w io.Writer, errors []ColumnError) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "load\tcolumn\tmedian %\tmean %\tmax %\tworst cell\tSpearman")
	for _, e := range errors {
		load, rank := e.Load, "-"
		if load == "" {
			load = "all"
		}
		if !math.IsNaN(e.Spearman) {
			rank = fmt.Sprintf("%.3f", e.Spearman)
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%.1f\t%s\t%s\n", load, e.Column, 100*e.Median, 100*e.Mean, 100*e.Max, e.Worst, rank)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Cells returns the rows' cells.
func Cells(rows []Row) []Cell {
	out := make([]Cell, len(rows))
	for i := range rows {
		out[i] = rows[i].Cell
	}
	return out
}
