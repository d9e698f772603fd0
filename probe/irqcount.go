package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readInterrupts returns how often a line has interrupted each possible CPU
// (per_cpu_count_show in kernel/irq/irqdesc.c). /proc/interrupts tells the same
// of all lines at once, which on a large host takes milliseconds to print.
func readInterrupts(sysfs string, irq uint32) ([]uint32, error) {
	data, err := os.ReadFile(filepath.Join(sysfs, "kernel/irq", strconv.FormatUint(uint64(irq), 10), "per_cpu_count"))
	if err != nil {
		return nil, fmt.Errorf("count interrupts %d: %w", irq, err)
	}
	counts, err := parseInterrupts(string(data))
	if err != nil {
		return nil, fmt.Errorf("count interrupts %d: %w", irq, err)
	}
	return counts, nil
}

// parseInterrupts parses counters of 32 bits, which wrap, between commas.
func parseInterrupts(text string) ([]uint32, error) {
	var counts []uint32
	for field := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("per_cpu_count: %w", err)
		}
		counts = append(counts, uint32(n))
	}
	return counts, nil
}
