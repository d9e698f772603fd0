//go:build linux

package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeSysctl writes a file below /proc/sys.
func (ns *Namespace) writeSysctl(path, value string) error {
	return ns.Do(func() error { return writeFile(filepath.Join("/proc/sys", path), value) })
}

// writeSysfs writes a file below /sys as the namespace shows it.
func (ns *Namespace) writeSysfs(path, value string) error {
	return ns.DoWithSysfs(func() error { return writeFile(filepath.Join("/sys", path), value) })
}

func writeFile(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(value); err != nil {
		_ = file.Close()
		return fmt.Errorf("write %q: %w", value, err)
	}
	return file.Close()
}

// cpuMask is a set of one CPU as sysfs takes it: 32-bit groups of hexadecimal
// digits, the highest first, joined by commas (bitmap_parse in lib/bitmap-str.c).
func cpuMask(cpu int) string {
	mask := fmt.Sprintf("%x", uint32(1)<<(cpu%32))
	return mask + strings.Repeat(",00000000", cpu/32)
}
