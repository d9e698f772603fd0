package placement

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// Host reads and writes the items of this machine.
type Host struct {
	// Procfs is where proc is mounted.
	Procfs string
	// Queue returns the directory of a receive queue in a sysfs that shows its
	// device, for [KindRPS].
	Queue func(model.Queue) (*os.Root, string, error)
}

// Read implements [System].
func (h Host) Read(i Item) (string, error) {
	switch i.Kind {
	case KindNAPIThread, KindThread:
		t, err := h.Thread(i.TID)
		if err != nil {
			return "", err
		}
		if t.Started != i.Started {
			return "", fmt.Errorf("read the CPUs of %v: it has ended, and another has its ID now: %w", i, model.ErrGone)
		}
		return model.FormatCPUList(t.CPUs), nil
	case KindIRQ:
		text, err := os.ReadFile(h.irq(i.IRQ))
		if err != nil {
			return "", explain("read the CPUs of "+i.String(), err)
		}
		return normal(string(text))
	default:
		root, dir, err := h.Queue(i.Queue)
		if err != nil {
			return "", fmt.Errorf("read the %v: %w", i, err)
		}
		text, err := fs.ReadFile(root.FS(), dir+"/rps_cpus")
		if err != nil {
			return "", explain("read the "+i.String(), err)
		}
		cpus, err := parseMask(string(text))
		if err != nil {
			return "", fmt.Errorf("read the %v: %w", i, err)
		}
		return model.FormatCPUList(cpus), nil
	}
}

// Write implements [System].
func (h Host) Write(i Item, list string) error {
	cpus, err := model.ParseCPUList(list)
	if err != nil {
		return err
	}
	switch i.Kind {
	case KindNAPIThread, KindThread:
		return h.setThread(i, cpus)
	case KindIRQ:
		f, err := os.OpenFile(h.irq(i.IRQ), os.O_WRONLY, 0)
		if err != nil {
			return explain(fmt.Sprintf("set the CPUs of %v", i), err)
		}
		_, err = f.WriteString(list)
		return explain(fmt.Sprintf("set the CPUs of %v", i), errors.Join(err, f.Close()))
	default:
		root, dir, err := h.Queue(i.Queue)
		if err != nil {
			return fmt.Errorf("set the %v: %w", i, err)
		}
		f, err := root.OpenFile(dir+"/rps_cpus", os.O_WRONLY, 0)
		if err != nil {
			return explain("set the "+i.String(), err)
		}
		_, err = f.WriteString(formatMask(cpus))
		return explain("set the "+i.String(), errors.Join(err, f.Close()))
	}
}

// setThread sets the CPUs of the very thread that the item names: its ID could
// be another's by now.
func (h Host) setThread(i Item, cpus []int) error {
	t, err := h.Thread(i.TID)
	if err != nil {
		return err
	}
	if t.Started != i.Started {
		return fmt.Errorf("set the CPUs of %v: it has ended, and another has its ID now: %w", i, model.ErrGone)
	}
	if i.Kind == KindNAPIThread && !h.kernelThread(i.TID) {
		return fmt.Errorf("set the CPUs of %v: process %d is no kernel thread, so the kernel counts processes in another PID namespace than this one: %w",
			i, i.TID, model.ErrReadOnly)
	}
	var set unix.CPUSet
	if len(cpus) > 0 && slices.Max(cpus) >= 8*len(set)*8 {
		return fmt.Errorf("set the CPUs of %v: CPU %d is above what sched_setaffinity takes here: %w", i, slices.Max(cpus), model.ErrReadOnly)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return explain(fmt.Sprintf("set the CPUs of %v: sched_setaffinity", i), unix.SchedSetaffinity(i.TID, &set))
}

// Thread reads when a thread started and where it may run, also on CPUs that are
// offline now, which sched_getaffinity(2) leaves out: only so the original can
// be put back whole.
func (h Host) Thread(tid int) (Thread, error) {
	stat, err := os.ReadFile(filepath.Join(h.Procfs, strconv.Itoa(tid), "stat"))
	if err != nil {
		return Thread{}, explain(fmt.Sprintf("read thread %d", tid), err)
	}
	started, err := statField(string(stat), statStart)
	if err != nil {
		return Thread{}, fmt.Errorf("read thread %d: %w", tid, err)
	}
	status, err := os.ReadFile(filepath.Join(h.Procfs, strconv.Itoa(tid), "status"))
	if err != nil {
		return Thread{}, explain(fmt.Sprintf("read thread %d", tid), err)
	}
	t := Thread{TID: tid, Started: started}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			t.CPUs, err = model.ParseCPUList(list)
			return t, err
		}
	}
	return Thread{}, fmt.Errorf("read thread %d: its status has no Cpus_allowed_list", tid)
}

// Interrupt reads where an interrupt may go and goes.
func (h Host) Interrupt(number uint32) (IRQ, error) {
	irq := IRQ{Number: number}
	text, err := os.ReadFile(h.irq(number))
	if err != nil {
		return irq, explain(fmt.Sprintf("read the CPUs of interrupt %d", number), err)
	}
	if irq.Affinity, err = model.ParseCPUList(string(text)); err != nil {
		return irq, err
	}
	// Not every architecture tells.
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(h.irq(number)), "effective_affinity_list")); err == nil {
		irq.Effective, _ = model.ParseCPUList(string(text))
	}
	return irq, nil
}

// Balancer returns the process ID of a running irqbalance, 0 for none.
func (h Host) Balancer() int {
	entries, _ := os.ReadDir(h.Procfs)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(h.Procfs, e.Name(), "comm"))
		if err == nil && strings.TrimSpace(string(comm)) == "irqbalance" {
			return pid
		}
	}
	return 0
}

func (h Host) irq(number uint32) string {
	return filepath.Join(h.Procfs, "irq", strconv.FormatUint(uint64(number), 10), "smp_affinity_list")
}

// kernelThread reports whether a process is one of the kernel's.
func (h Host) kernelThread(pid int) bool {
	stat, err := os.ReadFile(filepath.Join(h.Procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	flags, err := statField(string(stat), statFlags)
	return err == nil && flags&pfKthread != 0
}

// The numbers of fields in a stat file, from 1 (do_task_stat in
// fs/proc/array.c), and PF_KTHREAD of include/linux/sched.h.
const (
	statFlags = 9
	statStart = 22
	pfKthread = 0x00200000
)

// statField returns a field after the command in parentheses, which may hold
// anything.
func statField(stat string, number int) (uint64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= number-3 {
		return 0, fmt.Errorf("stat: %d fields after the command", len(fields))
	}
	v, err := strconv.ParseUint(fields[number-3], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return v, nil
}

// normal writes a list of CPUs as this package compares it.
func normal(list string) (string, error) {
	cpus, err := model.ParseCPUList(list)
	if err != nil {
		return "", err
	}
	slices.Sort(cpus)
	return model.FormatCPUList(slices.Compact(cpus)), nil
}

// parseMask reads the kernel's mask format (bitmap_parse in lib/bitmap-str.c):
// hexadecimal, in groups of 32 bits, the highest first.
func parseMask(text string) ([]int, error) {
	groups := strings.Split(strings.TrimSpace(text), ",")
	if len(groups)*32 > model.MaxCPU {
		return nil, fmt.Errorf("CPU mask of %d groups", len(groups))
	}
	var cpus []int
	for i := range groups {
		group := groups[len(groups)-1-i]
		bits, err := strconv.ParseUint(group, 16, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU mask %q: %w", strings.TrimSpace(text), err)
		}
		for bit := range 32 {
			if bits&(1<<bit) != 0 {
				cpus = append(cpus, 32*i+bit)
			}
		}
	}
	return cpus, nil
}

// formatMask writes CPUs, ascending, as [parseMask] reads them.
func formatMask(cpus []int) string {
	if len(cpus) == 0 {
		return "0"
	}
	groups := make([]uint32, slices.Max(cpus)/32+1)
	for _, cpu := range cpus {
		groups[cpu/32] |= 1 << (cpu % 32)
	}
	slices.Reverse(groups)
	text := make([]string, len(groups))
	for i, g := range groups {
		text[i] = fmt.Sprintf("%08x", g)
	}
	return strings.Join(text, ",")
}

// explain says what an errno means.
func explain(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: %w: %w", op, err, model.ErrGone)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s: %w: run as root: %w", op, err, model.ErrReadOnly)
	case errors.Is(err, unix.EIO):
		// A managed or per-CPU interrupt (irq_can_set_affinity_usr).
		return fmt.Errorf("%s: %w: the kernel manages this interrupt by itself: %w", op, err, model.ErrReadOnly)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s: %w: none of these CPUs is online and allowed (cpuset): %w", op, err, model.ErrReadOnly)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%s: %w: %w", op, err, model.ErrBusy)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}
