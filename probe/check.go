package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"autotune/model"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Areas of findings.
const (
	areaKernel = "kernel"
	areaProbe  = "probe"
)

// Check tries on this host what a [Source] needs, by really loading and
// attaching each probe and removing it again, and tells what does not work, why
// and what to do. It changes nothing that outlasts it. A check that ctx cuts
// short returns the findings so far.
func Check(ctx context.Context) []model.Finding {
	c := checker{root: "/"}
	steps := []func() []model.Finding{
		c.kernelVersion,
		c.typeInformation,
		c.lockdown,
		c.capabilities,
		c.userNamespace,
		c.tracefs,
		c.perfCounters,
		c.preemption,
		c.netRX,
		c.pollArguments,
		c.receiveProbes,
		c.contexts,
	}
	var findings []model.Finding
	for _, step := range steps {
		if ctx.Err() != nil {
			break
		}
		findings = append(findings, step()...)
	}
	return findings
}

// checker checks a host whose file systems are found below root.
type checker struct{ root string }

func (c checker) kernelVersion() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "version"}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return failed(f, model.FindingMissing, err, "nothing is known of this kernel", "allow uname(2) in the sandbox")
	}
	release := unix.ByteSliceToString(uname.Release[:])
	return versionFinding(f, release)
}

func versionFinding(f model.Finding, release string) []model.Finding {
	f.Detail = "Linux " + release
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		f.State = model.FindingDegraded
		f.Consequence = "what this kernel can do is only known by trying"
		f.Remedy = "none is needed where the other findings are ok"
		return []model.Finding{f}
	}
	switch {
	case major < 5 || major == 5 && minor < 8:
		f.State = model.FindingMissing
		f.Consequence = "the probes need Linux 5.8"
		f.Remedy = "run a newer kernel"
	case major < 6 || major == 6 && minor < 13:
		f.State = model.FindingDegraded
		f.Consequence = "settings per NAPI and irq-suspend-timeout came with Linux 6.13: only whole devices can be set (sysfs)"
		f.Remedy = "run Linux 6.13 or later to set queues one by one"
	default:
		f.State = model.FindingOK
	}
	return []model.Finding{f}
}

func (c checker) typeInformation() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "BTF"}
	info, err := os.Stat(filepath.Join(c.root, "sys/kernel/btf/vmlinux"))
	if err != nil {
		return failed(f, model.FindingMissing, err,
			"no probe can be loaded: the programs are fitted to the kernel by its type information",
			"use a kernel built with CONFIG_DEBUG_INFO_BTF=y")
	}
	f.State, f.Detail = model.FindingOK, fmt.Sprintf("/sys/kernel/btf/vmlinux, %d KiB", info.Size()>>10)
	return []model.Finding{f}
}

func (c checker) lockdown() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "lockdown"}
	level, err := readLockdown(c.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.State, f.Detail = model.FindingUnknown, "level not known: securityfs is not mounted, or the kernel has no lockdown"
		f.Consequence = "whether probes may read kernel memory is only known by trying, which the findings on probes do"
		f.Remedy = "mount -t securityfs securityfs /sys/kernel/security"
		return []model.Finding{f}
	case err != nil:
		return failed(f, model.FindingUnknown, err, "whether probes may read kernel memory is only known by trying, which the findings on probes do",
			"read /sys/kernel/security/lockdown as root")
	}
	f.State, f.Detail = model.FindingOK, "level "+string(level)
	switch level {
	case lockdownConfidentiality:
		f.State = model.FindingDegraded
		f.Consequence = "BPF programs may not read kernel memory by its address, and tracefs is closed: " +
			"timers, epoll returns and the listing of epoll contexts are refused, all else works"
		f.Remedy = lockdownRemedy
	case lockdownNone, lockdownIntegrity:
		f.Detail += ": reading kernel memory is allowed"
	}
	return []model.Finding{f}
}

const lockdownRemedy = "boot with lockdown=integrity or lockdown=none"

// confidential reports whether the kernel keeps its memory from root.
func (c checker) confidential() bool {
	level, err := readLockdown(c.root)
	return err == nil && level == lockdownConfidentiality
}

func (c checker) capabilities() []model.Finding {
	mask, err := effectiveCapabilities(c.root)
	if err != nil {
		return failed(model.Finding{Area: areaKernel, Name: "capabilities"}, model.FindingDegraded, err,
			"which capabilities are missing is not known", "mount procfs on /proc")
	}
	var findings []model.Finding
	for _, capability := range capabilities() {
		f := model.Finding{Area: areaKernel, Name: capability.name, State: model.FindingOK, Detail: "held"}
		held := mask&(1<<capability.number) != 0
		// CAP_SYS_ADMIN includes what was split from it in 5.8.
		implied := mask&(1<<unix.CAP_SYS_ADMIN) != 0 &&
			(capability.number == unix.CAP_BPF || capability.number == unix.CAP_PERFMON)
		if !held && implied {
			f.Detail = "included in CAP_SYS_ADMIN"
		} else if !held {
			f.State = model.FindingDegraded
			f.Detail = "not held"
			f.Consequence = "needed to " + capability.uses
			f.Remedy = "run as root or grant " + capability.name
			if capability.number == unix.CAP_SYS_RESOURCE {
				f.State, f.Consequence, f.Remedy = model.FindingOK, "not needed on this kernel: BPF memory is charged to the cgroup", ""
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// userNamespace tells whether capabilities count on the whole host.
func (c checker) userNamespace() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "user namespace"}
	text, err := os.ReadFile(filepath.Join(c.root, "proc/self/uid_map"))
	if err != nil {
		return failed(f, model.FindingUnknown, err, "whether capabilities count on the whole host is not known", "mount procfs on /proc")
	}
	name, err := os.Readlink(filepath.Join(c.root, "proc/self/ns/user"))
	if err != nil {
		name = "the present one"
	}
	if initialUserNamespace(string(text)) {
		f.State, f.Detail = model.FindingOK, name+", the initial one"
		return []model.Finding{f}
	}
	f.State, f.Detail = model.FindingDegraded, name+" is not the initial one: root and capabilities count only inside it"
	f.Consequence = "probes are refused, and so is tuning in network namespaces that belong to another user namespace"
	f.Remedy = "run outside of the container, or in one without a user namespace of its own"
	return []model.Finding{f}
}

// initialUserNamespace reads a uid_map: the initial namespace maps all IDs to
// themselves (userns_state and uid_m_show in kernel/user_namespace.c).
func initialUserNamespace(uidMap string) bool {
	return strings.Join(strings.Fields(uidMap), " ") == "0 0 4294967295"
}

func (c checker) tracefs() []model.Finding {
	f := c.tracefsMount()
	dir, err := openTracefs()
	if err != nil {
		if f.State == model.FindingOK {
			f.State = model.FindingDegraded
		}
		f.Detail += "; a private mount failed: " + err.Error()
		f.Errno = errnoName(err)
		f.Consequence = "the events that epoll_wait returns cannot be counted; no other probe needs tracefs"
		f.Remedy = "run with CAP_SYS_ADMIN and CAP_PERFMON"
		return []model.Finding{f}
	}
	defer dir.Close()
	f.State = model.FindingOK
	f.Detail += "; a private mount works"
	f.Consequence, f.Remedy = "", ""
	return []model.Finding{f}
}

// tracefsMount tells where tracefs is mounted.
func (c checker) tracefsMount() model.Finding {
	f := model.Finding{Area: areaKernel, Name: "tracefs"}
	const path = "/sys/kernel/tracing"
	file, err := os.Open(filepath.Join(c.root, "proc/self/mountinfo"))
	if err != nil {
		return failed(f, model.FindingDegraded, err, "where tracefs is mounted is not known", "mount procfs on /proc")[0]
	}
	defer file.Close()
	points, err := mountPoints(file, "tracefs")
	if err != nil {
		return failed(f, model.FindingDegraded, err, "where tracefs is mounted is not known", "look at /proc/self/mountinfo")[0]
	}
	for _, point := range points {
		if point == path || point == "/sys/kernel/debug/tracing" {
			f.State, f.Detail = model.FindingOK, "mounted on "+point
			return f
		}
	}
	f.State = model.FindingDegraded
	f.Detail = "not mounted on " + path
	if len(points) > 0 {
		f.Detail += ", only on " + strings.Join(points, ", ")
	}
	f.Consequence = "BTF and raw tracepoints do not need it; only the counting of epoll_wait's events does"
	f.Remedy = "mount -t tracefs tracefs " + path
	return f
}

func (c checker) perfCounters() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "perf counters"}
	counters, err := openCounters([]int{0}, hardwareEvents())
	if err == nil {
		err = counters.close()
	}
	if err != nil {
		return failed(f, model.FindingDegraded, err, "CPU cost is told in time, not in cycles", counterRemedy(err))
	}
	f.State, f.Detail = model.FindingOK, "cycles and instructions can be counted"
	return []model.Finding{f}
}

// pollArguments checks what the napi_poll tracepoint tells, where its format
// can be read.
func (c checker) pollArguments() []model.Finding {
	f := model.Finding{Area: areaProbe, Name: "napi_poll arguments"}
	dir, err := openTracefs()
	if err != nil {
		// Told by the tracefs finding; the polls finding tries the same.
		return nil
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), "events/napi/napi_poll/format", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil && c.confidential() {
		// The finding on lockdown says that tracefs is closed.
		return nil
	}
	if err != nil {
		return failed(f, model.FindingMissing, fmt.Errorf("open the format of napi_poll: %w", err),
			"polls cannot be observed", "use a kernel with CONFIG_TRACEPOINTS and networking")
	}
	file := os.NewFile(uintptr(fd), "format")
	defer file.Close()
	if err := checkPollFormat(file); err != nil {
		return failed(f, model.FindingMissing, err, "adaptive tuning is refused: what polls found is not known", "use Linux 4.8 or later")
	}
	f.State, f.Detail = model.FindingOK, "napi, work, budget"
	return []model.Finding{f}
}

// receiveProbes loads and attaches every signal.
func (c checker) receiveProbes() []model.Finding {
	possible, err := readPossibleCPUs(filepath.Join(c.root, "sys"))
	if err != nil {
		return failed(model.Finding{Area: areaProbe, Name: "maps"}, model.FindingMissing, err, "no probe can be loaded", "mount sysfs on /sys")
	}
	l, collection, err := newLoader(mapSizes{napis: 1, cpus: cpuSlots(possible)})
	if err != nil {
		return failed(model.Finding{Area: areaProbe, Name: "maps"}, model.FindingMissing, err, "no probe can be loaded", c.remedy("", err))
	}
	defer collection.Close()
	var findings []model.Finding
	for _, s := range signals() {
		done, lacking, err := l.attachSignal(s)
		state := model.FindingDegraded
		if s.name == signalPolls {
			state = model.FindingMissing
		}
		f := c.probeFinding(s.name, s.lost, state, done, err)
		if lacking != nil && f.State == model.FindingOK {
			f.State, f.Consequence, f.Remedy = state, "unknown: "+lacking.Lost, c.remedy(s.name, lacking.Err)
		}
		findings = append(findings, f)
	}
	done, err := attachEpollReturns(l)
	findings = append(findings, c.probeFinding(signalEpollReturns, epollReturnsLost, model.FindingDegraded, done, err))
	return append(findings, c.account())
}

// account tries the kernel's account of what programs take.
func (c checker) account() model.Finding {
	f := model.Finding{Area: areaProbe, Name: signalCost}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err == nil {
		err = stats.Close()
	}
	if err != nil {
		return failed(f, model.FindingDegraded, err, "unknown: "+costLost, "run with CAP_SYS_ADMIN")[0]
	}
	f.State, f.Detail = model.FindingOK, "the kernel keeps account of what the probes take"
	return f
}

// preemption tells a kernel whose softirqs are threads.
func (c checker) preemption() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "PREEMPT_RT"}
	realtime, err := isRealtime(filepath.Join(c.root, "sys"))
	switch {
	case err != nil:
		return failed(f, model.FindingDegraded, err, "unknown: "+softirqTimesLost, "mount sysfs on /sys")
	case realtime:
		return failed(f, model.FindingDegraded, errRealtime, "unknown: "+softirqTimesLost, "boot a kernel without PREEMPT_RT to have them")
	}
	f.State, f.Detail = model.FindingOK, "no: softirqs are not interrupted by tasks"
	return []model.Finding{f}
}

// netRX tells which CPUs handle what is received.
func (c checker) netRX() []model.Finding {
	f := model.Finding{Area: areaKernel, Name: "NET_RX softirqs"}
	const consequence = "which CPUs handle received packets is only known while probes run"
	data, err := os.ReadFile(filepath.Join(c.root, "sys/devices/system/cpu/online"))
	if err != nil {
		return failed(f, model.FindingDegraded, fmt.Errorf("read online CPUs: %w", err), consequence, "mount sysfs on /sys")
	}
	online, err := model.ParseCPUList(string(data))
	if err != nil {
		return failed(f, model.FindingDegraded, fmt.Errorf("online CPUs: %w", err), consequence, "")
	}
	table, err := readCPUTable(filepath.Join(c.root, "proc"), "softirqs")
	if err != nil {
		return failed(f, model.FindingDegraded, err, consequence, "mount proc on /proc")
	}
	counts := table["NET_RX"]
	var sum, most uint64
	var busiest, handling int
	for _, cpu := range online {
		n := uint64(counts[cpu])
		if sum += n; n > 0 {
			handling++
		}
		if n > most {
			busiest, most = cpu, n
		}
	}
	f.State, f.Detail = model.FindingOK, fmt.Sprintf("none yet on %d online CPUs", len(online))
	if sum > 0 {
		f.Detail = fmt.Sprintf("on %d of %d online CPUs, most on CPU %d (%.0f%%)", handling, len(online), busiest, 100*float64(most)/float64(sum))
	}
	return []model.Finding{f}
}

func (c checker) probeFinding(name, lost string, state model.FindingState, done []attached, err error) model.Finding {
	f := model.Finding{Area: areaProbe, Name: name}
	if err != nil {
		return failed(f, state, err, "unknown: "+lost, c.remedy(name, err))[0]
	}
	names := make([]string, 0, len(done))
	for _, a := range done {
		names = append(names, a.name)
	}
	f.State, f.Detail = model.FindingOK, "attached "+strings.Join(names, ", ")
	if err := closeAll(done); err != nil {
		return failed(f, model.FindingDegraded, err, "a probe stays attached until this process ends", "none is needed")[0]
	}
	return f
}

func (c checker) contexts() []model.Finding {
	f := model.Finding{Area: areaProbe, Name: signalContexts}
	loaded, err := loadContexts()
	if err != nil {
		return failed(f, model.FindingDegraded, err, "unknown: "+procContextsLost, c.remedy(signalContexts, err))
	}
	listed, err := loaded.list(nil)
	if err = errors.Join(err, loaded.close()); err != nil {
		return failed(f, model.FindingDegraded, err, "unknown: "+procContextsLost, c.remedy(signalContexts, err))
	}
	f.State, f.Detail = model.FindingOK, fmt.Sprintf("contexts of %s listed", model.Count(len(listed), "process"))
	return []model.Finding{f}
}

// remedy says what to do about a program that was not attached. signal is empty
// where it is not about one.
func (c checker) remedy(signal string, err error) string {
	if _, statErr := os.Stat(filepath.Join(c.root, "sys/kernel/btf/vmlinux")); statErr != nil {
		return "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		if c.confidential() && slices.Contains([]string{signalTimers, signalContexts, signalEpollReturns}, signal) {
			return lockdownRemedy
		}
		switch signal {
		case signalSocketReads, signalSocketSends:
			return "use Linux 6.3 or later, which brought the tracepoints of sockets"
		case signalContexts:
			return "use a kernel with BPF iterators over files (Linux 5.8)"
		case signalEpollReturns:
			return "use a kernel built with CONFIG_FTRACE_SYSCALLS=y"
		default:
			return "use a kernel of Linux 5.8 or later with its tracepoints (CONFIG_TRACEPOINTS=y, CONFIG_BPF_EVENTS=y)"
		}
	}
	mask, capErr := effectiveCapabilities(c.root)
	if capErr != nil {
		return "run as root, or with CAP_BPF and CAP_PERFMON"
	}
	if lacking := lackingForBPF(mask); len(lacking) > 0 {
		return "run as root, or with " + strings.Join(lacking, " and ")
	}
	if text, readErr := os.ReadFile(filepath.Join(c.root, "proc/self/uid_map")); readErr == nil && !initialUserNamespace(string(text)) {
		return "run in the initial user namespace: the capabilities of this one do not reach BPF"
	}
	return "no capability is missing: look for lockdown, a security module or a sandbox that refuses BPF"
}

// failed fills in what an error tells.
func failed(f model.Finding, state model.FindingState, err error, consequence, remedy string) []model.Finding {
	f.State, f.Detail, f.Errno = state, honest(err).Error(), errnoName(err)
	f.Consequence, f.Remedy = consequence, remedy
	return []model.Finding{f}
}

// errnoName returns the symbolic errno behind err, nil when there is none.
func errnoName(err error) *string {
	e := errno(err)
	if e == syscall.Errno(0) {
		return nil
	}
	name := unix.ErrnoName(e)
	if name == "" {
		name = fmt.Sprintf("errno %d", int(e))
	}
	return &name
}
