package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrBadTable is wrapped by [ReadTable] for a file that is not such a table.
var ErrBadTable = errors.New("not a benchmark table")

// tableHeader is the header of the published table.
const tableHeader = "testcase,load,qps,avglat_us,p95_us,p99_us,cpu_pct,cpq,ipq"

// CyclesScale is what the published table's cycles per query must be
// multiplied by: they are from 10 s of counting over 30 s of queries.
const CyclesScale = 3

// Cell is one row of a benchmark table: a case at a load. The columns are the
// published ones, Cycles on their scale; see [CyclesScale].
type Cell struct {
	Case, Load              string
	QPS, Avg, P95, P99, CPU float64
	Cycles                  float64
}

// Column is one measured column of a table.
type Column struct {
	Name  string
	Value func(Cell) float64
}

// Columns returns the measured columns in the table's order.
func Columns() []Column {
	return []Column{
		{"qps", func(c Cell) float64 { return c.QPS }},
		{"avg", func(c Cell) float64 { return c.Avg }},
		{"p95", func(c Cell) float64 { return c.P95 }},
		{"p99", func(c Cell) float64 { return c.P99 }},
		{"cpu", func(c Cell) float64 { return c.CPU }},
		{"cpq", func(c Cell) float64 { return c.Cycles }},
	}
}

// ReadTable reads a table with the header of the published one.
func ReadTable(r io.Reader) ([]Cell, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	if len(rows) == 0 || strings.Join(rows[0], ",") != tableHeader {
		return nil, fmt.Errorf("the first line is not %q: %w", tableHeader, ErrBadTable)
	}
	cells := make([]Cell, 0, len(rows)-1)
	for i, row := range rows[1:] {
		cell := Cell{Case: row[0], Load: row[1]}
		if _, err := CaseByName(cell.Case); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		if _, err := ParseLoad(cell.Load); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		for j, to := range []*float64{&cell.QPS, &cell.Avg, &cell.P95, &cell.P99, &cell.CPU, &cell.Cycles} {
			v, err := strconv.ParseFloat(row[j+2], 64)
			if err != nil || !(v > 0) {
				return nil, fmt.Errorf("line %d, column %s: %q is not a positive number: %w",
					i+2, rows[0][j+2], row[j+2], ErrBadTable)
			}
			*to = v
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// WriteTable writes cells with the header of the published table. The column
// ipq stays empty: there is no model of instructions.
func WriteTable(w io.Writer, cells []Cell) error {
	var b strings.Builder
	b.WriteString(tableHeader + "\n")
	for _, c := range cells {
		fmt.Fprintf(&b, "%s,%s,%.0f,%.1f,%.1f,%.1f,%.1f,%.0f,\n", c.Case, c.Load, c.QPS, c.Avg, c.P95, c.P99, c.CPU, c.Cycles)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Cell returns the result as a row of a table.
func (r *Result) Cell(load string) Cell {
	return Cell{
		Case: r.Case, Load: load, QPS: r.QPS, Avg: r.AvgUs, P95: r.P95Us, P99: r.P99Us,
		CPU: r.CPUPercent, Cycles: r.CyclesPerQuery / CyclesScale,
	}
}
