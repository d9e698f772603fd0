package probe

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capability is one that autotune uses and what for.
type capability struct {
	number int
	name   string
	uses   string
}

func capabilities() []capability {
	return []capability{
		{unix.CAP_BPF, "CAP_BPF", "load the probes"},
		{unix.CAP_PERFMON, "CAP_PERFMON", "let the probes read kernel memory and attach to tracepoints"},
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "enter other network namespaces and mount tracefs privately"},
		{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "set the busy poll parameters of processes of other users"},
		{unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "raise limits; not needed where BPF memory is charged to the cgroup (5.11 and later)"},
	}
}

// effectiveCapabilities returns the mask that this process has now, as the
// kernel prints it in /proc/self/status below root.
func effectiveCapabilities(root string) (uint64, error) {
	f, err := os.Open(filepath.Join(root, "proc/self/status"))
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), "CapEff:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("read capabilities: %w", err)
		}
		return mask, nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return 0, fmt.Errorf("read capabilities: no CapEff line")
}

// lackingForBPF names the capabilities without which the kernel refuses
// tracing programs.
func lackingForBPF(mask uint64) []string {
	if mask&(1<<unix.CAP_SYS_ADMIN) != 0 {
		return nil
	}
	var lacking []string
	if mask&(1<<unix.CAP_BPF) == 0 {
		lacking = append(lacking, "CAP_BPF")
	}
	if mask&(1<<unix.CAP_PERFMON) == 0 {
		lacking = append(lacking, "CAP_PERFMON")
	}
	return lacking
}
