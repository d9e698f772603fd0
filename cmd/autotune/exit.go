package main

import (
	"context"
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

// all reports whether is holds for each error that err is made of.
func all(err error, is func(error) bool) bool {
	if is(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // the whole tree is walked
	case interface{ Unwrap() error }:
		inner := e.Unwrap()
		return inner != nil && all(inner, is)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return !all(inner, is) })
	}
	return false
}

// onlyCanceled reports whether nothing went wrong but that the work was ended.
func onlyCanceled(err error) bool {
	return all(err, func(err error) bool { return err == context.Canceled }) //nolint:errorlint // the whole tree is walked
}

// unread reports whether all that went wrong is that who read the output has left,
// as head does: no news for who sent it away.
func unread(err error, out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && all(err, func(err error) bool {
		e, ok := err.(*fs.PathError) //nolint:errorlint // the whole tree is walked
		return ok && e.Path == file.Name() && errors.Is(e.Err, syscall.EPIPE)
	})
}

func usageError(err error) error  { return &exitError{code: exitUsage, err: err} }
func cannotError(err error) error { return &exitError{code: exitCannot, err: err} }
