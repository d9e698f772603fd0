package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/model"
	"autotune/probe/process"
)

type busypollCmd struct {
	List busypollListCmd `cmd:"" help:"Epoll contexts, and with --sockets sockets, that processes have."`
	Set  busypollSetCmd  `cmd:"" help:"Set how running processes busy poll; autotune restore puts it back."`
}

// selection are the flags that pick processes.
type selection struct {
	PID    *int   `help:"This process." name:"pid" placeholder:"N"`
	Comm   string `help:"All processes of this name (/proc/PID/comm)." placeholder:"NAME"`
	Cgroup string `help:"All processes in this control group and below." placeholder:"PATH"`
	All    bool   `help:"All processes."`
}

// selector returns what the flags pick; with none given, all where that is
// allowed.
func (s selection) selector(orAll bool) (model.Selector, error) {
	var picked []model.Selector
	if s.PID != nil {
		picked = append(picked, model.Selector{Kind: model.SelectPID, Value: strconv.Itoa(*s.PID)})
	}
	if s.Comm != "" {
		picked = append(picked, model.Selector{Kind: model.SelectComm, Value: s.Comm})
	}
	if s.Cgroup != "" {
		picked = append(picked, model.Selector{Kind: model.SelectCgroup, Value: s.Cgroup})
	}
	if s.All || orAll && len(picked) == 0 {
		picked = append(picked, model.Selector{Kind: model.SelectAll})
	}
	if len(picked) != 1 {
		return model.Selector{}, usageError(errors.New("say which processes by one of --pid, --comm, --cgroup and --all"))
	}
	sel, err := model.ParseSelector(picked[0].String())
	if err != nil {
		return sel, usageError(err)
	}
	return sel, nil
}

// parseSelectors reads the values of --apps.
func parseSelectors(texts []string) ([]model.Selector, error) {
	var out []model.Selector
	for _, text := range texts {
		s, err := model.ParseSelector(text)
		if err != nil {
			return nil, usageError(fmt.Errorf("--apps: %w", err))
		}
		out = append(out, s)
	}
	return out, nil
}

// selected lists what the selected processes have. A selector by process ID
// that names none is an error; autotune itself is never among the selected.
func selected(ctx context.Context, apps *applications, sel model.Selector, sockets bool) ([]busypoll.Descriptor, error) {
	var pids []int
	system := actuate.Live{Applications: apps}.Processes()
	if pid := sel.PID(); pid != 0 {
		if _, err := (busypoll.Live{}).Start(pid); errors.Is(err, busypoll.ErrVanished) {
			return nil, usageError(fmt.Errorf("no process %d is running here (`ps -eo pid,comm` shows what is)", pid))
		} else if err != nil {
			return nil, usageError(err)
		}
		pids = []int{pid}
	}
	rows, err := system.List(ctx, pids, sockets)
	if err != nil {
		return nil, applicationsError(err)
	}
	matches := map[int]bool{}
	return slices.DeleteFunc(rows, func(d busypoll.Descriptor) bool {
		match, known := matches[d.PID]
		if !known {
			match = d.PID != os.Getpid() && sel.Matches(d.PID, d.Comm, func() []string { return system.Cgroups(d.PID) })
			matches[d.PID] = match
		}
		return !match
	}), nil
}

// lookable returns an error where a process that the selector picks may not be
// looked into: without BPF a listing leaves it out, which is not to say that it
// has no epoll context.
func lookable(procfs string, sel model.Selector) error {
	processes, err := process.Find(procfs, sel)
	if err != nil {
		return err
	}
	for _, p := range processes {
		dir := filepath.Join(procfs, strconv.Itoa(p.PID), "fd")
		if _, err := os.ReadDir(dir); errors.Is(err, os.ErrPermission) {
			return cannotError(fmt.Errorf("list the epoll contexts of %s (pid %d): %w; run as root, or as the user of the process", p.Comm, p.PID, err))
		}
	}
	return nil
}

// applicationsError sorts failures to reach applications by who can mend them.
func applicationsError(err error) error {
	var denied *busypoll.Error
	switch {
	case errors.Is(err, errPIDNamespace), errors.As(err, &denied) && errors.Is(err, os.ErrPermission):
		return cannotError(err)
	case errors.Is(err, os.ErrPermission) && ownUserNamespace():
		return cannotError(fmt.Errorf("%w: autotune is in a user namespace of its own, where root is nobody outside: run as root of the host", err))
	case errors.Is(err, os.ErrPermission):
		return cannotError(fmt.Errorf("%w: run as root, or as the user of the process", err))
	case errors.As(err, &denied) && errors.Is(err, model.ErrReadOnly):
		return cannotError(err)
	default:
		return err
	}
}

// ownUserNamespace reports whether autotune is in another user namespace than
// the host's, PROC_USER_INIT_INO of include/linux/proc_ns.h.
func ownUserNamespace() bool {
	ns, err := os.Readlink("/proc/self/ns/user")
	return err == nil && ns != "user:[4026531837]"
}
