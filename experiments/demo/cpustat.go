package demo

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// userHZ is the unit of /proc/stat, ticks per second; the kernel shows 100 to
// user space on every architecture that Go runs on.
const userHZ = 100

// taken returns how long a CPU was not free for the idle task since boot: the
// time of all tasks and interrupts on it, and what the hypervisor stole.
func taken(cpu int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the time of CPU %d: %w", cpu, err)
	}
	return parseTaken(data, cpu)
}

// parseTaken reads the line of a CPU: user, nice, system, idle, iowait, irq,
// softirq, steal, and guest times that user and nice already hold
// (show_stat in fs/proc/stat.c).
func parseTaken(data []byte, cpu int) (time.Duration, error) {
	const idle, iowait, steal = 3, 4, 7
	label := []byte(fmt.Sprintf("cpu%d", cpu))
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20) // the line of interrupts is long
	for scanner.Scan() {
		fields := bytes.Fields(scanner.Bytes())
		if len(fields) == 0 || !bytes.Equal(fields[0], label) {
			continue
		}
		var ticks uint64
		for i, field := range fields[1:] {
			if i == idle || i == iowait || i > steal {
				continue
			}
			n, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("time of CPU %d: %w", cpu, err)
			}
			ticks += n
		}
		return time.Duration(ticks) * (time.Second / userHZ), nil
	}
	if err := scanner.Err(); err != nil {
		return 0, fmt.Errorf("time of CPU %d: %w", cpu, err)
	}
	return 0, fmt.Errorf("time of CPU %d: /proc/stat has no line for it", cpu)
}
