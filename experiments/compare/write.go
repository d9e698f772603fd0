package compare

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
)

// The files of a report, beside the raw rows.
const (
	CellsCSVFile   = "cells.csv"
	CellsFile      = "cells.jsonl"
	SummaryCSVFile = "summary.csv"
	SummaryFile    = "summary.jsonl"
	TextFile       = "report.txt"
	HTMLFile       = "report.html"
)

// WriteFiles writes the report in all its forms into a directory that exists.
func (r *Report) WriteFiles(dir string) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{CellsCSVFile, r.WriteCellsCSV}, {CellsFile, r.WriteCells}, {SummaryCSVFile, r.WriteSummaryCSV},
		{SummaryFile, r.WriteSummary}, {TextFile, r.WriteText}, {HTMLFile, r.WriteHTML},
	} {
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
