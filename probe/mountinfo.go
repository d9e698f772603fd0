package probe

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mountPoints returns where file systems of a type are mounted, from a
// mountinfo file (proc_pid_mountinfo(5)).
func mountPoints(r io.Reader, fstype string) ([]string, error) {
	var points []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// Optional fields, any number of them, end with a hyphen.
		mount, source, ok := strings.Cut(lines.Text(), " - ")
		if !ok {
			return nil, fmt.Errorf("mountinfo: no separator in %q", lines.Text())
		}
		fields, types := strings.Fields(mount), strings.Fields(source)
		if len(fields) < 5 || len(types) < 1 {
			return nil, fmt.Errorf("mountinfo: too few fields in %q", lines.Text())
		}
		if types[0] == fstype {
			points = append(points, unescapeMount(fields[4]))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("mountinfo: %w", err)
	}
	return points, nil
}

// unescapeMount undoes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(path string) string {
	var out strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(path[i])
	}
	return out.String()
}
