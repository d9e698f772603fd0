package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"autotune/model"
)

// Nodes returns the NUMA node of each CPU below the mount point of sysfs; nil
// on a kernel without NUMA, where all are of one.
func Nodes(sysfs string) map[int]int {
	dirs, _ := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*"))
	var out map[int]int
	for _, dir := range dirs {
		node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		list, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			continue
		}
		cpus, err := model.ParseCPUList(string(list))
		if err != nil {
			continue
		}
		for _, cpu := range cpus {
			if out == nil {
				out = map[int]int{}
			}
			out[cpu] = node
		}
	}
	return out
}
