package model

// NAPI is one NAPI instance as the kernel shows it at one moment: which queue
// it serves, how it is known, and what it is set to.
type NAPI struct {
	Queue Queue
	// ID is the kernel's NAPI ID: unique on the host, valid until the
	// instance is torn down (for veth: until the link goes down). It is 0 on
	// kernels that list no NAPI instances (before 6.8).
	ID uint32
	// Ifname is the device's name at that moment.
	Ifname string
	// Driver is the driver's name, empty where it is not known.
	Driver string
	// IRQ is the interrupt that serves the instance; nil where the driver
	// does not report one.
	IRQ *uint32
	// PID is the NAPI thread's process ID in the initial PID namespace; nil
	// where the instance runs in softirq.
	PID *uint32
	// Threaded is what the kernel reports for the attribute; nil before 6.17.
	Threaded *uint32
	// Mapping tells how the queue was found.
	Mapping Mapping
	// Settings are the values read back.
	Settings Settings
}

// Mapping tells how a NAPI instance was matched to a queue.
type Mapping string

const (
	// MappingDriver means that the driver reports the NAPI ID of each queue.
	MappingDriver Mapping = "driver"
	// MappingPosition means that it does not, and that the instances of the
	// device, in ascending order of ID, were matched to its receive queues.
	MappingPosition Mapping = "position"
	// MappingNone means that the kernel lists no NAPI instances: the queue is
	// known by sysfs, and its NAPI ID is not.
	MappingNone Mapping = "none"
)
