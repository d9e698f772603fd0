package probe

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cpuTable is what /proc/interrupts or /proc/softirqs counts, by line and CPU.
// Counters are 32 bits wide and wrap. A line without a counter per CPU has an
// entry without CPUs.
type cpuTable map[string]map[int]uint32

// parseCPUTable parses a table whose first line names the CPUs of its columns:
// the online ones in /proc/interrupts (show_interrupts in kernel/irq/proc.c),
// the possible ones in /proc/softirqs (fs/proc/softirqs.c). The counters may
// follow the colon without a space, and some lines have a total or nothing
// instead.
//
// prometheus/procfs splits at spaces, and numbers columns from 0 on.
func parseCPUTable(r io.Reader) (cpuTable, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("no line names the CPUs")
	}
	var cpus []int
	for _, field := range strings.Fields(lines.Text()) {
		number, ok := strings.CutPrefix(field, "CPU")
		cpu, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			return nil, fmt.Errorf("column %q is no CPU", field)
		}
		cpus = append(cpus, int(cpu))
	}
	table := make(cpuTable)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		label, rest, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("line %q has no colon", lines.Text())
		}
		table[strings.TrimSpace(label)] = countersOf(strings.Fields(rest), cpus)
	}
	return table, lines.Err()
}

// countersOf returns the counters of a line; none unless each CPU has one.
func countersOf(fields []string, cpus []int) map[int]uint32 {
	counts := make(map[int]uint32, len(cpus))
	if len(fields) < len(cpus) {
		return counts
	}
	for i, cpu := range cpus {
		n, err := strconv.ParseUint(fields[i], 10, 32)
		if err != nil {
			clear(counts)
			return counts
		}
		counts[cpu] = uint32(n)
	}
	return counts
}

func readCPUTable(procfs, name string) (cpuTable, error) {
	f, err := os.Open(filepath.Join(procfs, name))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	table, err := parseCPUTable(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return table, nil
}
