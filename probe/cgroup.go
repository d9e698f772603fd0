package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processCgroup returns the control group of a process, as [model.AppSample]
// defines it; empty where it cannot be read.
func processCgroup(procfs string, pid int) string {
	data, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	return parseCgroup(string(data))
}

// parseCgroup reads a cgroup file (proc_cgroup_show in kernel/cgroup/cgroup.c),
// a line "hierarchy:controllers:path" per hierarchy. The unified one has number
// 0 and no controllers; where it is mounted beside legacy ones, processes may
// all be at its root. Of the legacy ones that for CPU time tells most, then
// systemd's own, then any.
func parseCgroup(text string) string {
	best, rank := "", 0
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || fields[2] == "" {
			continue
		}
		got := 2
		switch {
		case fields[2] == "/":
			got = 1
		case fields[0] == "0":
			got = 5
		case hasController(fields[1], "cpu"), hasController(fields[1], "cpuacct"):
			got = 4
		case fields[1] == "name=systemd":
			got = 3
		}
		if got > rank {
			best, rank = fields[2], got
		}
	}
	return best
}

func hasController(list, name string) bool {
	for controller := range strings.SplitSeq(list, ",") {
		if controller == name {
			return true
		}
	}
	return false
}
