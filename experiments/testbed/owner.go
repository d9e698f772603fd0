//go:build linux

package testbed

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// name is what a bed's namespaces are called: who owns them can be read from
// it by any process, without a state file that could be lost.
type name struct {
	prefix string
	owner  owner
	id     string
	side   string
}

// owner is the process that made a bed. The start time, in clock ticks since
// boot (field 22 of /proc/PID/stat), tells it from a later process that was
// given the same ID.
type owner struct {
	pid   int
	start uint64
}

var (
	namePattern   = regexp.MustCompile(`^autotune-([a-z0-9]+)-([0-9]+)-([0-9]+)-([0-9a-f]{8})-(server|client)$`)
	prefixPattern = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
)

func newName(prefix string) (name, error) {
	if !prefixPattern.MatchString(prefix) {
		return name{}, fmt.Errorf("prefix %q: want 1 to 32 of a-z and 0-9", prefix)
	}
	start, _, err := processStart(os.Getpid())
	if err != nil {
		return name{}, err
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return name{}, fmt.Errorf("draw a bed's ID: %w", err)
	}
	return name{
		prefix: prefix,
		owner:  owner{pid: os.Getpid(), start: start},
		id:     hex.EncodeToString(id[:]),
	}, nil
}

func (n name) of(side string) name {
	n.side = side
	return n
}

func (n name) String() string {
	return fmt.Sprintf("autotune-%s-%d-%d-%s-%s", n.prefix, n.owner.pid, n.owner.start, n.id, n.side)
}

// parseName reports whether s is the name of a bed's namespace.
func parseName(s string) (name, bool) {
	m := namePattern.FindStringSubmatch(s)
	if m == nil {
		return name{}, false
	}
	pid, err := strconv.Atoi(m[2])
	if err != nil || pid <= 0 {
		return name{}, false
	}
	start, err := strconv.ParseUint(m[3], 10, 64)
	if err != nil {
		return name{}, false
	}
	return name{prefix: m[1], owner: owner{pid: pid, start: start}, id: m[4], side: m[5]}, true
}

// alive reports whether the owner still runs. A zombie does not: it was
// killed, and only its parent has not looked yet.
func (o owner) alive() bool {
	start, state, err := processStart(o.pid)
	return err == nil && start == o.start && state != 'Z' && state != 'X'
}

func processStart(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	start, state, err = parseStat(data)
	if err != nil {
		return 0, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return start, state, nil
}

// parseStat reads the state and the start time from a /proc/PID/stat line.
// The command name in parentheses may itself hold spaces and parentheses.
func parseStat(data []byte) (start uint64, state byte, err error) {
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("stat line %q has no command name", data)
	}
	fields := bytes.Fields(data[end+1:])
	const startField = 22 - 3 // the fields after the name begin with number 3
	if len(fields) <= startField || len(fields[0]) != 1 {
		return 0, 0, fmt.Errorf("stat line has %d fields after the command name, want more than %d", len(fields), startField)
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time in stat line: %w", err)
	}
	return start, fields[0][0], nil
}
