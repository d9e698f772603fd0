package actuate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"autotune/actuate/busypoll"
	"autotune/actuate/netdev"
	"autotune/model"

	"golang.org/x/sys/unix"
)

// The areas of the findings.
const (
	areaNetdev      = "netdev"
	areaApplication = "application"
	areaDevice      = "device"
)

const (
	needsSet = "Linux 6.13 or later"
	needsGet = "Linux 6.8 or later"
)

// Check tries what this package needs, each thing for real, and says what does
// not work, what follows and what to do. It changes nothing on the host:
// writing is tried on a veth pair in a namespace of its own that is gone
// afterwards, or, where none can be made, on a NAPI ID that nobody has.
func Check(ctx context.Context) []model.Finding {
	c := &checks{}
	c.capability()
	scratch, scratchErr := openScratch()
	if scratchErr == nil {
		c.wide = trySysfs(scratch)
	} else {
		c.wide = scratchErr
	}
	client, err := netdev.New(netdev.Options{})
	c.add("family", err, "found", c.orWide(finding{
		consequence: "no NAPI instance can be listed or tuned",
		remedy:      "boot " + needsGet + " (" + needsSet + " to tune)",
	}))
	if scratchErr != nil {
		c.add("scratch device", scratchErr, "", finding{
			state:       model.FindingDegraded,
			consequence: "reading is tried on the host's own devices, and whether writing has effect is not tried",
			remedy:      "run as root with CAP_SYS_ADMIN on a kernel with veth",
		})
	}
	if err == nil {
		c.commands(ctx, client, scratch)
		if err := client.Close(); err != nil {
			c.add("close", err, "", finding{})
		}
	}
	c.add("device-wide (sysfs)", c.wide, "written and read back on a veth", finding{
		state:       model.FindingDegraded,
		consequence: "a kernel without napi-set could not be tuned at all",
		remedy:      "run as root with CAP_SYS_ADMIN, which mounting sysfs in a namespace needs, on Linux 5.8 or later",
	})
	if scratchErr == nil {
		if err := scratch.Close(); err != nil {
			c.add("scratch device", err, "", finding{state: model.FindingDegraded})
		}
	}
	if ctx.Err() == nil {
		c.stamping()
		c.epoll()
	}
	return c.findings
}

// checks collects findings.
type checks struct {
	findings []model.Finding
	// wide is why no device could be set as a whole; nil where that works.
	wide error
}

// orWide is what is to be said where the fall-back of setting whole devices
// works.
func (c *checks) orWide(f finding) finding {
	if c.wide == nil {
		f.state = model.FindingDegraded
		f.consequence = "device-wide (sysfs): all queues of a device have one setting, and interrupts cannot be suspended"
	}
	return f
}

// openScratch makes the device to try things on.
func openScratch() (*liveKernel, error) {
	ns, err := newScratch()
	if err != nil {
		return nil, err
	}
	k, err := newLiveKernel(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return k, nil
}

// trySysfs sets a device that is ours alone as a whole, and reads it back.
func trySysfs(kernel Kernel) error {
	link, err := kernel.Link(scratchName)
	if err != nil {
		return err
	}
	to := deviceTarget{kernel, link.Index}
	want := model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 30 * time.Microsecond}
	if err := to.write(model.Settings{}, want); err != nil {
		return err
	}
	got, err := to.read()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("wrote %v, read back %v", full(want), full(got))
	}
	return nil
}

// finding is what is to be said about a failure.
type finding struct {
	area, consequence, remedy string
	state                     model.FindingState
}

func (c *checks) add(name string, err error, detail string, f finding) {
	out := model.Finding{Area: areaNetdev, Name: name, State: model.FindingOK, Detail: detail}
	if f.area != "" {
		out.Area = f.area
	}
	if err != nil {
		out.State, out.Detail = model.FindingMissing, err.Error()
		if f.state != "" {
			out.State = f.state
		}
		out.Consequence, out.Remedy = f.consequence, f.remedy
		var errno unix.Errno
		if errors.As(err, &errno) {
			name := unix.ErrnoName(errno)
			out.Errno = &name
		}
		if errors.Is(err, unix.EPERM) && strings.HasPrefix(f.remedy, "boot") {
			// It is not the kernel's age then.
			out.Remedy = "run as root, or with CAP_NET_ADMIN in the initial user namespace"
		}
	}
	c.findings = append(c.findings, out)
}

// capability looks for CAP_NET_ADMIN. Whether it is the right user namespace's
// only napi-set itself tells.
func (c *checks) capability() {
	held, err := hasCapability(unix.CAP_NET_ADMIN)
	if err == nil && !held {
		err = fmt.Errorf("CAP_NET_ADMIN is not among the effective capabilities: %w", unix.EPERM)
	}
	c.add("CAP_NET_ADMIN", err, "held", finding{
		consequence: "autotune can observe, but change nothing",
		remedy:      "run as root, or with CAP_NET_ADMIN",
	})
}

func hasCapability(capability uint) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}

// commands goes through the family's commands: on the scratch device where one
// can be made, since there every attribute must show.
func (c *checks) commands(ctx context.Context, host *netdev.Client, scratch *liveKernel) {
	devices, err := host.Devices()
	c.add("dev-get", err, fmt.Sprintf("%d devices", len(devices)), finding{
		state:       model.FindingDegraded,
		consequence: "XDP features of devices are not known",
		remedy:      "boot Linux 6.3 or later",
	})
	switch {
	case ctx.Err() != nil:
	case scratch == nil:
		c.onHost(host, devices)
	default:
		c.onScratch(scratch)
	}
}

func (c *checks) onHost(host *netdev.Client, devices []netdev.Device) {
	var seen []netdev.NAPI
	var err error
	for _, d := range devices {
		var napis []netdev.NAPI
		if napis, err = host.NAPIs(d.Ifindex); err != nil {
			break
		}
		seen = append(seen, napis...)
	}
	c.napiGet(seen, err)
	// The kernel checks permission before it looks the ID up.
	zero := uint32(0)
	err = host.SetNAPI(math.MaxInt32, netdev.NAPIUpdate{DeferHardIRQs: &zero})
	if errors.Is(err, model.ErrGone) {
		err = nil
	}
	c.napiSet(err, "permitted (tried with an ID that nobody has)")
}

func (c *checks) onScratch(kernel *liveKernel) {
	link, err := kernel.Link(scratchName)
	if err != nil {
		c.add("scratch device", err, "", finding{state: model.FindingDegraded})
		return
	}
	queues, err := kernel.Queues(link.Index)
	c.add("queue-get", err, fmt.Sprintf("%s on a veth", model.Count(len(queues), "queue")), finding{
		state:       model.FindingDegraded,
		consequence: "queues are matched to NAPI instances by position only",
		remedy:      "boot " + needsGet,
	})
	napis, err := kernel.NAPIs(link.Index)
	if err == nil && len(napis) == 0 {
		err = fmt.Errorf("a veth that is up with GRO on lists no NAPI instance")
	}
	c.napiGet(napis, err)
	if err != nil {
		return
	}
	c.napiSet(trySet(kernel, link.Index, napis[0]), "written and read back on a veth")
	_, err = kernel.Defaults(link)
	c.add("sysfs defaults", err, "read in another namespace", finding{
		state:       model.FindingDegraded,
		consequence: "after a link flap new NAPI instances cannot be told from another writer's",
		remedy:      "run with CAP_SYS_ADMIN, which mounting sysfs in a namespace needs",
	})
}

func (c *checks) napiGet(napis []netdev.NAPI, err error) {
	c.add("napi-get", err, fmt.Sprintf("%d NAPI instances", len(napis)), c.orWide(finding{
		consequence: "no NAPI instance can be listed or tuned",
		remedy:      "boot " + needsGet,
	}))
	if err != nil || len(napis) == 0 {
		return
	}
	n := napis[0]
	for _, a := range []struct {
		name     string
		reported bool
		finding  finding
	}{
		{netdev.AttrDeferHardIRQs, n.DeferHardIRQs != nil, finding{consequence: "nothing can be tuned per NAPI", remedy: "boot " + needsSet}},
		{netdev.AttrGROFlushTimeout, n.GROFlushTimeout != nil, finding{consequence: "nothing can be tuned per NAPI", remedy: "boot " + needsSet}},
		{netdev.AttrIRQSuspendTimeout, n.IRQSuspendTimeout != nil, finding{consequence: "interrupts cannot be suspended while an application polls", remedy: "boot " + needsSet}},
		{"threaded", n.Threaded != nil, finding{state: model.FindingDegraded, consequence: "whether a NAPI is threaded shows by its thread only", remedy: "boot Linux 6.17 or later"}},
	} {
		var err error
		if !a.reported {
			err = fmt.Errorf("not reported: %w", netdev.ErrUnsupported)
		}
		f := a.finding
		if err != nil && f.state == "" {
			f = c.orWide(f)
		}
		c.add("napi-get "+a.name, err, "reported", f)
	}
}

func (c *checks) napiSet(err error, detail string) {
	c.add("napi-set", err, detail, c.orWide(finding{
		consequence: "autotune can observe, but change nothing per NAPI",
		remedy:      "boot " + needsSet,
	}))
}

// trySet writes each knob of a NAPI that is ours alone, and reads it back.
func trySet(kernel Kernel, ifindex int, n netdev.NAPI) error {
	if err := kernel.CheckSet(); err != nil {
		return err
	}
	from, err := napiSettings(n)
	if err != nil {
		return err
	}
	to := model.Settings{DeferHardIRQs: 2, GROFlushTimeout: 20 * time.Microsecond, IRQSuspendTimeout: 5 * time.Second}
	if err := write(kernel, n.ID, from, to); err != nil {
		return err
	}
	got, err := readBack(kernel, ifindex, n.ID)
	if err != nil {
		return err
	}
	if got != to {
		return fmt.Errorf("wrote %v, read back %v", full(to), full(got))
	}
	return nil
}

func (c *checks) epoll() {
	c.add("epoll busy-poll parameters", busypoll.TryEpoll(), "set and read back (EPIOCSPARAMS)", finding{
		area: areaApplication, state: model.FindingDegraded,
		consequence: "preferred busy polling cannot be turned on for a running application, so interrupts are suspended only if it does so itself",
		remedy:      "boot Linux 6.9 or later",
	})
}
