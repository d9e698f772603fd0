package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"autotune/experiments/compare"
	"autotune/model"
	"autotune/model/sim"
)

// The exit codes that scripts may rely on.
const (
	exitDone   = 0
	exitFailed = 1
	// exitUsage: wrong flags, values or files.
	exitUsage = 2
	// exitCannot: not possible on this host (kernel, privilege).
	exitCannot = 3
	// exitMissed: done, but the target was not met.
	exitMissed = 4
)

// exitError is an error that decides the exit code. A nil err means that all
// was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// sentence is the text of an error without what only programs need: the words of
// a sentinel beside a message that has said it better.
func sentence(err error) string {
	text := strings.TrimPrefix(err.Error(), compare.ErrPlan.Error()+": ")
	for _, sentinel := range []error{model.ErrGone, model.ErrReadOnly, model.ErrLinkDown, sim.ErrBadLoad, sim.ErrBadSetting} {
		text = strings.ReplaceAll(text+"\n", ": "+sentinel.Error()+"\n", "\n")
		text = strings.TrimSuffix(text, "\n")
		text = strings.ReplaceAll(text, ": "+sentinel.Error()+"; ", "; ")
	}
	return text
}

// unread reports whether all that went wrong is that who read the output has left,
// as head does: no news for who sent it away.
func unread(err error, out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	switch e := err.(type) { //nolint:errorlint // the whole tree is walked
	case *fs.PathError:
		return e.Path == file.Name() && errors.Is(e.Err, syscall.EPIPE)
	case interface{ Unwrap() error }:
		return unread(e.Unwrap(), out)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !unread(err, out) })
	}
	return false
}

func usageError(err error) error  { return &exitError{code: exitUsage, err: err} }
func cannotError(err error) error { return &exitError{code: exitCannot, err: err} }
