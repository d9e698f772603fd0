package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// loadNice is the nice value of the load's processes and the NAPI's thread.
// All of them have the same, so that they share their CPUs as before; what
// else the machine does, the tuner too, has to stand back.
const loadNice = -20

// apart makes the command the leader of a session of its own. The terminal's
// Ctrl-C then reaches this process alone, which ends things in order; and the
// scheduler gives the session a group of its own, whose weight can be set.
func apart(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	return cmd
}

// prioritise sets the nice value of all present threads of the processes, and
// of their sessions: with autogroups (kernel/sched/autogroup.c) the former
// counts within a session only. A kernel thread is in no such group.
func prioritise(pids ...int) error {
	for _, pid := range pids {
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(loadNice)), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("set the nice value of the session of process %d to %d: %w", pid, loadNice, err)
		}
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("list the threads of process %d: %w", pid, err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("list the threads of process %d: %w", pid, err)
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, loadNice); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set the nice value of thread %d to %d: %w", tid, loadNice, err)
			}
		}
	}
	return nil
}
