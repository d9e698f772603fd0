package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"autotune/actuate"
	"autotune/actuate/busypoll"

	"golang.org/x/sys/unix"
)

type restoreCmd struct {
	State string `help:"Directory that the run kept its state in." placeholder:"DIR"`
	JSON  bool   `help:"One object per line." name:"json"`
}

// Run implements the command.
func (c *restoreCmd) Run(ctx context.Context, std streams) (err error) {
	state, err := stateOr(c.State)
	if err != nil {
		return usageError(err)
	}
	// A restore that was begun is finished, whatever signal comes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWait)
	defer cancel()
	apps := &applications{}
	defer func() { err = errors.Join(err, apps.Close()) }()
	report, err := actuate.RestoreOn(ctx, actuate.Live{Applications: apps}, state, "")
	if c.JSON {
		err = errors.Join(err, printRestore(std.out, report))
	} else {
		fmt.Fprint(std.out, report)
	}
	if err == nil && report.Empty() {
		others, err := actuate.Leftovers("")
		if err != nil {
			fmt.Fprintf(std.err, "whether other runs left something is not known: %v\n", err)
		}
		for _, dir := range others {
			fmt.Fprintf(std.err, "another run ended without restoring: autotune restore --state %s\n", dir)
		}
	}
	var unusable *actuate.StateError
	switch {
	case errors.Is(err, os.ErrPermission):
		return cannotError(err)
	case errors.As(err, &unusable), errors.Is(err, unix.ENOTDIR):
		return usageError(err)
	case err != nil:
		return err
	case !report.Settled:
		return &exitError{code: exitFailed, err: errors.New("not everything is back; the state is kept, run this again when the above is mended")}
	}
	return nil
}

// printRestore writes a line per knob and one for the whole.
func printRestore(w io.Writer, r actuate.Report) error {
	for _, k := range r.Knobs {
		if err := printJSON(w, struct {
			Kind string `json:"kind"`
			actuate.KnobReport
		}{"knob", k}); err != nil {
			return err
		}
	}
	for _, c := range r.Contexts {
		if err := printJSON(w, struct {
			Kind string `json:"kind"`
			restoredContext
		}{"busy_poll", restoredContext{c, c.Kind}}); err != nil {
			return err
		}
	}
	for _, p := range r.Placements {
		if err := printJSON(w, struct {
			Kind string `json:"kind"`
			actuate.PlacementReport
		}{"placement_restored", p}); err != nil {
			return err
		}
	}
	return printJSON(w, struct {
		Kind     string `json:"kind"`
		StateDir string `json:"state_dir"`
		Settled  bool   `json:"settled"`
		Note     string `json:"note"`
	}{"restore", r.StateDir, r.Settled, r.Note})
}

// restoredContext gives the field "kind" of a report, which every line has for
// itself, another name.
type restoredContext struct {
	actuate.ContextReport
	Descriptor busypoll.Kind `json:"descriptor"`
}

// restoredText says what a settled restore came to.
func restoredText(r actuate.Report) string {
	others := foreignOnly(r)
	switch {
	case r.Empty():
		return "nothing was written, so there is nothing to put back\n"
	case others == "":
		return "the originals are back, verified by reading them\n"
	default:
		return "the originals are back, verified by reading them, but for\n" + others
	}
}

// foreignOnly returns the lines of a report that are about values of others.
func foreignOnly(r actuate.Report) string {
	var b strings.Builder
	for _, k := range r.Knobs {
		switch k.Outcome {
		case actuate.OutcomeUnchanged, actuate.OutcomeRestored:
		default:
			fmt.Fprintln(&b, k)
		}
	}
	for _, c := range r.Contexts {
		switch c.Outcome {
		case actuate.OutcomeUnchanged, actuate.OutcomeRestored:
		default:
			fmt.Fprintln(&b, c)
		}
	}
	for _, p := range r.Placements {
		switch p.Outcome {
		case actuate.OutcomeUnchanged, actuate.OutcomeRestored, actuate.OutcomeGone:
		default:
			fmt.Fprintln(&b, p)
		}
	}
	return b.String()
}
