package probe

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readInterrupts returns how often a line has interrupted each CPU. Both files
// tell it; that of sysfs (per_cpu_count_show in kernel/irq/irqdesc.c) only of
// this line, where /proc/interrupts prints all, which takes milliseconds on a
// large host. Not every kernel has the former. The error wraps
// [fs.ErrNotExist] when there is no such line.
func readInterrupts(sysfs, procfs string, irq uint32) (map[int]uint32, error) {
	line := strconv.FormatUint(uint64(irq), 10)
	data, err := os.ReadFile(filepath.Join(sysfs, "kernel/irq", line, "per_cpu_count"))
	if err == nil {
		counts, err := parseInterrupts(string(data))
		if err != nil {
			return nil, fmt.Errorf("count interrupts %d: %w", irq, err)
		}
		return counts, nil
	}
	table, err := readCPUTable(procfs, "interrupts")
	if err != nil {
		return nil, fmt.Errorf("count interrupts %d: %w", irq, err)
	}
	counts := table[line]
	if len(counts) == 0 {
		return nil, fmt.Errorf("count interrupts %d: %w", irq, fs.ErrNotExist)
	}
	return counts, nil
}

// parseInterrupts parses counters of 32 bits, which wrap, between commas: one
// for each possible CPU, whose order stands for their numbers.
func parseInterrupts(text string) (map[int]uint32, error) {
	counts := make(map[int]uint32)
	for field := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("per_cpu_count: %w", err)
		}
		counts[len(counts)] = uint32(n)
	}
	return counts, nil
}

// interruptsBetween sums what the CPUs of both readings have gained; nil when
// one came or went, which is a new baseline.
func interruptsBetween(last, now map[int]uint32) *uint64 {
	if len(last) == 0 || len(last) != len(now) {
		return nil
	}
	var sum uint64
	for cpu, n := range now {
		before, ok := last[cpu]
		if !ok {
			return nil
		}
		sum += uint64(wrapping(before, n))
	}
	return &sum
}
