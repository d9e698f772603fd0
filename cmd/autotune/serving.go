package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// servingCPUs tells which CPU polls each queue, where that is one: the CPU
// that its NAPI thread is pinned to, or else the one that its interrupt goes
// to. A queue whose CPU is left to the scheduler is missing.
func servingCPUs(napis []model.NAPI) map[model.Queue][]int {
	serving := make(map[model.Queue][]int)
	for _, n := range napis {
		cpu := -1
		switch {
		case n.PID != nil:
			cpu = pinnedTo(int(*n.PID))
		case n.IRQ != nil:
			cpu = deliveredTo(*n.IRQ)
		}
		if cpu >= 0 {
			serving[n.Queue] = []int{cpu}
		}
	}
	return serving
}

// pinnedTo returns the only CPU that a thread may run on, or -1.
func pinnedTo(pid int) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil || set.Count() != 1 {
		return -1
	}
	for cpu := range 8 * len(set) * 8 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	return -1
}

// deliveredTo returns the CPU that an interrupt is delivered to, or -1.
func deliveredTo(irq uint32) int {
	list, err := os.ReadFile(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", irq))
	if err != nil {
		return -1
	}
	cpu, err := strconv.Atoi(strings.TrimSpace(string(list)))
	if err != nil {
		return -1
	}
	return cpu
}
