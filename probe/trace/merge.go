package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"autotune/model"
)

// MergeInput is what is known of one trace to be merged, and how to read it
// again.
type MergeInput struct {
	Name    string
	Summary Summary
	Open    func() (*Reader, error)
}

// PlanMerge puts traces of one host into the order of their samples, and
// refuses those that cannot be one: of different boots, whose times do not
// compare; that overlap; and, unless forced, that were recorded under different
// conditions ([ErrConditions]).
func PlanMerge(inputs []MergeInput, force bool) ([]MergeInput, error) {
	ordered := slices.Clone(inputs)
	for _, in := range ordered {
		if in.Summary.Stats.Samples == 0 {
			return nil, fmt.Errorf("%s: %w", in.Name, ErrNoSample)
		}
	}
	slices.SortStableFunc(ordered, func(a, b MergeInput) int { return cmp.Compare(a.Summary.First, b.Summary.First) })
	for i := 1; i < len(ordered); i++ {
		a, b := &ordered[i-1], &ordered[i]
		x, y := a.Summary.Header, b.Summary.Header
		switch {
		case x.Host != y.Host || x.BootID != y.BootID || x.Clock != y.Clock:
			return nil, fmt.Errorf("%s and %s are of different hosts or boots: their times do not compare", a.Name, b.Name)
		case b.Summary.First <= a.Summary.Last:
			return nil, fmt.Errorf("%s and %s overlap: the latter begins %v before the former ends", a.Name, b.Name, a.Summary.Last-b.Summary.First)
		}
		if differences := a.Summary.Final.Differences(y.Conditions); len(differences) > 0 && !force {
			return nil, fmt.Errorf("%s and %s: %w: %s", a.Name, b.Name, ErrConditions, strings.Join(differences, "; "))
		}
	}
	return ordered, nil
}

// MergeHeader is the header of the inputs together, which are in order. What
// was run is kept only where it was the same throughout, and which part it is
// only where parts are missing before the first.
func MergeHeader(inputs []MergeInput) Header {
	h := inputs[0].Summary.Header
	consecutive := true
	var edits []Edit
	for i, in := range inputs {
		if !sameRun(h.Run, in.Summary.Header.Run) {
			h.Run = nil
		}
		consecutive = consecutive && (i == 0 || in.Summary.Header.Part.follows(inputs[i-1].Summary.Header.Part))
		edits = append(edits, in.Summary.Header.Edits...)
		h.Probes = worse(h.Probes, in.Summary.Header.Probes)
		if in.Summary.Header.Histograms != DetailExact {
			h.Histograms = in.Summary.Header.Histograms
		}
	}
	if consecutive && h.Part != nil && len(edits) == 0 {
		// It is what the recorder would have written to one file.
		if h.Part.Number == 0 {
			h.Part = nil
		}
		return h
	}
	h.Part = nil
	h.Edits = append(edits, Edit{Op: EditMerge, Detail: fmt.Sprintf("%d traces", len(inputs))})
	return h
}

// worse lists the probes of both, with the worse of their states.
func worse(a, b []Probe) []Probe {
	out := slices.Clone(a)
	for _, p := range b {
		i := slices.IndexFunc(out, func(q Probe) bool { return q.Name == p.Name })
		switch {
		case i < 0:
			out = append(out, p)
		case p.State != out[i].State && p.State != model.FindingOK:
			out[i] = p
		}
	}
	return out
}

func sameRun(a, b *Run) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// Merge copies the inputs, which are in order, to w. Time between them that no
// sample covers is noted as a gap, and conditions that have changed are written.
func Merge(ctx context.Context, inputs []MergeInput, w *Writer, progress func(Stats)) error {
	for i := range inputs {
		if i > 0 {
			if err := join(&inputs[i-1].Summary, &inputs[i].Summary, w); err != nil {
				return err
			}
		}
		if err := appendTrace(ctx, inputs[i], w, progress); err != nil {
			return fmt.Errorf("%s: %w", inputs[i].Name, err)
		}
	}
	return nil
}

func join(a, b *Summary, w *Writer) error {
	if interval := max(a.Header.Interval, time.Millisecond); b.Begin-a.Last > interval/2 {
		missing := max(1, (b.Begin-a.Last+interval/2)/interval)
		if err := w.WriteGap(Gap{Samples: uint64(missing)}); err != nil {
			return err
		}
	}
	if now := b.Header.Conditions; !reflect.DeepEqual(a.Final, now) {
		return w.WriteConditions(b.Begin, now)
	}
	return nil
}

func appendTrace(ctx context.Context, in MergeInput, w *Writer, progress func(Stats)) (err error) {
	r, err := in.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return copyRecords(ctx, r, w.WriteRecord, progress)
}

// copyRecords hands on all records that are left.
func copyRecords(ctx context.Context, r *Reader, write func(Record) error, progress func(Stats)) error {
	for record, err := range r.Records() {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := write(record); err != nil {
			return err
		}
		if progress != nil && record.Kind == KindSample {
			progress(r.stats)
		}
	}
	return nil
}
