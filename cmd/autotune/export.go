package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"autotune/model"
	"autotune/probe/trace"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

type exportCmd struct {
	traceInput

	Format string `help:"csv or parquet." enum:"csv,parquet" default:"csv"`
	Table  string `help:"What a row is: queues (one queue in one window), histograms (one bucket of one of them), cpus, apps (one process in one window), decisions, or where single events were recorded: polls, waits, requests, or events (a span in which they were)." enum:"queues,histograms,cpus,apps,decisions,polls,waits,requests,events" default:"queues"`
	Output string `short:"o" help:"Write to this file, which must not exist; - is standard output." default:"-" placeholder:"FILE"`
	JSON   bool   `help:"Say as an object what was written; needs -o FILE." name:"json"`
}

// exported is what was written, in the output.
type exported struct {
	Kind    string     `json:"kind"` // "exported"
	File    string     `json:"file"`
	Table   string     `json:"table"`
	Format  string     `json:"format"`
	Rows    uint64     `json:"rows"`
	Skipped int        `json:"skipped"`
	Trace   traceState `json:"trace"`
}

func (e exported) String() string {
	text := fmt.Sprintf("%s: %s of %s as %s", e.File, model.Count(e.Rows, "row"), e.Table, e.Format)
	if e.Skipped > 0 {
		text += "; skipped " + model.Count(e.Skipped, "damaged place")
	}
	return text
}

func (c *exportCmd) check(std streams) error {
	switch {
	case c.Output == "-" && c.JSON:
		return errors.New("--json: standard output has the table; name a file with -o")
	case c.Output == "-" && c.Format == "parquet" && isTerminal(std.out):
		return errors.New("parquet is not for a terminal; name a file with -o, or pipe it on")
	}
	return nil
}

// Run implements the command.
func (c *exportCmd) Run(ctx context.Context, std streams) (err error) {
	if err := c.check(std); err != nil {
		return usageError(err)
	}
	r, err := c.open()
	if err != nil {
		return usageError(err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out, finish, err := c.create(std)
	if err != nil {
		return err
	}
	p := newLateProgress(std.err, "exporting "+c.name())
	rows, err := c.export(ctx, r, out, p)
	p.clear()
	if err := finish(err); err != nil {
		return c.readError(err)
	}
	done := exported{
		Kind: "exported", File: c.Output, Table: c.Table, Format: c.Format, Rows: rows,
		Skipped: len(r.Stats().Damaged), Trace: stateOf(r.Stats(), nil),
	}
	if rows == 0 && slices.Contains([]string{"polls", "waits", "requests", "events"}, c.Table) {
		fmt.Fprintf(std.err, "%s has no single events of this kind; record --events writes them\n", c.name())
	}
	switch {
	case c.Output == "-":
		_, err = fmt.Fprint(std.err, strings.TrimPrefix(done.Trace.text(c.name())+"\n", "\n"))
		return err
	case c.JSON:
		return printJSON(std.out, done)
	}
	_, err = fmt.Fprintln(std.out, done.String()+done.Trace.text(c.name()))
	return err
}

// create returns where to write, and what ends it: a file that could not be
// finished is removed.
func (c *exportCmd) create(std streams) (io.Writer, func(error) error, error) {
	if c.Output == "-" {
		return std.out, func(err error) error { return err }, nil
	}
	file, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("-o: %w", createError(c.Output, err)))
	}
	return file, func(err error) error {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(c.Output))
		}
		return err
	}, nil
}

func (c *exportCmd) export(ctx context.Context, r *trace.Reader, out io.Writer, p *lateProgress) (uint64, error) {
	write, ok := exportTables()[c.Table]
	if !ok {
		return 0, fmt.Errorf("there is no table %q", c.Table)
	}
	return write(ctx, r, out, c.Format, p)
}

// tableWriter writes one table of a trace and returns how many rows it has.
type tableWriter func(ctx context.Context, r *trace.Reader, out io.Writer, format string, p *lateProgress) (uint64, error)

// exportTables are the tables by the names that --table takes.
func exportTables() map[string]tableWriter {
	return map[string]tableWriter{
		"queues": tableOf(rowMaker.queues), "histograms": tableOf(rowMaker.histograms), "cpus": tableOf(rowMaker.cpus),
		"apps": tableOf(rowMaker.apps), "decisions": tableOf(rowMaker.decisions), "polls": tableOf(rowMaker.polls),
		"waits": tableOf(rowMaker.waits), "requests": tableOf(rowMaker.requests), "events": tableOf(rowMaker.eventSpans),
	}
}

func tableOf[T any](rowsOf func(rowMaker, *trace.Record) ([]T, error)) tableWriter {
	return func(ctx context.Context, r *trace.Reader, out io.Writer, format string, p *lateProgress) (uint64, error) {
		m := newRowMaker(r.Header())
		return exportTable(ctx, r, out, format, func(record *trace.Record) ([]T, error) { return rowsOf(m, record) }, p)
	}
}

// rowWriter writes the rows of one table.
type rowWriter[T any] interface {
	Write(rows []T) (int, error)
	Close() error
}

// rowGroup bounds the memory of a Parquet file that is being written.
const rowGroup = 16 << 10

func exportTable[T any](ctx context.Context, r *trace.Reader, out io.Writer, format string, rowsOf func(*trace.Record) ([]T, error), p *lateProgress) (n uint64, err error) {
	var w rowWriter[T]
	if format == "parquet" {
		w = parquet.NewGenericWriter[T](out, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(rowGroup), parquet.CreatedBy("autotune", version(), ""))
	} else if w, err = newCSVRows[T](out); err != nil {
		return 0, err
	}
	for record, err := range r.Records() {
		if err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		rows, err := rowsOf(&record)
		if err != nil {
			return n, fmt.Errorf("record of kind %s: %w", record.Kind, err)
		}
		if _, err := w.Write(rows); err != nil {
			return n, fmt.Errorf("write %s: %w", format, err)
		}
		n += uint64(len(rows))
		if record.Kind == trace.KindSample {
			p.read(r.Stats())
		}
	}
	if err := w.Close(); err != nil {
		return n, fmt.Errorf("write %s: %w", format, err)
	}
	return n, nil
}

// csvRows writes the columns of a row type, which its tags name.
type csvRows[T any] struct {
	w *csv.Writer
	// fields are the paths of the columns, times tells which of them are of
	// day.
	fields [][]int
	times  []bool
	cells  []string
}

func newCSVRows[T any](out io.Writer) (*csvRows[T], error) {
	c := &csvRows[T]{w: csv.NewWriter(out)}
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if f.Anonymous {
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		names = append(names, name)
		c.fields = append(c.fields, f.Index)
		c.times = append(c.times, strings.Contains(rest, "timestamp"))
	}
	c.cells = make([]string, len(names))
	return c, c.w.Write(names)
}

func (c *csvRows[T]) Write(rows []T) (int, error) {
	for i := range rows {
		row := reflect.ValueOf(&rows[i]).Elem()
		for j, field := range c.fields {
			value := row.FieldByIndex(field).Interface()
			if us, ok := value.(*int64); ok && c.times[j] && us != nil {
				c.cells[j] = csvTime(*us)
				continue
			}
			c.cells[j] = csvCell(value)
		}
		if err := c.w.Write(c.cells); err != nil {
			return i, err
		}
	}
	return len(rows), nil
}

// Close writes what is left; the file is its caller's.
func (c *csvRows[T]) Close() error {
	c.w.Flush()
	return c.w.Error()
}

func sortedQueueSet(set map[model.Queue]bool) []model.Queue {
	return slices.SortedFunc(maps.Keys(set), model.Queue.Compare)
}
