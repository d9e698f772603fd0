package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"autotune/model"
)

// Thread is one thread of a process.
type Thread struct {
	TID int
	// CPUs are those that it may run on, ascending.
	CPUs []int
	// Waits is the descriptor of the epoll context that it waits for; nil
	// where it waits for none, runs, or what it does may not be read.
	Waits *int
}

// Threads returns the threads of a process by thread ID; none where it has
// ended.
func Threads(procfs string, pid int) ([]Thread, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the threads of process %d: %w", pid, err)
	}
	var out []Thread
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join(dir, e.Name(), "status"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read thread %d of process %d: %w", tid, pid, err)
		}
		t := Thread{TID: tid}
		if t.CPUs, err = allowedCPUs(string(status)); err != nil {
			return nil, fmt.Errorf("read thread %d of process %d: %w", tid, pid, err)
		}
		// It needs ptrace access (PTRACE_MODE_ATTACH_FSCREDS).
		if call, err := os.ReadFile(filepath.Join(dir, e.Name(), "syscall")); err == nil {
			if fd, ok := epollWait(string(call)); ok {
				t.Waits = &fd
			}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Thread) int { return a.TID - b.TID })
	return out, nil
}

// allowedCPUs reads the line of a status file that task_cpus_allowed in
// fs/proc/array.c writes.
func allowedCPUs(status string) ([]int, error) {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return model.ParseCPUList(list)
		}
	}
	return nil, fmt.Errorf("status has no Cpus_allowed_list")
}

// epollWait reads a syscall file (proc_pid_syscall in fs/proc/base.c): the
// number in decimal, arguments in hexadecimal, or a word. The first argument of
// every kind of epoll_wait is the descriptor.
func epollWait(text string) (fd int, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0, false
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil || !slices.Contains(epollWaits(), number) {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 64)
	// The kernel looks at the lower half only.
	return int(int32(v)), err == nil && int32(v) >= 0
}
