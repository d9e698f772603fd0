package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/model"
)

type busypollListCmd struct {
	selection `embed:""`
	Sockets   bool `help:"Also list TCP, UDP and AF_XDP sockets."`
	JSON      bool `help:"One object per line." name:"json"`
}

// busypollLine is one epoll context or socket in the output of busypoll list
// --json.
type busypollLine struct {
	Kind string `json:"kind"` // "epoll", "tcp", "udp" or "xdp"
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	FD   int    `json:"fd"`
	// The parameters are null where only /proc tells of the context.
	Usecs  *uint32 `json:"busy_poll_usecs"`
	Budget *uint16 `json:"busy_poll_budget"`
	Prefer *bool   `json:"prefer_busy_poll"`
	// NAPIIDs are the instances that the sockets receive from; null where
	// that is not known. Queues and NAPICPU are in their order, with null for
	// an instance that serves no queue any more, or runs on no one CPU.
	NAPIIDs []uint32  `json:"napi_ids"`
	Mixed   *bool     `json:"mixed"`
	Queues  []*string `json:"queues"`
	NAPICPU []*int    `json:"napi_cpu"`
	// ThreadCPUs are those that the threads of the process ran on last.
	ThreadCPUs []int `json:"thread_cpus"`
}

// Run implements the command.
func (c *busypollListCmd) Run(ctx context.Context, std streams) (err error) {
	sel, err := c.selector(true)
	if err != nil {
		return err
	}
	apps := &applications{}
	defer func() { err = errors.Join(err, apps.Close()) }()
	rows, err := selected(ctx, apps, sel, c.Sockets)
	if err != nil {
		return err
	}
	if missing, _ := apps.Missing(); missing != nil {
		fmt.Fprintf(std.err, "without %s: %s (%v)\n", missing.Name, missing.Lost, missing.Err)
	}
	if len(rows) == 0 {
		if err := lookable("/proc", sel); err != nil {
			return err
		}
	}
	places := findPlaces(ctx, rows)
	cpus := map[int][]int{}
	var lines []busypollLine
	for i := range rows {
		pid := rows[i].PID
		if _, known := cpus[pid]; !known {
			cpus[pid] = threadCPUs("/proc", pid)
		}
		lines = append(lines, busypollLineOf(&rows[i], places, cpus[pid]))
	}
	if c.JSON {
		for _, line := range lines {
			if err := printJSON(std.out, line); err != nil {
				return err
			}
		}
		return nil
	}
	return printBusypoll(std.out, sel, lines)
}

func busypollLineOf(d *busypoll.Descriptor, places map[uint32]napiPlace, threads []int) busypollLine {
	line := busypollLine{Kind: string(d.Kind), PID: d.PID, Comm: d.Comm, FD: d.FD, ThreadCPUs: threads}
	if d.Kind == busypoll.KindSocket {
		line.Kind = d.Protocol
	}
	if d.Params != nil {
		line.Usecs, line.Budget, line.Prefer = &d.Params.Usecs, &d.Params.Budget, &d.Params.Prefer
	}
	if d.Opaque {
		return line
	}
	mixed := d.Mixed()
	line.Mixed, line.NAPIIDs = &mixed, append([]uint32{}, d.NAPIIDs...)
	line.Queues, line.NAPICPU = []*string{}, []*int{}
	for _, id := range d.NAPIIDs {
		p := places[id]
		line.Queues = append(line.Queues, p.queue)
		line.NAPICPU = append(line.NAPICPU, p.cpu)
	}
	return line
}

// napiPlace is where a NAPI instance is.
type napiPlace struct {
	// queue is interface and queue, "eth0:1".
	queue *string
	cpu   *int
}

// findPlaces looks the instances up in the network namespaces of the processes.
// What cannot be looked up is left out: the listing says that it is not known.
func findPlaces(ctx context.Context, rows []busypoll.Descriptor) map[uint32]napiPlace {
	places := map[uint32]napiPlace{}
	seen := map[string]bool{}
	for i := range rows {
		if len(rows[i].NAPIIDs) == 0 {
			continue
		}
		namespace, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(rows[i].PID), "ns/net"))
		if err != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		host, err := actuate.Open(ctx, actuate.Options{Namespace: actuate.NamespaceRef{PID: rows[i].PID}, ReadOnly: true})
		if err != nil {
			continue
		}
		napis, _ := host.NAPIs(ctx)
		addPlaces(places, napis)
		_ = host.Close()
	}
	return places
}

func addPlaces(places map[uint32]napiPlace, napis []model.NAPI) {
	serving := servingCPUs(napis)
	for _, n := range napis {
		queue := fmt.Sprintf("%s:%d", n.Ifname, n.Queue.Index)
		p := napiPlace{queue: &queue}
		if cpus := serving[n.Queue]; len(cpus) == 1 {
			p.cpu = &cpus[0]
		}
		places[n.ID] = p
	}
}

// threadCPUs returns the CPUs that the threads of a process ran on last; nil
// where the process is gone.
func threadCPUs(procfs string, pid int) []int {
	files, err := filepath.Glob(filepath.Join(procfs, strconv.Itoa(pid), "task", "[0-9]*", "stat"))
	if err != nil {
		return nil
	}
	var cpus []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if cpu, ok := processorOf(string(data)); ok && !slices.Contains(cpus, cpu) {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return cpus
}

// processorOf reads field 39 of proc_pid_stat(5).
func processorOf(stat string) (int, bool) {
	const state, processor = 3, 39
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= processor-state {
		return 0, false
	}
	cpu, err := strconv.Atoi(fields[processor-state])
	return cpu, err == nil
}

func printBusypoll(w io.Writer, sel model.Selector, lines []busypollLine) error {
	if len(lines) == 0 {
		fmt.Fprintf(w, "no process that %v selects has an epoll context\n", sel)
		return nil
	}
	t := newTable(w, "PID", "COMM", "FD", "KIND", "USECS", "BUDGET", "PREFER", "NAPI", "QUEUE", "NAPI CPU", "THREAD CPUS", "MIXED")
	for _, line := range lines {
		t.row(fmt.Sprint(line.PID), line.Comm, fmt.Sprint(line.FD), line.Kind, orDash(line.Usecs), orDash(line.Budget), onOff(line.Prefer),
			joined(line.NAPIIDs, func(id uint32) string { return fmt.Sprint(id) }), joined(line.Queues, orDash[string]), joined(line.NAPICPU, orDash[int]),
			joined(line.ThreadCPUs, strconv.Itoa), yesNo(line.Mixed))
	}
	return t.flush()
}

func joined[T any](list []T, text func(T) string) string {
	if len(list) == 0 {
		return "-"
	}
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = text(v)
	}
	return strings.Join(parts, ",")
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "-"
	case *b:
		return "yes"
	default:
		return "no"
	}
}
