package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxCPU bounds the CPU numbers that a list may hold, above any that Linux can
// be built for (NR_CPUS, 8192 on x86).
const maxCPU = 1 << 16

// parseCPUList parses the kernel's list format, as bitmap_parselist in
// lib/bitmap-str.c reads it without its stride extension: "0-1,4-5,8". The
// result is in the order of the text. An empty list is valid.
func parseCPUList(text string) ([]int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := strconv.ParseUint(first, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", text, err)
		}
		high := low
		if isRange {
			if high, err = strconv.ParseUint(last, 10, 32); err != nil {
				return nil, fmt.Errorf("CPU list %q: %w", text, err)
			}
		}
		if high < low || high >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: range %s is not between 0 and %d", text, part, maxCPU-1)
		}
		if len(cpus)+int(high-low) >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: more than %d CPUs", text, maxCPU)
		}
		for cpu := low; cpu <= high; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// readPossibleCPUs returns the CPUs that may ever be online, as the kernel lists
// them below the sysfs mount point.
func readPossibleCPUs(sysfs string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(sysfs, "devices/system/cpu/possible"))
	if err != nil {
		return nil, fmt.Errorf("read possible CPUs: %w", err)
	}
	cpus, err := parseCPUList(string(data))
	if err != nil {
		return nil, fmt.Errorf("possible CPUs: %w", err)
	}
	return cpus, nil
}

// cpuSlots returns the number of elements that an array indexed by CPU number
// needs: one more than the highest of cpus. The numbers may have gaps.
func cpuSlots(cpus []int) int {
	slots := 1
	for _, cpu := range cpus {
		slots = max(slots, cpu+1)
	}
	return slots
}
