package actuate

import (
	"io"
	"os"
	"time"

	"autotune/actuate/busypoll"
	"autotune/actuate/netdev"
	"autotune/actuate/placement"
	"autotune/model"
)

// System is the machine as [Host] and [Restore] see it: [Live], or the
// in-memory one of actuate/memkernel.
type System interface {
	// BootID identifies this boot (/proc/sys/kernel/random/boot_id).
	BootID() (string, error)
	// Open opens the namespace that ref leads to.
	Open(ref NamespaceRef) (Kernel, error)
	// Find opens the namespace with this inode number wherever it can be
	// reached, trying ref first. It returns [model.ErrGone] where there is
	// none.
	Find(inode uint64, ref NamespaceRef) (Kernel, error)
	// Placement reads and writes on which CPUs threads run and interrupts go.
	// Packet steering is that of k's devices; nil means that their namespace
	// no longer exists.
	Placement(k Kernel) placement.System
	// Processes are the machine's running applications.
	Processes() busypoll.System
}

// Kernel is what one network namespace offers. Errors wrap the sentinels of
// package model as package netdev documents.
type Kernel interface {
	// Namespace says which namespace it is.
	Namespace() NamespaceRef
	// Inode is the namespace's identity while it exists; the number is soon
	// used again.
	Inode() uint64
	// Cookie is its identity for the whole boot (SO_NETNS_COOKIE, Linux
	// 5.14), 0 where the kernel tells none.
	Cookie() uint64
	// Alive returns [model.ErrGone] once the way that the namespace was
	// opened by no longer leads to it: the open sockets keep a deleted
	// namespace alive, and nobody else would notice.
	Alive() error
	// Claim makes this process the only one that may tune the device, until
	// the claim is closed or the process ends, or returns a [LockedError].
	Claim(ifindex int) (io.Closer, error)
	// Link and LinkAt look a device up; [model.ErrGone] where there is none.
	Link(name string) (Link, error)
	LinkAt(ifindex int) (Link, error)
	Links() ([]Link, error)
	Queues(ifindex int) ([]netdev.Queue, error)
	NAPIs(ifindex int) ([]netdev.NAPI, error)
	NAPI(ifindex int, id uint32) (netdev.NAPI, error)
	SetNAPI(id uint32, u netdev.NAPIUpdate) error
	// CheckSet finds out whether the kernel has napi-set, without changing
	// anything: nil, or an error that wraps [netdev.ErrUnsupported]. Whether it
	// is permitted is not said.
	CheckSet() error
	// QueueDir is the directory of a receive queue in a sysfs that shows the
	// device; its root is the kernel's to close.
	QueueDir(link Link, index int) (*os.Root, string, error)
	// RxQueues counts the receive queues in use of a device, by sysfs.
	RxQueues(link Link) (int, error)
	// Defaults reads the device-level values, which a re-created NAPI takes.
	Defaults(link Link) (Defaults, error)
	// SetDefault writes one of them. The kernel gives it to every NAPI of the
	// device.
	SetDefault(link Link, k Knob, v uint64) error
	// DeviceConditions reads what else delays a device's packets; NAPIs is left
	// to [Host.Conditions].
	DeviceConditions(link Link) (model.DeviceConditions, error)
	// GRO tells whether the device merges received packets; nil where that
	// cannot be read.
	GRO(link Link) *bool
	// Stamping reads how a device stamps received packets; nil where it cannot.
	Stamping(link Link) (*model.Stamping, error)
	// IRQAffinity fills in the CPUs of the IRQ of n, where it has one.
	IRQAffinity(n *model.NAPIConditions) error
	// CPUConditions reads what limits the CPUs; Devices is left empty.
	CPUConditions() (model.Conditions, error)
	Close() error
}

// Link is a network device.
type Link struct {
	Name  string
	Index int
	// MAC is the hardware address in colon notation, empty where there is
	// none.
	MAC string
	// Kind is the rtnetlink kind ("veth", "bond"), empty for hardware.
	Kind string
	// Driver is the name that ethtool reports, empty where there is none.
	Driver string
	// Up is the administrative state: a device that is down has no NAPI
	// instance, whatever its carrier.
	Up bool
	// Lower names the devices below a stacked one (bond, VLAN, macvlan), where
	// it was looked up by name.
	Lower []string
}

// Defaults are a device's own defer count and flush timeout, as
// /sys/class/net/*/napi_defer_hard_irqs and gro_flush_timeout show them: not
// what its NAPI instances are set to, but what a newly made one takes
// (netif_napi_add_weight in net/core/dev.c).
type Defaults struct {
	DeferHardIRQs   uint32
	GROFlushTimeout time.Duration
}

// of returns the value of a knob; a device has no suspend timeout of its own.
func (d Defaults) of(k Knob) uint64 {
	switch k {
	case KnobDefer:
		return uint64(d.DeferHardIRQs)
	case KnobFlush:
		return uint64(d.GROFlushTimeout)
	default:
		return 0
	}
}

// stacked tells whether the device passes packets on from lower devices and
// owns no NAPI itself.
func (l Link) stacked() bool {
	switch l.Kind {
	case "bond", "team", "bridge", "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		return true
	default:
		return false
	}
}

func queueOf(k Kernel, ifindex, index int) model.Queue {
	return model.Queue{Netns: k.Inode(), Ifindex: ifindex, Index: index}
}
