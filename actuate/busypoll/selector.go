package busypoll

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Selector picks processes. Exactly one field is set.
type Selector struct {
	PID int
	// Comm is the process's name (/proc/PID/comm). The kernel keeps 15 bytes
	// of it, and no more are compared.
	Comm string
	// Cgroup is the path of a control group, of any hierarchy: its processes
	// and those of the groups below it.
	Cgroup string
	// All picks every process.
	All bool
}

// maxComm is TASK_COMM_LEN without the terminating zero.
const maxComm = 15

// ParseSelector reads "comm=NAME", "pid=N", "cgroup=PATH" or "all".
func ParseSelector(text string) (Selector, error) {
	key, value, _ := strings.Cut(text, "=")
	s := Selector{}
	switch key {
	case "comm":
		s.Comm = value
	case "cgroup":
		s.Cgroup = value
	case "pid":
		pid, err := strconv.Atoi(value)
		if err != nil || pid <= 0 {
			return s, fmt.Errorf("selector %q: %q is no process ID", text, value)
		}
		s.PID = pid
	case "all":
		s.All = value == ""
	default:
		return s, fmt.Errorf("selector %q: want comm=NAME, pid=N, cgroup=PATH or all", text)
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("selector %q: %w", text, err)
	}
	return s, nil
}

// Check returns an error unless exactly one field is set.
func (s Selector) Check() error {
	set := 0
	for _, is := range []bool{s.PID != 0, s.Comm != "", s.Cgroup != "", s.All} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return errors.New("it must name one of process ID, name, control group, or all")
	case s.PID < 0:
		return fmt.Errorf("%d is no process ID", s.PID)
	case s.Cgroup != "" && !strings.HasPrefix(s.Cgroup, "/"):
		return fmt.Errorf("control group %q: its path begins with / (as /proc/PID/cgroup shows it)", s.Cgroup)
	}
	return nil
}

func (s Selector) String() string {
	switch {
	case s.PID != 0:
		return fmt.Sprintf("pid=%d", s.PID)
	case s.Comm != "":
		return "comm=" + s.Comm
	case s.Cgroup != "":
		return "cgroup=" + s.Cgroup
	default:
		return "all"
	}
}

// Matches reports whether a process is picked. cgroups is called only where the
// answer depends on its control groups.
func (s Selector) Matches(pid int, comm string, cgroups func() []string) bool {
	switch {
	case s.All:
		return true
	case s.PID != 0:
		return s.PID == pid
	case s.Comm != "":
		return s.Comm[:min(len(s.Comm), maxComm)] == comm
	}
	want := strings.TrimSuffix(s.Cgroup, "/")
	for _, path := range cgroups() {
		if path == want || strings.HasPrefix(path, want+"/") {
			return true
		}
	}
	return false
}
