package probe

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// userHz is the unit of the times in /proc/PID/stat and /proc/stat: USER_HZ,
// 100 on every architecture that autotune is built for.
const userHz = 100

// errNoTask: the process or thread no longer exists.
var errNoTask = errors.New("no such task")

// parseSchedstat returns the first field of a schedstat file: the time spent
// on a CPU (proc_pid_schedstat in fs/proc/base.c).
func parseSchedstat(data []byte) (time.Duration, error) {
	field, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte(" "))
	ns, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat: %w", err)
	}
	return time.Duration(ns), nil
}

// The numbers of fields in a stat file, from 1 (do_task_stat in
// fs/proc/array.c).
const (
	statUtime = 14
	statStime = 15
	statStart = 22
)

// statTicks sums fields of a stat file that count ticks. The command in
// parentheses may hold anything; what follows it starts with field 3.
func statTicks(data []byte, numbers ...int) (sum time.Duration, err error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0, errors.New("stat: no command in parentheses")
	}
	fields := bytes.Fields(data[end+1:])
	for _, number := range numbers {
		if len(fields) <= number-3 {
			return 0, fmt.Errorf("stat: %d fields after the command", len(fields))
		}
		n, err := strconv.ParseUint(string(fields[number-3]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat: %w", err)
		}
		if n > math.MaxInt32*userHz {
			return 0, fmt.Errorf("stat: field %d: %d ticks are more than 68 years", number, n)
		}
		sum += time.Duration(n) * (time.Second / userHz)
	}
	return sum, nil
}

// parseStatTime returns utime + stime of a stat file.
func parseStatTime(data []byte) (time.Duration, error) {
	return statTicks(data, statUtime, statStime)
}

// parseStatStart returns when the process of a stat file started, since boot.
func parseStatStart(data []byte) (time.Duration, error) { return statTicks(data, statStart) }

// taskTime returns the CPU time of one thread, in nanoseconds where the kernel
// keeps them (SCHED_INFO) and in ticks otherwise.
func taskTime(procfs string, pid, tid int) (time.Duration, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid), "task", strconv.Itoa(tid))
	data, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err == nil {
		t, perr := parseSchedstat(data)
		// Without SCHED_INFO the file is all zeros.
		if perr == nil && t > 0 {
			return t, nil
		}
	}
	data, err = os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		if gone(err) {
			err = errNoTask
		}
		return 0, fmt.Errorf("read CPU time of task %d: %w", tid, err)
	}
	return parseStatTime(data)
}

// taskTimes fills times with the CPU time of each thread of a process.
func taskTimes(procfs string, pid int, times map[int]time.Duration) error {
	clear(times)
	entries, err := os.ReadDir(filepath.Join(procfs, strconv.Itoa(pid), "task"))
	if err != nil {
		if gone(err) {
			err = errNoTask
		}
		return fmt.Errorf("list threads of process %d: %w", pid, err)
	}
	for _, entry := range entries {
		tid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		t, err := taskTime(procfs, pid, tid)
		if errors.Is(err, errNoTask) {
			continue
		}
		if err != nil {
			return err
		}
		times[tid] = t
	}
	if len(times) == 0 {
		return fmt.Errorf("list threads of process %d: %w", pid, errNoTask)
	}
	return nil
}

// processComm returns the name of a process.
func processComm(procfs string, pid int) (string, error) {
	data, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "comm"))
	if err != nil {
		if gone(err) {
			err = errNoTask
		}
		return "", fmt.Errorf("read name of process %d: %w", pid, err)
	}
	return string(bytes.TrimSuffix(data, []byte("\n"))), nil
}
