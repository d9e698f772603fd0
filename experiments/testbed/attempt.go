package testbed

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
)

// attempts is how often [Attempt] measures at most.
const attempts = 4

// Attempt runs a measurement until it agrees with what the test expects, at most
// a few times, and fails the test if it never does. A machine that is shared with
// others, or whose host is, disturbs one or the other; what is wrong with the
// code is wrong every time.
//
// Each attempt begins anew: its context ends and what it registered with Cleanup
// runs before the next begins, so that no load of one disturbs another. Error and
// Fatal end or fail the attempt only; what fails in a cleanup, or by [Always],
// fails the test, and so does a skip after a failure.
func Attempt(tb testing.TB, measure func(tb testing.TB)) {
	tb.Helper()
	for n := range attempts {
		a := &attempt{TB: tb, again: n > 0}
		a.last.Store(n == attempts-1)
		a.run(measure)
		if !a.failed.Load() || tb.Failed() || tb.Skipped() {
			return
		}
		tb.Logf("attempt %d of %d disagreed", n+1, attempts)
	}
}

// Always returns the test for what must hold in every attempt, whatever disturbs
// it: that originals are put back, for example. It is tb itself outside of one.
func Always(tb testing.TB) testing.TB {
	if a, ok := tb.(*attempt); ok {
		return a.TB
	}
	return tb
}

// attempt is the test as one attempt sees it.
type attempt struct {
	testing.TB
	//nolint:containedctx // It is what Context returns, as that of a test.
	ctx      context.Context
	cleanups []func()
	// again tells that an attempt failed before.
	again bool
	// last tells that from now on a failure is one of the test. Goroutines of
	// the measurement may fail as well.
	last, failed atomic.Bool
}

// run measures in a goroutine of its own, which Fatal may end, and cleans up in
// another: neither may end that of the test, which has more to do. What panics
// does so after the cleanup, which takes namespaces down.
func (a *attempt) run(measure func(tb testing.TB)) {
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(a.TB.Context())
	problem := apart(func() { measure(a) })
	cancel()
	a.last.Store(true)
	if other := apart(a.cleanUp); problem == "" {
		problem = other
	}
	if problem != "" {
		panic(problem)
	}
}

// apart runs f in a goroutine of its own and returns with what it panicked, if it
// did.
func apart(f func()) (problem string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				problem = fmt.Sprintf("%v\n\n%s", r, debug.Stack())
			}
		}()
		f()
	}()
	<-done
	return problem
}

// cleanUp runs what was registered, the last first, all of it even where one
// fails at once.
func (a *attempt) cleanUp() {
	n := len(a.cleanups) - 1
	if n < 0 {
		return
	}
	f := a.cleanups[n]
	a.cleanups = a.cleanups[:n]
	defer a.cleanUp()
	f()
}

// Context implements [testing.TB].
func (a *attempt) Context() context.Context { return a.ctx }

// Cleanup implements [testing.TB]. It must be called by the goroutine that
// measures.
func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }

// Failed implements [testing.TB].
func (a *attempt) Failed() bool { return a.failed.Load() || a.TB.Failed() }

// Fail implements [testing.TB].
func (a *attempt) Fail() {
	a.failed.Store(true)
	if a.last.Load() {
		a.TB.Fail()
	}
}

// FailNow implements [testing.TB].
func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

// Error implements [testing.TB].
func (a *attempt) Error(args ...any) {
	a.Helper()
	a.Log(fmt.Sprint(args...))
	a.Fail()
}

// Errorf implements [testing.TB].
func (a *attempt) Errorf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.Fail()
}

// Fatal implements [testing.TB].
func (a *attempt) Fatal(args ...any) {
	a.Helper()
	a.Log(fmt.Sprint(args...))
	a.FailNow()
}

// Fatalf implements [testing.TB].
func (a *attempt) Fatalf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.FailNow()
}

// SkipNow implements [testing.TB]. What failed is not made good by a skip.
func (a *attempt) SkipNow() {
	if a.failed.Load() || a.again {
		a.Log("skipped after a failure")
		a.TB.Fail()
		runtime.Goexit()
	}
	a.TB.SkipNow()
}

// Skip implements [testing.TB].
func (a *attempt) Skip(args ...any) {
	a.Helper()
	a.Log(fmt.Sprint(args...))
	a.SkipNow()
}

// Skipf implements [testing.TB].
func (a *attempt) Skipf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.SkipNow()
}
