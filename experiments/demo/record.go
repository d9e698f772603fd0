package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrRecord is wrapped by every failure to understand a record.
var ErrRecord = errors.New("demo record")

// The kinds of lines in a record.
const (
	kindRun     = "run"
	kindWindow  = "window"
	kindRow     = "row"
	kindSummary = "summary"
	kindVerdict = "verdict"

	kindComparison = "comparison"
)

// WriteRecord writes the result as JSON Lines, one object per line, told apart
// by their field "kind": one [RunInfo] ("run"), then every [Window], every
// [Row], a [Summary] per phase and contender, a [Comparison] with each other
// contender where there are more than the default, and the [Verdict], which a
// quick look lacks. Names carry units; null means not known.
func WriteRecord(w io.Writer, result Result) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	var errs []error
	write := func(line any) { errs = append(errs, encoder.Encode(line)) }
	write(struct {
		Kind string `json:"kind"`
		RunInfo
	}{kindRun, result.Run})
	for _, window := range result.Windows {
		write(struct {
			Kind string `json:"kind"`
			Window
		}{kindWindow, window})
	}
	for _, row := range result.Rows {
		write(struct {
			Kind string `json:"kind"`
			Row
		}{kindRow, row})
	}
	if err := WriteSummary(buffered, result); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, buffered.Flush())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// WriteSummary writes the lines of kinds "summary", "comparison" and "verdict"
// alone.
func WriteSummary(w io.Writer, result Result) error {
	encoder := json.NewEncoder(w)
	for _, summary := range Summarise(result.Run, result.Rows) {
		if err := encoder.Encode(struct {
			Kind string `json:"kind"`
			Summary
		}{kindSummary, summary}); err != nil {
			return fmt.Errorf("write the summary: %w", err)
		}
	}
	for _, comparison := range Compare(result.Run, result.Rows) {
		if err := encoder.Encode(struct {
			Kind string `json:"kind"`
			Comparison
		}{kindComparison, comparison}); err != nil {
			return fmt.Errorf("write the comparison: %w", err)
		}
	}
	if result.Verdict == nil {
		return nil
	}
	if err := encoder.Encode(struct {
		Kind string `json:"kind"`
		Verdict
	}{kindVerdict, *result.Verdict}); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

// ReadRecord reads what [WriteRecord] wrote and judges it again.
func ReadRecord(r io.Reader) (Result, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	var result Result
	runs := 0
	for line := 1; scanner.Scan(); line++ {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &head); err != nil {
			return Result{}, fmt.Errorf("%w: line %d: %w", ErrRecord, line, err)
		}
		var err error
		switch head.Kind {
		case kindRun:
			runs++
			err = json.Unmarshal(scanner.Bytes(), &result.Run)
		case kindWindow:
			var window Window
			err = json.Unmarshal(scanner.Bytes(), &window)
			result.Windows = append(result.Windows, window)
		case kindRow:
			var row Row
			err = json.Unmarshal(scanner.Bytes(), &row)
			result.Rows = append(result.Rows, row)
		case kindSummary, kindComparison, kindVerdict:
			// They follow from the rest.
		default:
			err = fmt.Errorf("kind %q is not known: the record is not of this version", head.Kind)
		}
		if err != nil {
			return Result{}, fmt.Errorf("%w: line %d: %w", ErrRecord, line, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if runs != 1 || len(result.Run.Contenders) == 0 || len(result.Run.Phases) == 0 {
		return Result{}, fmt.Errorf("%w: want one line of kind %q with contenders and phases, found %d", ErrRecord, kindRun, runs)
	}
	result.judge()
	return result, nil
}
