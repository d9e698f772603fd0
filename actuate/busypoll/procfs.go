package busypoll

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startTime returns when a process started, in clock ticks since boot. It
// wraps [ErrVanished] where there is none.
func startTime(procfs string, pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			err = ErrVanished
		}
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	start, err := parseStart(data)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return start, nil
}

// parseStart reads field 22 of proc_pid_stat(5). Field 2, the name, can hold
// anything, so fields are counted from its closing parenthesis.
func parseStart(stat []byte) (uint64, error) {
	const state, starttime = 3, 22
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("stat has no name")
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) <= starttime-state {
		return 0, fmt.Errorf("stat has %d fields after the name", len(fields))
	}
	start, err := strconv.ParseUint(string(fields[starttime-state]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stat: start time: %w", err)
	}
	return start, nil
}

// Cgroups implements [System].
func (l Live) Cgroups(pid int) []string {
	data, err := os.ReadFile(filepath.Join(l.procfs(), strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		// hierarchy-ID:controllers:path
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 {
			paths = append(paths, parts[2])
		}
	}
	return paths
}

// Start returns when a process started, as [Handle] has it.
func (l Live) Start(pid int) (uint64, error) { return startTime(l.procfs(), pid) }
