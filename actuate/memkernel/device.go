package memkernel

import (
	"autotune/actuate"
	"autotune/model"
)

// Device is a network interface.
type Device struct {
	ns       *Namespace
	link     actuate.Link
	kind     Driver
	defaults actuate.Defaults
	// coalescing is nil where the driver reports none.
	coalescing *model.Coalescing
	// stamping is nil where the device has no clock.
	stamping  *model.Stamping
	tx        int
	instances []*instance
}

// Driver says how a device's NAPI instances behave.
type Driver struct {
	// Persistent instances keep ID and values while the link is down
	// (netif_napi_add_config).
	Persistent bool
	// ReusesMemory lets an old suspend timeout survive in a new instance.
	ReusesMemory bool
	// ReportsNAPI tells which NAPI serves a queue, in queue-get.
	ReportsNAPI bool
}

// Veth renumbers its instances, reuses their memory and maps no queue.
func Veth() Driver { return Driver{ReusesMemory: true} }

// Virtio keeps its instances and reports them per queue, as virtio_net does.
func Virtio() Driver { return Driver{Persistent: true, ReportsNAPI: true} }

type instance struct {
	id       uint32
	irq      *uint32
	settings model.Settings
}

// fresh is what a new instance is set to.
func (d *Device) fresh() model.Settings {
	return model.Settings{DeferHardIRQs: d.defaults.DeferHardIRQs, GROFlushTimeout: d.defaults.GROFlushTimeout}
}

// Link returns the device as rtnetlink shows it.
func (d *Device) Link() actuate.Link {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	return d.link
}

// Queue returns the identity of a receive queue.
func (d *Device) Queue(index int) model.Queue {
	return model.Queue{Netns: d.ns.inode, Ifindex: d.link.Index, Index: index}
}

// Settings returns what a queue's instance is set to.
func (d *Device) Settings(index int) model.Settings {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	return d.instances[index].settings
}

// ID returns the NAPI ID of a queue's instance.
func (d *Device) ID(index int) uint32 {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	return d.instances[index].id
}

// Write changes a queue's instance as another process would by napi-set.
func (d *Device) Write(index int, s model.Settings) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.instances[index].settings = s
}

// WriteSysfs changes the device-level values, and with them those of every
// instance.
func (d *Device) WriteSysfs(v actuate.Defaults) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.writeSysfs(v)
}

func (d *Device) writeSysfs(v actuate.Defaults) {
	d.defaults = v
	for _, i := range d.instances {
		i.settings.DeferHardIRQs, i.settings.GROFlushTimeout = v.DeferHardIRQs, v.GROFlushTimeout
	}
}

// SetStamping gives the device a clock, and says which packets it stamps.
func (d *Device) SetStamping(s *model.Stamping) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.stamping = s
}

// SetCoalescing changes the interrupt moderation; nil is a driver without.
func (d *Device) SetCoalescing(c *model.Coalescing) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.coalescing = c
}

// SetIRQ gives a queue's instance an interrupt.
func (d *Device) SetIRQ(index int, irq uint32) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.instances[index].irq = &irq
}

// Down takes the link down: no instance is listed.
func (d *Device) Down() {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.link.Up = false
}

// Up brings the link up again, and makes the instances anew where they are not
// persistent.
func (d *Device) Up() {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	if d.link.Up {
		return
	}
	d.link.Up = true
	if d.kind.Persistent {
		return
	}
	for _, i := range d.instances {
		i.id = d.ns.system.newNAPI()
		stale := i.settings.IRQSuspendTimeout
		i.settings = d.fresh()
		if d.kind.ReusesMemory {
			i.settings.IRQSuspendTimeout = stale
		}
	}
}

// Remove deletes the device.
func (d *Device) Remove() {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	for i, other := range d.ns.devices {
		if other == d {
			d.ns.devices = append(d.ns.devices[:i:i], d.ns.devices[i+1:]...)
		}
	}
}

// Become puts another device, of another name and hardware address, where this
// one was.
func (d *Device) Become(name, mac string) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.link.Name, d.link.MAC = name, mac
}

// SetMAC changes the hardware address, as a bond does to its lower devices.
func (d *Device) SetMAC(mac string) {
	d.ns.system.mu.Lock()
	defer d.ns.system.mu.Unlock()
	d.link.MAC = mac
}

func (s *System) newNAPI() uint32 {
	id := s.nextNAPI
	s.nextNAPI++
	return id
}
