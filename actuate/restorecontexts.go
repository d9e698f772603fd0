package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"autotune/actuate/busypoll"
)

// restoreContexts puts the parameters of applications back, parameter by
// parameter as knobs are.
func restoreContexts(ctx context.Context, processes busypoll.System, base *baseline, last *intent) []ContextReport {
	if len(last.Contexts) == 0 {
		return nil
	}
	// Without a listing contexts are known by descriptor number.
	rows, err := processes.List(ctx, nil, false)
	if err != nil {
		rows = nil
	}
	// One answer does for all sockets: it takes a walk over all files.
	noBudgets := sync.OnceValue(processes.SocketBudgets)
	var reports []ContextReport
	for i := range base.Contexts {
		c := &base.Contexts[i]
		if record := last.context(c.key()); record != nil {
			reports = append(reports, restoreContext(processes, rows, c, record, noBudgets)...)
		}
	}
	return reports
}

// reach is a descriptor by which a context can be put back.
type reach struct {
	busypoll.Handle
	// other is set where the descriptor leads to another context than was
	// recorded: it is ours only if it has exactly what was being written.
	other bool
}

// reaches finds the descriptors that lead to a context now. It may be under
// other numbers than then (dup(2)), and left to a child. The address alone
// does not tell: that of a context that is gone is soon another's, also in
// another process.
func reaches(rows []busypoll.Descriptor, c *baselineContext, pending bool) []reach {
	var found []reach
	if c.Handles[0].Kind != busypoll.KindEpoll || c.Handles[0].Object == 0 || !addresses(rows) {
		for _, h := range c.Handles {
			found = append(found, reach{Handle: h})
		}
		return found
	}
	ours := func(same func(busypoll.Handle, busypoll.Handle) bool, d *busypoll.Descriptor) bool {
		return slices.ContainsFunc(c.Handles, func(h busypoll.Handle) bool { return same(h, d.Handle) })
	}
	for i := range rows {
		if rows[i].Key() == c.key() && ours(busypoll.Handle.SameProcess, &rows[i]) {
			found = append(found, reach{Handle: rows[i].Handle})
		}
	}
	if len(found) > 0 || !pending {
		return found
	}
	// The process may have closed the context and opened another one under
	// its number in the instant before the write.
	for i := range rows {
		if ours(busypoll.Handle.SameDescriptor, &rows[i]) {
			found = append(found, reach{rows[i].Handle, true})
		}
	}
	return found
}

// addresses reports whether a listing tells contexts apart.
func addresses(rows []busypoll.Descriptor) bool {
	return slices.ContainsFunc(rows, func(d busypoll.Descriptor) bool { return d.Kind == busypoll.KindEpoll && d.Object != 0 })
}

// restoreAttempts bounds how often a context that changes while it is being
// put back is looked at anew.
const restoreAttempts = 3

func restoreContext(processes busypoll.System, rows []busypoll.Descriptor, c *baselineContext, record *intentContext, noBudgets func() error) []ContextReport {
	whole := ContextReport{PID: c.Handles[0].PID, Comm: c.Comm, FD: c.Handles[0].FD, Kind: c.Handles[0].Kind}
	var failures []error
	for _, r := range reaches(rows, c, *record.Confirmed != *record.Intended) {
		reports, err := putContextBack(processes, r, c, record, noBudgets)
		if errors.Is(err, busypoll.ErrVanished) {
			continue
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		return reports
	}
	if len(failures) > 0 {
		whole.Outcome, whole.Detail = OutcomeFailed, errors.Join(failures...).Error()
		return []ContextReport{whole}
	}
	whole.Outcome = OutcomeGone
	whole.Detail = "the process has exited or closed it: nothing to put back"
	return []ContextReport{whole}
}

// putContextBack judges, writes and reads back one context. NoBudgets tells why
// budgets of sockets cannot be read, nil where they can.
func putContextBack(processes busypoll.System, r reach, c *baselineContext, record *intentContext, noBudgets func() error) ([]ContextReport, error) {
	present, err := processes.Get(r.Handle)
	if err == nil && r.other && present != *record.Intended {
		err = busypoll.ErrVanished
	}
	if err != nil {
		return nil, err
	}
	var noBudget error
	if r.Kind == busypoll.KindSocket {
		noBudget = noBudgets()
	}
	var reports []ContextReport
	for range restoreAttempts {
		var wanted busypoll.Params
		reports, wanted = judgeContext(r, c, record, present, noBudget)
		if wanted == present {
			return reports, nil
		}
		now, err := processes.Swap(r.Handle, present, wanted)
		if err != nil {
			return nil, err
		}
		if now == wanted {
			return reports, nil
		}
		present = now
	}
	return nil, fmt.Errorf("%v is being changed by another writer all the time, last to %v", r.Handle, present)
}

// judgeContext says what is to be written. NoBudget is why the budget that is
// set cannot be read, nil where it can.
func judgeContext(r reach, c *baselineContext, record *intentContext, present busypoll.Params, noBudget error) ([]ContextReport, busypoll.Params) {
	wanted := present
	var reports []ContextReport
	for _, n := range busypoll.Parameters() {
		if n == busypoll.ParameterBudget && noBudget != nil {
			if report := lostBudget(r, c, record, noBudget); report != nil {
				reports = append(reports, *report)
			}
			continue
		}
		original, found := n.Of(*c.Original), n.Of(present)
		report := ContextReport{
			PID: r.PID, Comm: c.Comm, FD: r.FD, Kind: r.Kind, Parameter: n,
			Original: &original, Found: &found, Outcome: OutcomeUnchanged,
		}
		switch {
		case found == original:
		case record.wrote(n, found):
			report.Outcome = OutcomeRestored
			if r.other {
				report.Detail = "the descriptor was opened anew while it was being set"
			}
			wanted = n.With(wanted, original)
		default:
			report.Outcome = OutcomeForeign
			report.Detail = fmt.Sprintf("not a value that autotune wrote (%d, %d): left to whoever set it",
				n.Of(*record.Confirmed), n.Of(*record.Intended))
		}
		reports = append(reports, report)
	}
	return reports, wanted
}

// lostBudget reports a budget that was set and that nothing tells now; nil where
// it was never set.
func lostBudget(r reach, c *baselineContext, record *intentContext, why error) *ContextReport {
	original := busypoll.ParameterBudget.Of(*c.Original)
	if record.wrote(busypoll.ParameterBudget, original) && record.Confirmed.Budget == record.Intended.Budget {
		return nil
	}
	return &ContextReport{
		PID: r.PID, Comm: c.Comm, FD: r.FD, Kind: r.Kind, Parameter: busypoll.ParameterBudget,
		Original: &original, Outcome: OutcomeFailed,
		Detail: fmt.Sprintf("the original is %d, and what it is now cannot be read: %v", original, why),
	}
}
