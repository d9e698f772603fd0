package demo

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// thisMachine describes the host.
func thisMachine() (Machine, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Machine{}, fmt.Errorf("ask for the kernel's version: %w", err)
	}
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Machine{}, fmt.Errorf("read the CPU's name: %w", err)
	}
	m := Machine{
		Kernel: unix.ByteSliceToString(name.Release[:]),
		Arch:   runtime.GOARCH,
		CPUs:   runtime.NumCPU(),
		Device: "veth",
	}
	m.CPU, m.Virtual = parseCPUInfo(data)
	return m, nil
}

// parseCPUInfo returns the first CPU's name and whether the hypervisor flag is
// set. The fields differ by architecture; a name that is not there stays empty.
func parseCPUInfo(data []byte) (name string, virtual bool) {
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for scanner.Scan() {
		field, value, _ := strings.Cut(scanner.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(field) {
		case "model name":
			if name == "" {
				name = value
			}
		case "flags":
			if strings.Contains(" "+value+" ", " hypervisor ") {
				virtual = true
			}
		}
	}
	return name, virtual
}

// twoCPUs returns the CPUs for the server and the client, the first two that
// the process may use.
func twoCPUs() (server, client int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, fmt.Errorf("ask which CPUs can be used: %w", err)
	}
	var found []int
	for cpu := 0; cpu < 8*len(set)*8 && len(found) < 2; cpu++ {
		if set.IsSet(cpu) {
			found = append(found, cpu)
		}
	}
	if len(found) < 2 {
		return 0, 0, fmt.Errorf("%w: server and client need a CPU each, and only %d can be used", ErrCannotRun, len(found))
	}
	return found[0], found[1], nil
}
