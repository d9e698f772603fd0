package busypoll

import (
	"bufio"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// facts decide whether the kernel lets one process reach into another
// (ptrace_may_access in kernel/ptrace.c, with PTRACE_MODE_ATTACH_REALCREDS).
type facts struct {
	// target and own are the user IDs of the two; known says whether they
	// could be read.
	target, own int
	known       bool
	// otherNamespace: the target is in another user namespace.
	otherNamespace bool
	// ptrace: the caller has CAP_SYS_PTRACE, in its own user namespace.
	ptrace bool
	// yama is kernel.yama.ptrace_scope; nil without Yama.
	yama *int
}

// capSysPtrace is CAP_SYS_PTRACE of include/uapi/linux/capability.h.
const capSysPtrace = 19

// initUserNamespace is PROC_USER_INIT_INO of include/linux/proc_ns.h.
const initUserNamespace = "user:[4026531837]"

// readFacts reads them from a mount of procfs.
func readFacts(proc fs.FS, pid int, link func(string) (string, error)) facts {
	var f facts
	target, targetErr := statusOf(proc, strconv.Itoa(pid))
	own, ownErr := statusOf(proc, "self")
	if targetErr == nil && ownErr == nil {
		f.target, f.own, f.known = target.uid, own.uid, true
	}
	f.ptrace = own.capabilities&(1<<capSysPtrace) != 0
	theirs, theirsErr := link(path.Join(strconv.Itoa(pid), "ns/user"))
	ours, oursErr := link("self/ns/user")
	// Reading the target's takes the same access, so that it is refused tells
	// nothing to a process of the initial namespace, where all are below.
	f.otherNamespace = oursErr == nil && (theirsErr == nil && theirs != ours || theirsErr != nil && ours != initUserNamespace)
	if data, err := fs.ReadFile(proc, "sys/kernel/yama/ptrace_scope"); err == nil {
		if scope, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			f.yama = &scope
		}
	}
	return f
}

// denied says why access was refused.
func (f facts) denied() (Reason, string) {
	scope := 0
	if f.yama != nil {
		scope = *f.yama
	}
	switch {
	case scope >= 3:
		return ReasonYama, "kernel.yama.ptrace_scope is 3, which forbids it to everybody until the next boot: " +
			"boot with a lower value, or have the application set its own parameters (EPIOCSPARAMS)"
	case f.otherNamespace:
		return ReasonUserNamespace, "the process is in another user namespace: run with CAP_SYS_PTRACE in that one or above it (as root of the host)"
	case f.ptrace:
		return ReasonProtected, "the process is protected although CAP_SYS_PTRACE is held: a security module or seccomp filter (of a container) forbids it; " +
			"allow pidfd_getfd and ptrace access there"
	case f.known && f.target != f.own:
		return ReasonUser, fmt.Sprintf("the process is of user %d: run as that user, as root, or with CAP_SYS_PTRACE", f.target)
	case scope >= 1:
		return ReasonYama, fmt.Sprintf("kernel.yama.ptrace_scope is %d, which asks for CAP_SYS_PTRACE also among one user's processes: run as root", scope)
	default:
		return ReasonProtected, "the process does not let others of its user reach into it (PR_SET_DUMPABLE, a set-user-ID program): run as root, or with CAP_SYS_PTRACE"
	}
}

type status struct {
	uid          int
	capabilities uint64
}

// statusOf reads /proc/PID/status: the real user ID and the effective
// capabilities.
func statusOf(proc fs.FS, process string) (s status, err error) {
	f, err := proc.Open(path.Join(process, "status"))
	if err != nil {
		return s, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "Uid":
			if s.uid, err = strconv.Atoi(fields[0]); err != nil {
				return s, err
			}
		case "CapEff":
			if s.capabilities, err = strconv.ParseUint(fields[0], 16, 64); err != nil {
				return s, err
			}
		}
	}
	return s, lines.Err()
}
