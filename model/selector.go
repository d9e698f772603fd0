package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Selector picks processes by one property. [ParseSelector] makes it.
type Selector struct {
	Kind SelectorKind
	// Value is a command name, a process ID or the path of a control group;
	// empty for [SelectAll].
	Value string
}

// SelectorKind is the property that a [Selector] looks at.
type SelectorKind string

// The kinds.
const (
	// SelectComm picks by the command name, of which the kernel keeps 15 bytes.
	SelectComm SelectorKind = "comm"
	SelectPID  SelectorKind = "pid"
	// SelectCgroup picks all processes in a control group, of any hierarchy,
	// and below it.
	SelectCgroup SelectorKind = "cgroup"
	// SelectAll picks every process.
	SelectAll SelectorKind = "all"
)

// maxComm is TASK_COMM_LEN less the terminating zero (include/linux/sched.h).
const maxComm = 15

// ParseSelector reads comm=NAME, pid=N, cgroup=PATH or all.
func ParseSelector(text string) (Selector, error) {
	kind, value, _ := strings.Cut(text, "=")
	s := Selector{SelectorKind(kind), value}
	switch {
	case text == string(SelectAll):
		return s, nil
	case value == "":
	case s.Kind == SelectComm:
		return s, nil
	case s.Kind == SelectPID:
		pid, err := strconv.ParseInt(value, 10, 32)
		if err != nil || pid < 1 {
			return s, fmt.Errorf("selector %q: a process ID is a number from 1", text)
		}
		s.Value = strconv.FormatInt(pid, 10)
		return s, nil
	case s.Kind == SelectCgroup:
		if !strings.HasPrefix(value, "/") {
			return s, fmt.Errorf("selector %q: the path of a control group begins with / (see /proc/PID/cgroup)", text)
		}
		return s, nil
	}
	return s, fmt.Errorf("selector %q: write comm=NAME, pid=N, cgroup=PATH or all", text)
}

func (s Selector) String() string {
	if s.Kind == SelectAll {
		return string(SelectAll)
	}
	return string(s.Kind) + "=" + s.Value
}

// PID returns the one process that is picked; 0 where the selector is of
// another kind.
func (s Selector) PID() int {
	if s.Kind != SelectPID {
		return 0
	}
	pid, err := strconv.Atoi(s.Value)
	if err != nil {
		return 0
	}
	return pid
}

// Matches reports whether a process is picked. cgroups returns the paths of its
// control groups, one per hierarchy, and is called only where they decide.
func (s Selector) Matches(pid int, comm string, cgroups func() []string) bool {
	switch s.Kind {
	case SelectAll:
		return true
	case SelectPID:
		return s.Value == strconv.Itoa(pid)
	case SelectComm:
		return comm == s.Value[:min(len(s.Value), maxComm)]
	case SelectCgroup:
		for _, path := range cgroups() {
			if below, ok := strings.CutPrefix(path, strings.TrimSuffix(s.Value, "/")); ok && (below == "" || below[0] == '/') {
				return true
			}
		}
	}
	return false
}
