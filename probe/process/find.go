package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// Process is one process as procfs names it.
type Process struct {
	PID  int
	Comm string
}

// Find returns the processes that a selector picks, by process ID. Kernel
// threads, which have no program, are never picked.
func Find(procfs string, s model.Selector) ([]Process, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, fmt.Errorf("find processes with %v: %w", s, err)
	}
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(procfs, e.Name())
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find processes with %v: %w", s, err)
		}
		p := Process{PID: pid, Comm: strings.TrimSuffix(string(comm), "\n")}
		var groups []string
		if s.Kind == model.SelectCgroup {
			if groups, err = cgroups(dir); gone(err) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("find processes with %v: %w", s, err)
			}
		}
		if s.Matches(p.PID, p.Comm, func() []string { return groups }) && !kernelThread(dir) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

// cgroups returns the paths of a process's control groups, one per hierarchy
// (lines "hierarchy:controllers:path", proc_cgroup_show in
// kernel/cgroup/cgroup.c).
func cgroups(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(fields) == 3 {
			out = append(out, fields[2])
		}
	}
	return out, nil
}

// kernelThread reports whether a process is one of the kernel's: it has no
// command line.
func kernelThread(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	flags, ok := statField(string(data), statFlags)
	return ok && flags&pfKthread != 0
}

// The numbers of fields in a stat file, from 1 (do_task_stat in
// fs/proc/array.c), and PF_KTHREAD of include/linux/sched.h.
const (
	statFlags = 9
	pfKthread = 0x00200000
)

// statField returns a field after the command in parentheses, which may hold
// anything.
func statField(stat string, number int) (uint64, bool) {
	_, after, ok := cutLast(stat, ")")
	fields := strings.Fields(after)
	if !ok || len(fields) <= number-3 {
		return 0, false
	}
	v, err := strconv.ParseUint(fields[number-3], 10, 64)
	return v, err == nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// gone reports whether an error means that the process or thread has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
