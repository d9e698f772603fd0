package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Selector picks processes by one property.
type Selector struct {
	Kind SelectorKind
	// Value is a command name, a process ID or the path of a control group.
	Value string
}

// SelectorKind is the property that a [Selector] looks at.
type SelectorKind string

// The kinds.
const (
	// SelectComm picks by the command name, of which the kernel keeps 15 bytes.
	SelectComm SelectorKind = "comm"
	SelectPID  SelectorKind = "pid"
	// SelectCgroup picks all processes in a control group and below it.
	SelectCgroup SelectorKind = "cgroup"
)

// maxComm is TASK_COMM_LEN less the terminating zero (include/linux/sched.h).
const maxComm = 15

// ParseSelector reads comm=NAME, pid=N or cgroup=PATH.
func ParseSelector(text string) (Selector, error) {
	kind, value, _ := strings.Cut(text, "=")
	s := Selector{SelectorKind(kind), value}
	switch {
	case value == "":
	case s.Kind == SelectComm:
		return s, nil
	case s.Kind == SelectPID:
		if pid, err := strconv.ParseInt(value, 10, 32); err != nil || pid < 1 {
			return s, fmt.Errorf("selector %q: a process ID is a number from 1", text)
		}
		return s, nil
	case s.Kind == SelectCgroup:
		if !strings.HasPrefix(value, "/") {
			return s, fmt.Errorf("selector %q: the path of a control group begins with / (see /proc/PID/cgroup)", text)
		}
		return s, nil
	}
	return s, fmt.Errorf("selector %q: write comm=NAME, pid=N or cgroup=PATH", text)
}

func (s Selector) String() string { return string(s.Kind) + "=" + s.Value }

// Matches reports whether a process with this ID, command name and paths of
// control groups, one per hierarchy, is picked.
func (s Selector) Matches(pid int, comm string, cgroups []string) bool {
	switch s.Kind {
	case SelectPID:
		return s.Value == strconv.Itoa(pid)
	case SelectComm:
		return comm == s.Value[:min(len(s.Value), maxComm)]
	case SelectCgroup:
		for _, path := range cgroups {
			if below, ok := strings.CutPrefix(path, strings.TrimSuffix(s.Value, "/")); ok && (below == "" || below[0] == '/') {
				return true
			}
		}
	}
	return false
}
