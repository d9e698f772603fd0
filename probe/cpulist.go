package probe

import (
	"fmt"
	"os"
	"path/filepath"

	"autotune/model"
)

// readPossibleCPUs returns the CPUs that may ever be online, as the kernel lists
// them below the sysfs mount point.
func readPossibleCPUs(sysfs string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(sysfs, "devices/system/cpu/possible"))
	if err != nil {
		return nil, fmt.Errorf("read possible CPUs: %w", err)
	}
	cpus, err := model.ParseCPUList(string(data))
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
