package model

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxCPU bounds the CPU numbers that a list may hold, above any that Linux can
// be built for (NR_CPUS, 8192 on x86).
const MaxCPU = 1 << 16

// ParseCPUList parses the kernel's list format, as bitmap_parselist in
// lib/bitmap-str.c reads it without its stride extension: "0-1,4-5,8". The
// result is in the order of the text. An empty list is valid.
func ParseCPUList(text string) ([]int, error) {
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
		if high < low || high >= MaxCPU {
			return nil, fmt.Errorf("CPU list %q: range %s is not between 0 and %d", text, part, MaxCPU-1)
		}
		if len(cpus)+int(high-low) >= MaxCPU {
			return nil, fmt.Errorf("CPU list %q: more than %d CPUs", text, MaxCPU)
		}
		for cpu := low; cpu <= high; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// FormatCPUList writes CPUs, ascending and each once, as the kernel does.
func FormatCPUList(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if end > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[end]))
		}
		i = end + 1
	}
	return b.String()
}
