package memkernel

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"autotune/actuate"
	"autotune/actuate/netdev"
	"autotune/model"
)

// Namespace is a network namespace; it implements [actuate.Kernel].
type Namespace struct {
	system    *System
	name      string
	inode     uint64
	cookie    uint64
	deleted   bool
	nextIndex int
	devices   []*Device
	claims    map[int]bool
}

// AddDevice makes a device that is up, with as many receive as transmit
// queues.
func (n *Namespace) AddDevice(name string, queues int, kind Driver) *Device {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	n.nextIndex++
	d := &Device{
		ns: n, kind: kind, tx: queues,
		link: actuate.Link{
			Name: name, Index: n.nextIndex, Up: true, Driver: "memory",
			MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", n.inode&0xff, n.nextIndex),
		},
	}
	if kind.ReusesMemory {
		d.link.Kind, d.link.Driver = "veth", "veth"
	}
	for range queues {
		d.instances = append(d.instances, &instance{id: n.system.newNAPI()})
	}
	n.devices = append(n.devices, d)
	return d
}

// AddStacked makes a device without NAPI above others.
func (n *Namespace) AddStacked(name, kind string, lower ...string) {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	n.nextIndex++
	n.devices = append(n.devices, &Device{ns: n, link: actuate.Link{
		Name: name, Index: n.nextIndex, Kind: kind, Lower: lower, Up: true,
	}})
}

// Namespace implements [actuate.Kernel].
func (n *Namespace) Namespace() actuate.NamespaceRef { return actuate.NamespaceRef{Name: n.name} }

// Inode implements [actuate.Kernel].
func (n *Namespace) Inode() uint64 { return n.inode }

// Cookie implements [actuate.Kernel].
func (n *Namespace) Cookie() uint64 {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	return n.cookie
}

// Close implements [actuate.Kernel].
func (n *Namespace) Close() error { return nil }

// Claim implements [actuate.Kernel].
func (n *Namespace) Claim(ifindex int) (io.Closer, error) {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if n.claims[ifindex] {
		return nil, &actuate.LockedError{What: fmt.Sprintf("interface %d", ifindex), Path: "memory", PID: os.Getpid()}
	}
	if n.claims == nil {
		n.claims = map[int]bool{}
	}
	n.claims[ifindex] = true
	return claim{n, ifindex}, nil
}

type claim struct {
	ns      *Namespace
	ifindex int
}

// Close implements [io.Closer].
func (c claim) Close() error {
	c.ns.system.mu.Lock()
	defer c.ns.system.mu.Unlock()
	delete(c.ns.claims, c.ifindex)
	return nil
}

// QueueDir implements [actuate.Kernel]: this machine has no files.
func (n *Namespace) QueueDir(link actuate.Link, _ int) (*os.Root, string, error) {
	return nil, "", fmt.Errorf("sysfs of %s: %w", link.Name, model.ErrGone)
}

// Alive implements [actuate.Kernel].
func (n *Namespace) Alive() error {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if n.deleted {
		return fmt.Errorf("network namespace %s was deleted: %w", n.name, model.ErrGone)
	}
	return nil
}

// Links implements [actuate.Kernel].
func (n *Namespace) Links() ([]actuate.Link, error) {
	if err := n.system.fault(OpLink); err != nil {
		return nil, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	var links []actuate.Link
	for _, d := range n.devices {
		links = append(links, d.link)
	}
	return links, nil
}

// Link implements [actuate.Kernel].
func (n *Namespace) Link(name string) (actuate.Link, error) {
	links, err := n.Links()
	if err != nil {
		return actuate.Link{}, err
	}
	for _, l := range links {
		if l.Name == name {
			return l, nil
		}
	}
	return actuate.Link{}, fmt.Errorf("interface %q: %w", name, model.ErrGone)
}

// LinkAt implements [actuate.Kernel].
func (n *Namespace) LinkAt(ifindex int) (actuate.Link, error) {
	links, err := n.Links()
	if err != nil {
		return actuate.Link{}, err
	}
	for _, l := range links {
		if l.Index == ifindex {
			return l, nil
		}
	}
	return actuate.Link{}, fmt.Errorf("interface %d: %w", ifindex, model.ErrGone)
}

// device returns the device at ifindex; the lock is held.
func (n *Namespace) device(ifindex int) (*Device, error) {
	for _, d := range n.devices {
		if d.link.Index == ifindex {
			return d, nil
		}
	}
	return nil, fmt.Errorf("interface %d: %w", ifindex, model.ErrGone)
}

// Queues implements [actuate.Kernel].
func (n *Namespace) Queues(ifindex int) ([]netdev.Queue, error) {
	if err := n.system.fault(OpQueues); err != nil {
		return nil, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if err := n.system.Era.lists("queue-get"); err != nil {
		return nil, err
	}
	d, err := n.device(ifindex)
	if err != nil || !d.link.Up {
		return nil, err
	}
	var out []netdev.Queue
	for index, i := range d.instances {
		q := netdev.Queue{ID: index, Ifindex: ifindex, Type: netdev.QueueRx}
		if d.kind.ReportsNAPI {
			id := i.id
			q.NAPIID = &id
		}
		out = append(out, q)
	}
	for index := range d.tx {
		out = append(out, netdev.Queue{ID: index, Ifindex: ifindex, Type: netdev.QueueTx})
	}
	n.shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out, nil
}

// NAPIs implements [actuate.Kernel].
func (n *Namespace) NAPIs(ifindex int) ([]netdev.NAPI, error) {
	if err := n.system.fault(OpNAPIs); err != nil {
		return nil, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if err := n.system.Era.lists("napi-get"); err != nil {
		return nil, err
	}
	d, err := n.device(ifindex)
	if err != nil || !d.link.Up {
		return nil, err
	}
	var out []netdev.NAPI
	for _, i := range slices.Backward(d.instances) {
		out = append(out, d.reply(i))
	}
	n.shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out, nil
}

func (n *Namespace) shuffle(length int, swap func(a, b int)) {
	if n.system.Shuffle != nil {
		n.system.Shuffle.Shuffle(length, swap)
	}
}

func (d *Device) reply(i *instance) netdev.NAPI {
	out := netdev.NAPI{ID: i.id, Ifindex: d.link.Index, IRQ: i.irq}
	if d.ns.system.Era == EraSet {
		s := i.settings
		out.DeferHardIRQs, out.GROFlushTimeout, out.IRQSuspendTimeout = &s.DeferHardIRQs, &s.GROFlushTimeout, &s.IRQSuspendTimeout
	}
	return out
}

// find returns the instance with the ID; the lock is held.
func (n *Namespace) find(id uint32) (*Device, *instance, error) {
	for _, d := range n.devices {
		for _, i := range d.instances {
			if i.id == id && d.link.Up {
				return d, i, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("NAPI %d: %w", id, model.ErrGone)
}

// NAPI implements [actuate.Kernel].
func (n *Namespace) NAPI(ifindex int, id uint32) (netdev.NAPI, error) {
	if err := n.system.fault(OpNAPI); err != nil {
		return netdev.NAPI{}, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if err := n.system.Era.lists("napi-get"); err != nil {
		return netdev.NAPI{}, err
	}
	d, i, err := n.find(id)
	if err != nil {
		return netdev.NAPI{}, err
	}
	if d.link.Index != ifindex {
		return netdev.NAPI{}, fmt.Errorf("NAPI %d is of interface %d: %w", id, d.link.Index, model.ErrGone)
	}
	return d.reply(i), nil
}

// SetNAPI implements [actuate.Kernel].
func (n *Namespace) SetNAPI(id uint32, u netdev.NAPIUpdate) error {
	if err := n.system.fault(OpSet); err != nil {
		return err
	}
	if err := n.set(id, u); err != nil {
		return err
	}
	return n.system.fault(OpSetDone)
}

func (n *Namespace) set(id uint32, u netdev.NAPIUpdate) error {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	if err := n.system.Era.sets(); err != nil {
		return err
	}
	_, i, err := n.find(id)
	if err != nil {
		return err
	}
	if u.DeferHardIRQs != nil {
		i.settings.DeferHardIRQs = *u.DeferHardIRQs
	}
	if u.GROFlushTimeout != nil {
		i.settings.GROFlushTimeout = *u.GROFlushTimeout
	}
	if u.IRQSuspendTimeout != nil {
		i.settings.IRQSuspendTimeout = *u.IRQSuspendTimeout
	}
	return nil
}

// CheckSet implements [actuate.Kernel].
func (n *Namespace) CheckSet() error { return n.system.Era.sets() }

// GRO implements [actuate.Kernel]; nothing here merges packets, or is known not
// to.
func (n *Namespace) GRO(actuate.Link) *bool { return nil }

// RxQueues implements [actuate.Kernel].
func (n *Namespace) RxQueues(link actuate.Link) (int, error) {
	if err := n.system.fault(OpDefaults); err != nil {
		return 0, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	d, err := n.device(link.Index)
	if err != nil {
		return 0, err
	}
	return len(d.instances), nil
}

// SetDefault implements [actuate.Kernel].
func (n *Namespace) SetDefault(link actuate.Link, k actuate.Knob, v uint64) error {
	if err := n.system.fault(OpSet); err != nil {
		return err
	}
	if err := n.setDefault(link, k, v); err != nil {
		return err
	}
	return n.system.fault(OpSetDone)
}

func (n *Namespace) setDefault(link actuate.Link, k actuate.Knob, v uint64) error {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	d, err := n.device(link.Index)
	if err != nil {
		return err
	}
	values := d.defaults
	switch k {
	case actuate.KnobDefer:
		values.DeferHardIRQs = uint32(v)
	case actuate.KnobFlush:
		values.GROFlushTimeout = time.Duration(v)
	default:
		return fmt.Errorf("%s of a device: %w", k, actuate.ErrNoSuspend)
	}
	d.writeSysfs(values)
	return nil
}

// Defaults implements [actuate.Kernel].
func (n *Namespace) Defaults(link actuate.Link) (actuate.Defaults, error) {
	if err := n.system.fault(OpDefaults); err != nil {
		return actuate.Defaults{}, err
	}
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	d, err := n.device(link.Index)
	if err != nil {
		return actuate.Defaults{}, err
	}
	return d.defaults, nil
}

// DeviceConditions implements [actuate.Kernel].
func (n *Namespace) DeviceConditions(link actuate.Link) (model.DeviceConditions, error) {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	d, err := n.device(link.Index)
	if err != nil {
		return model.DeviceConditions{}, err
	}
	return model.DeviceConditions{Netns: n.inode, Ifindex: d.link.Index, Ifname: d.link.Name, Coalescing: d.coalescing, Stamping: d.stamping}, nil
}

// Stamping implements [actuate.Kernel].
func (n *Namespace) Stamping(link actuate.Link) (*model.Stamping, error) {
	n.system.mu.Lock()
	defer n.system.mu.Unlock()
	d, err := n.device(link.Index)
	if err != nil {
		return nil, err
	}
	return d.stamping, nil
}

// IRQAffinity implements [actuate.Kernel]: every interrupt goes to CPU 0.
func (n *Namespace) IRQAffinity(c *model.NAPIConditions) error {
	if c.IRQ != nil {
		first := "0"
		c.IRQAffinity, c.IRQEffective = &first, &first
	}
	return nil
}

// CPUConditions implements [actuate.Kernel]: nothing is known.
func (n *Namespace) CPUConditions() (model.Conditions, error) { return model.Conditions{}, nil }
