//go:build linux

package workload

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that the threads of the given processes have
// used, user and system, to the nanosecond (the first field of
// /proc/PID/task/TID/schedstat; kernel/sched, proc_pid_schedstat in
// fs/proc/base.c). A kernel thread is a process of one thread. Time of threads
// that have ended is not included, and the time of a running thread is as of
// its last scheduler tick. Where the kernel does not account
// interrupts apart (IRQ_TIME_ACCOUNTING off), it includes the softirqs that
// interrupted the threads, but not those that interrupted an idle CPU, such as
// the expiry of a flush timeout, which wakes the NAPI thread.
func CPUTime(pids ...int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		tasks, err := os.ReadDir(dir)
		if err != nil {
			return 0, fmt.Errorf("list the threads of process %d: %w", pid, err)
		}
		for _, task := range tasks {
			data, err := os.ReadFile(filepath.Join(dir, task.Name(), "schedstat"))
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // the thread ended meanwhile
			}
			if err != nil {
				return 0, fmt.Errorf("read the CPU time of thread %s: %w", task.Name(), err)
			}
			spent, err := parseSchedstat(data)
			if err != nil {
				return 0, fmt.Errorf("CPU time of thread %s: %w", task.Name(), err)
			}
			total += spent
		}
	}
	return total, nil
}

func parseSchedstat(data []byte) (time.Duration, error) {
	fields := bytes.Fields(data)
	if len(fields) != 3 {
		return 0, fmt.Errorf("schedstat line %q has %d fields, want 3", data, len(fields))
	}
	ns, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat: %w", err)
	}
	return time.Duration(ns), nil
}
