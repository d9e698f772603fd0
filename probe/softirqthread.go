package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// softirqThreads returns the process ID of each CPU's ksoftirqd. Those that
// this PID namespace does not show are missing.
func softirqThreads(procfs string) (map[int]int, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, fmt.Errorf("look for softirq threads: %w", err)
	}
	threads := make(map[int]int)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		comm, err := processComm(procfs, pid)
		if err != nil {
			continue
		}
		number, ok := strings.CutPrefix(comm, "ksoftirqd/")
		if !ok {
			continue
		}
		if cpu, err := strconv.Atoi(number); err == nil && isKernelThread(procfs, pid) {
			threads[cpu] = pid
		}
	}
	return threads, nil
}

// isKernelThread tells a kernel thread from a process that took its name: it
// has no memory of its own, and so no command line.
func isKernelThread(procfs string, pid int) bool {
	data, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "cmdline"))
	return err == nil && len(data) == 0
}

// isRealtime reports whether the kernel runs softirqs in threads that other
// tasks interrupt (CONFIG_PREEMPT_RT), by the file that only such a kernel has
// (kernel/ksysfs.c).
func isRealtime(sysfs string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(sysfs, "kernel/realtime"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("tell whether the kernel is PREEMPT_RT: %w", err)
	}
	return strings.TrimSpace(string(data)) == "1", nil
}
