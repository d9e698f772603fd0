package placement

import (
	"fmt"

	"autotune/model"
)

// Kind is what an item is.
type Kind string

// The kinds.
const (
	// KindNAPIThread is the kernel thread of a threaded NAPI instance. It is
	// found by the instance's pid attribute: its name can keep the ID of an
	// earlier instance.
	KindNAPIThread Kind = "napi_thread"
	// KindThread is a thread of an application.
	KindThread Kind = "thread"
	// KindIRQ is an interrupt: /proc/irq/N/smp_affinity_list.
	KindIRQ Kind = "irq"
	// KindRPS is the receive packet steering of a queue: rps_cpus in sysfs.
	KindRPS Kind = "rps"
)

// Item is one thing whose CPUs can be set. It is comparable, and names the same
// thing for as long as the machine is up: a thread by its ID and start time, a
// queue by its device, and an interrupt by its number.
type Item struct {
	Kind Kind `json:"kind"`
	// Queue is the receive queue that a NAPI thread or packet steering is of;
	// zero for others, which can serve several.
	Queue model.Queue `json:"queue"`
	// TID and Started name a thread; Started is its start in clock ticks since
	// boot (field 22 of /proc/PID/stat).
	TID     int    `json:"tid"`
	Started uint64 `json:"started_ticks"`
	IRQ     uint32 `json:"irq"`
}

func (i Item) String() string {
	switch i.Kind {
	case KindNAPIThread:
		return fmt.Sprintf("NAPI thread %d", i.TID)
	case KindThread:
		return fmt.Sprintf("thread %d", i.TID)
	case KindIRQ:
		return fmt.Sprintf("interrupt %d", i.IRQ)
	default:
		return fmt.Sprintf("receive packet steering of queue %d", i.Queue.Index)
	}
}

// Valid reports whether the item names something.
func (i Item) Valid() bool {
	switch i.Kind {
	case KindNAPIThread, KindThread:
		return i.TID > 0 && i.Started > 0
	case KindIRQ:
		return i.IRQ > 0
	case KindRPS:
		return i.Queue.Ifindex > 0 && i.Queue.Index >= 0
	default:
		return false
	}
}

// System reads and writes items. The value is a list of CPUs ("0-3,8"), for
// [KindRPS] empty where steering is off.
//
// Errors wrap [model.ErrGone] for what no longer exists, [model.ErrReadOnly]
// for what cannot be written here, and [model.ErrBusy].
type System interface {
	Read(Item) (string, error)
	Write(Item, string) error
}

// Move is one item to be set to other CPUs.
type Move struct {
	Item Item   `json:"item"`
	From string `json:"from_cpus"`
	To   string `json:"to_cpus"`
	Why  string `json:"why"`
}

func (m Move) String() string {
	to := m.To
	if to == "" {
		to = "off"
	}
	from := m.From
	if from == "" {
		from = "off"
	}
	return fmt.Sprintf("%v: CPU %s -> %s: %s", m.Item, from, to, m.Why)
}
