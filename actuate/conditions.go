package actuate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/actuate/coalesce"
	"autotune/model"
)

// Conditions reads what competes with the tuned settings for the same latency:
// interrupt moderation and affinity of the selected devices, and frequency and
// idle-state limits of the CPUs. What is not reported is nil; the error joins
// what should have been readable and was not, beside the rest. It changes
// nothing.
//
// It costs a few system calls per device, NAPI instance and CPU: read it at the
// start, and again at most every few seconds.
func (h *Host) Conditions(ctx context.Context) (model.Conditions, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen, err := h.observe(ctx)
	if seen == nil {
		return model.Conditions{}, fmt.Errorf("read conditions: %w", err)
	}
	// What cannot be listed, NAPIs names.
	var errs []error
	out, err := h.kernel.CPUConditions()
	errs = append(errs, err)
	for _, d := range h.devices {
		if h.everyLink && !h.tracks(d) {
			continue
		}
		device, err := h.kernel.DeviceConditions(d.link)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, s := range seen {
			if s.device != d {
				continue
			}
			n := model.NAPIConditions{Queue: s.queue, IRQ: s.mapped.napi.IRQ}
			errs = append(errs, h.kernel.IRQAffinity(&n))
			device.NAPIs = append(device.NAPIs, n)
		}
		slices.SortFunc(device.NAPIs, func(a, b model.NAPIConditions) int { return a.Queue.Compare(b.Queue) })
		out.Devices = append(out.Devices, device)
	}
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("read conditions: %w", err)
	}
	return out, nil
}

func (k *liveKernel) DeviceConditions(link Link) (model.DeviceConditions, error) {
	out := model.DeviceConditions{Netns: k.Inode(), Ifindex: link.Index, Ifname: link.Name}
	if info, err := k.ethtool.DriverInfo(link.Name); err == nil {
		out.Firmware, out.BusInfo = known(info.FwVersion), known(info.BusInfo)
	}
	// A driver that does not answer is one without.
	out.Stamping, _ = k.Stamping(link)
	// sysfs is seen where the namespace's own may be mounted only.
	if root, err := k.sysfs.root(link); err == nil {
		fillDevice(root.FS(), link.Name, &out)
	}
	if k.coalesce == nil {
		return out, nil
	}
	c, err := k.coalesce.Get(link.Index)
	switch {
	case errors.Is(err, coalesce.ErrUnsupported):
	case err != nil:
		return out, err
	case c != model.Coalescing{}:
		out.Coalescing = &c
	}
	return out, nil
}

// groFeature is NETIF_F_GRO_BIT in net/ethtool/common.c.
const groFeature = "rx-gro"

func (k *liveKernel) GRO(link Link) *bool {
	features, err := k.ethtool.Features(link.Name)
	if err != nil {
		return nil
	}
	on, ok := features[groFeature]
	if !ok {
		return nil
	}
	return &on
}

// known returns nil for what drivers put where they have nothing to say.
func known(s string) *string {
	switch s = strings.TrimSpace(s); s {
	case "", "N/A":
		return nil
	default:
		return &s
	}
}

// fillDevice reads what sysfs tells of a device's hardware. A speed of -1 or an
// error is a link without one.
func fillDevice(sys fs.FS, ifname string, out *model.DeviceConditions) {
	dir := classNet(ifname)
	vendor, device := text(sys, path.Join(dir, "device/vendor")), text(sys, path.Join(dir, "device/device"))
	if vendor != nil && device != nil {
		id := strings.TrimPrefix(*vendor, "0x") + ":" + strings.TrimPrefix(*device, "0x")
		out.NIC = &id
	}
	if v, err := strconv.ParseUint(value(text(sys, path.Join(dir, "speed"))), 10, 31); err == nil {
		speed := uint32(v)
		out.SpeedMbps = &speed
	}
}

// The host's own files; sysfs of CPUs and procfs of interrupts are the same in
// every network namespace.
const (
	procfsRoot = "/proc"
	qosDevice  = "/dev/cpu_dma_latency"
)

func (k *liveKernel) IRQAffinity(n *model.NAPIConditions) error {
	fillIRQ(os.DirFS(procfsRoot), n)
	return nil
}

// fillIRQ reads the files of kernel/irq/proc.c; interrupts of other kinds than
// per-device ones have none.
func fillIRQ(proc fs.FS, n *model.NAPIConditions) {
	if n.IRQ == nil {
		return
	}
	dir := path.Join("irq", strconv.FormatUint(uint64(*n.IRQ), 10))
	n.IRQAffinity = text(proc, path.Join(dir, "smp_affinity_list"))
	n.IRQEffective = text(proc, path.Join(dir, "effective_affinity_list"))
}

func (k *liveKernel) CPUConditions() (model.Conditions, error) {
	out, err := parseCPUs(os.DirFS(sysfsRoot), os.DirFS(procfsRoot))
	// Opening the device makes a request that limits nothing, and reading it
	// gives the limit of all requests (kernel/power/qos.c, cpu_latency_qos_read).
	if f, openErr := os.Open(qosDevice); openErr == nil {
		out.CPUDMALatency = latencyLimit(f)
		err = errors.Join(err, f.Close())
	}
	return out, err
}

func latencyLimit(f interface{ Read([]byte) (int, error) }) *time.Duration {
	var raw [4]byte
	if n, err := f.Read(raw[:]); n != len(raw) || err != nil {
		return nil
	}
	limit := time.Duration(int32(binary.NativeEndian.Uint32(raw[:]))) * time.Microsecond
	return &limit
}

// parseCPUs reads the CPUs that are online, and what governs them all.
func parseCPUs(sys, proc fs.FS) (model.Conditions, error) {
	const dir = "devices/system/cpu"
	out := model.Conditions{
		CPUIdleDriver: text(sys, dir+"/cpuidle/current_driver"),
		IdleLimit:     idleLimit(text(proc, "cmdline")),
	}
	out.CPUIdleGovernor = text(sys, dir+"/cpuidle/current_governor")
	if out.CPUIdleGovernor == nil {
		out.CPUIdleGovernor = text(sys, dir+"/cpuidle/current_governor_ro") // before 5.8
	}
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		return out, fmt.Errorf("list the CPUs: %w", err)
	}
	for _, e := range entries {
		number, isCPU := strings.CutPrefix(e.Name(), "cpu")
		id, err := strconv.Atoi(number)
		if !isCPU || err != nil || value(text(sys, path.Join(dir, e.Name(), "online"))) == "0" {
			continue
		}
		out.CPUs = append(out.CPUs, parseCPU(sys, path.Join(dir, e.Name()), id))
	}
	slices.SortFunc(out.CPUs, func(a, b model.CPUConditions) int { return a.CPU - b.CPU })
	return out, nil
}

func parseCPU(sys fs.FS, dir string, id int) model.CPUConditions {
	out := model.CPUConditions{
		CPU:          id,
		Governor:     text(sys, path.Join(dir, "cpufreq/scaling_governor")),
		MinFrequency: count(sys, path.Join(dir, "cpufreq/scaling_min_freq")),
		MaxFrequency: count(sys, path.Join(dir, "cpufreq/scaling_max_freq")),
	}
	// 0 is no limit, and "n/a" is a limit of 0 (pm_qos_resume_latency_us_show
	// in drivers/base/power/sysfs.c).
	switch limit := value(text(sys, path.Join(dir, "power/pm_qos_resume_latency_us"))); limit {
	case "", "0":
	case "n/a":
		out.ResumeLatency = new(time.Duration)
	default:
		if us, err := strconv.ParseInt(limit, 10, 32); err == nil {
			limit := time.Duration(us) * time.Microsecond
			out.ResumeLatency = &limit
		}
	}
	for i := 0; ; i++ {
		state := path.Join(dir, "cpuidle", "state"+strconv.Itoa(i))
		name, latency := text(sys, path.Join(state, "name")), count(sys, path.Join(state, "latency"))
		if name == nil || latency == nil {
			return out
		}
		out.IdleStates = append(out.IdleStates, model.IdleState{
			Name: *name, Latency: time.Duration(*latency) * time.Microsecond,
			Disabled: value(text(sys, path.Join(state, "disable"))) == "1",
		})
	}
}

// idleLimit picks what limits idle states from the kernel command line. It is
// nil where that cannot be read.
func idleLimit(cmdline *string) *string {
	if cmdline == nil {
		return nil
	}
	var found []string
	for _, word := range strings.Fields(*cmdline) {
		name, _, _ := strings.Cut(word, "=")
		switch strings.ReplaceAll(name, "-", "_") {
		case "idle", "nohlt", "cpuidle.off", "cpuidle.governor", "cpuidle_haltpoll.force", "intel_idle.max_cstate",
			"intel_idle.states_off", "processor.max_cstate", "processor_idle.max_cstate", "haltpoll.guest_halt_poll_ns":
			found = append(found, word)
		}
	}
	limit := strings.Join(found, " ")
	return &limit
}

func text(files fs.FS, name string) *string {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil
	}
	s := strings.TrimSpace(string(data))
	return &s
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func count(files fs.FS, name string) *uint64 {
	v, err := strconv.ParseUint(value(text(files, name)), 10, 64)
	if err != nil {
		return nil
	}
	return &v
}
