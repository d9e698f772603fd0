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

// softnetRow is one CPU's row of /proc/net/softnet_stat
// (softnet_seq_show in net/core/net-procfs.c). The counters are 32 bits wide
// and wrap.
type softnetRow struct {
	cpu       int
	processed uint32
	dropped   uint32
	squeezed  uint32
}

// The columns of a row, from 0. Kernels before 5.10 print 9 (before 2.6.35),
// 10 or 11 columns and no CPU number; a row is printed for each online CPU
// only.
const (
	softnetProcessed  = 0
	softnetDropped    = 1
	softnetSqueezed   = 2
	softnetCPU        = 12
	softnetMinColumns = 9
)

// parseSoftnet parses softnet_stat. Rows without a CPU number belong to the
// CPUs of online, in order.
func parseSoftnet(r io.Reader, online []int) ([]softnetRow, error) {
	var rows []softnetRow
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		line := len(rows) + 1
		if len(fields) < softnetMinColumns {
			return nil, fmt.Errorf("softnet_stat line %d has %d columns, at least %d expected", line, len(fields), softnetMinColumns)
		}
		values := make([]uint32, len(fields))
		for i, field := range fields {
			v, err := strconv.ParseUint(field, 16, 32)
			if err != nil {
				return nil, fmt.Errorf("softnet_stat line %d column %d: %w", line, i+1, err)
			}
			values[i] = uint32(v)
		}
		row := softnetRow{
			processed: values[softnetProcessed],
			dropped:   values[softnetDropped],
			squeezed:  values[softnetSqueezed],
		}
		switch {
		case len(values) > softnetCPU:
			row.cpu = int(values[softnetCPU])
		case len(rows) < len(online):
			row.cpu = online[len(rows)]
		default:
			return nil, fmt.Errorf("softnet_stat line %d has no CPU number, and only %d CPUs are online", line, len(online))
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("softnet_stat: %w", err)
	}
	return rows, nil
}

func readSoftnet(procfs string, online []int) ([]softnetRow, error) {
	// The file shows the same counters in every network namespace.
	f, err := os.Open(filepath.Join(procfs, "net/softnet_stat"))
	if err != nil {
		return nil, fmt.Errorf("read softnet_stat: %w", err)
	}
	defer f.Close()
	return parseSoftnet(f, online)
}
