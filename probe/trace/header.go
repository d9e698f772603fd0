package trace

import (
	"encoding/json"
	"fmt"
	"time"

	"autotune/model"
)

// SchemaVersion is the version of the format that this package writes. It reads
// it and those before: version 2, which has no rounded histograms, and version 1, in
// which every queue and CPU is an object, and counts are runs of decimal numbers.
const SchemaVersion = 3

const oldestSchemaVersion = 1

// Header is the first line of a trace: what has to be known to read and judge
// the rest. Nil pointers stand for what is not known.
type Header struct {
	// AutotuneVersion is the version of the program that recorded.
	AutotuneVersion string `json:"autotune_version"`
	// Host is the host name, Kernel the release (uname -r), Machine the
	// architecture (uname -m).
	Host    string `json:"host"`
	Kernel  string `json:"kernel"`
	Machine string `json:"machine"`
	// BootID is /proc/sys/kernel/random/boot_id: times of traces with equal
	// boot IDs compare.
	BootID string `json:"boot_id"`
	// Clock names the clock of all times since boot, "CLOCK_BOOTTIME" for
	// live recordings.
	Clock string `json:"clock"`
	// StartedAt is the time since boot at which the recording began, and
	// StartedWall the same moment on the wall clock.
	StartedAt   time.Duration `json:"started_at_ns"`
	StartedWall *time.Time    `json:"started_wall"`
	// Interval is the intended length of a sample's span.
	Interval time.Duration `json:"interval_ns"`
	// Histograms says how exact those of the samples are.
	Histograms Detail `json:"histograms"`
	// Probes are the probes of the source and how well each works.
	Probes []Probe `json:"probes"`
	// Conditions are the facts of the host that compete for the same latency,
	// as they were at the start.
	Conditions Conditions `json:"conditions"`
	// Run is what was run; nil for a mere recording.
	Run *Run `json:"run"`
	// Part is which part of a recording this is; nil where it is all of it.
	Part *Part `json:"part"`
	// Edits are what was made of the recording since, the first one first; nil
	// for a trace as it was recorded.
	Edits []Edit `json:"edits"`
}

// Part places one file of a recording that was written in several, each of
// which is a trace by itself.
type Part struct {
	// Recording is the same random text in all parts of a recording, and in
	// those of no other.
	Recording string `json:"recording"`
	// Number counts the parts from 0.
	Number int `json:"number"`
	// Samples and Others count the records in the parts before.
	Samples uint64 `json:"samples_before"`
	Others  uint64 `json:"others_before"`
}

// follows reports whether the part comes right after another.
func (p *Part) follows(before *Part) bool {
	return p != nil && before != nil && p.Recording == before.Recording && p.Number == before.Number+1
}

// Edit is one thing that was done to a trace after it was recorded.
type Edit struct {
	Op     EditOp `json:"op"`
	Detail string `json:"detail"`
}

// EditOp is a kind of [Edit].
type EditOp string

// The kinds of edits. A trace that was cut does not begin as its run did, and
// one that was imported had no run.
const (
	EditCut       EditOp = "cut"
	EditMerge     EditOp = "merge"
	EditAnonymize EditOp = "anonymize"
	EditImport    EditOp = "import"
	EditSalvage   EditOp = "salvage"
)

// Probe is one probe of the source.
type Probe struct {
	Name  string             `json:"name"`
	State model.FindingState `json:"state"`
	// Variant names which of the ways to observe it is in use, the primary or
	// a fall-back.
	Variant *string `json:"variant"`
	// Detail is the reason where State is not ok.
	Detail string `json:"detail"`
}

// Conditions are facts of the host outside the tuned knobs. Recordings under
// different conditions do not compare.
type Conditions struct {
	Devices []Device `json:"devices"`
	CPUs    []CPU    `json:"cpus"`
	// CPUIdleDriver and CPUIdleGovernor are from /sys/devices/system/cpu/cpuidle.
	CPUIdleDriver   *string `json:"cpuidle_driver"`
	CPUIdleGovernor *string `json:"cpuidle_governor"`
	// CPUDMALatency is the host-wide limit on the exit latency of idle states
	// (/dev/cpu_dma_latency).
	CPUDMALatency *time.Duration `json:"cpu_dma_latency_ns"`
	// IdleLimit is what the kernel command line says on idle states, for
	// example "intel_idle.max_cstate=1"; empty when it says nothing.
	IdleLimit *string `json:"idle_limit"`
}

// Device is one network device of the run.
type Device struct {
	Netns   uint64  `json:"netns"`
	Ifindex int     `json:"ifindex"`
	Ifname  string  `json:"ifname"`
	Driver  *string `json:"driver"`
	// Firmware, BusInfo and NIC (vendor and device ID) describe the hardware.
	Firmware *string `json:"firmware"`
	BusInfo  *string `json:"bus_info"`
	NIC      *string `json:"nic"`
	// SpeedMbps is the link speed in Mbit/s.
	SpeedMbps  *uint32     `json:"speed_mbps"`
	Coalescing *Coalescing `json:"coalescing"`
	// Stamping is how the device stamps received packets; nil where it cannot.
	Stamping *model.Stamping `json:"stamping"`
	NAPIs    []NAPI          `json:"napis"`
}

// Coalescing is the device's interrupt coalescing (ethtool -c).
type Coalescing struct {
	AdaptiveRX *bool   `json:"adaptive_rx"`
	AdaptiveTX *bool   `json:"adaptive_tx"`
	RXUsecs    *uint32 `json:"rx_us"`
	RXFrames   *uint32 `json:"rx_frames"`
	TXUsecs    *uint32 `json:"tx_us"`
	TXFrames   *uint32 `json:"tx_frames"`
	// CQEModeRX and CQEModeTX restart the delay with every completion.
	CQEModeRX *bool `json:"cqe_mode_rx"`
	CQEModeTX *bool `json:"cqe_mode_tx"`
}

// NAPI is one NAPI instance of a device.
type NAPI struct {
	Queue    model.Queue    `json:"queue"`
	NAPIID   uint32         `json:"napi_id"`
	Mapping  model.Mapping  `json:"mapping"`
	IRQ      *uint32        `json:"irq"`
	Threaded *uint32        `json:"threaded"`
	Settings model.Settings `json:"settings"`
	// IRQAffinity is the CPU list of /proc/irq/N/smp_affinity_list.
	IRQAffinity *string `json:"irq_affinity"`
	// CPUs are the CPUs that poll the instance: where its thread is pinned, or
	// where its interrupt goes; nil where that is left to the scheduler.
	CPUs []int `json:"cpus"`
}

// CPU is what limits one CPU's frequency and idle states.
type CPU struct {
	CPU int `json:"cpu"`
	// Governor is the cpufreq governor.
	Governor *string `json:"governor"`
	// ResumeLatency is the CPU's own limit on the exit latency of idle states
	// (power/pm_qos_resume_latency_us).
	ResumeLatency *time.Duration `json:"resume_latency_limit_ns"`
	// IdleStates are the states of cpuidle; nil where there is none.
	IdleStates []IdleState `json:"idle_states"`
}

// IdleState is one idle state of a CPU.
type IdleState struct {
	Name     string        `json:"name"`
	Latency  time.Duration `json:"exit_latency_ns"`
	Disabled bool          `json:"disabled"`
}

// Run is what decided while the trace was recorded: enough to decide again and
// compare the journals byte by byte.
type Run struct {
	// Policy is the policy's spec as [autotune/model/policy] parses it.
	Policy string `json:"policy"`
	Seed   uint64 `json:"seed"`
	// Apply is true when settings were written, false when observed only.
	Apply     bool            `json:"apply"`
	Objective model.Objective `json:"-"`
	Bounds    model.Bounds    `json:"-"`
	Originals []QueueSettings `json:"originals"`
	// Queues are those that were tuned; empty stands for all that a sample has
	// a read-back of.
	Queues []model.Queue `json:"queues"`
	// Guards are the options of the guards, in the form of their owner.
	Guards json.RawMessage `json:"guards"`
}

// QueueSettings is what one queue was set to.
type QueueSettings struct {
	Queue    model.Queue    `json:"queue"`
	Settings model.Settings `json:"settings"`
}

type runFields Run

type runJSON struct {
	runFields
	SLO         time.Duration `json:"slo_ns"`
	Quantile    float64       `json:"slo_quantile"`
	MaxDefer    uint32        `json:"max_defer_hard_irqs"`
	MaxFlush    time.Duration `json:"max_gro_flush_timeout_ns"`
	MaxSuspend  time.Duration `json:"max_irq_suspend_timeout_ns"`
	MaxBusyPoll time.Duration `json:"max_busy_poll_ns"`
	MaxBudget   uint16        `json:"max_busy_poll_budget"`
}

// MarshalJSON writes the objective and the bounds as fields of the run, with
// units.
func (r Run) MarshalJSON() ([]byte, error) {
	return json.Marshal(runJSON{
		runFields: runFields(r),
		SLO:       r.Objective.SLO, Quantile: r.Objective.Quantile,
		MaxDefer: r.Bounds.MaxDefer, MaxFlush: r.Bounds.MaxFlush, MaxSuspend: r.Bounds.MaxSuspend,
		MaxBusyPoll: r.Bounds.MaxBusyPoll, MaxBudget: r.Bounds.MaxBudget,
	})
}

// UnmarshalJSON reads what [Run.MarshalJSON] writes.
func (r *Run) UnmarshalJSON(data []byte) error {
	var in runJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*r = Run(in.runFields)
	if string(r.Guards) == "null" {
		r.Guards = nil
	}
	r.Objective = model.Objective{SLO: in.SLO, Quantile: in.Quantile}
	r.Bounds = model.Bounds{
		MaxDefer: in.MaxDefer, MaxFlush: in.MaxFlush, MaxSuspend: in.MaxSuspend,
		MaxBusyPoll: in.MaxBusyPoll, MaxBudget: in.MaxBudget,
	}
	return nil
}

// histogramRule describes the buckets of duration histograms in the header, so
// that a file explains itself; a reader refuses another rule.
type histogramRule struct {
	UnitNS      int64 `json:"unit_ns"`
	PerDoubling int   `json:"buckets_per_doubling"`
	Buckets     int   `json:"buckets"`
	WorkBuckets int   `json:"work_buckets"`
}

func currentHistogramRule() histogramRule {
	_, unit := model.HistogramBounds(0)
	// Units 0 to n-1 have a bucket each, where n is the number of buckets per
	// doubling: the first bucket that is wider than a unit ends the second n.
	n := 0
	for {
		low, high := model.HistogramBounds(n)
		if high-low != unit {
			break
		}
		n++
	}
	return histogramRule{
		UnitNS:      int64(unit),
		PerDoubling: n / 2,
		Buckets:     model.HistogramBuckets,
		WorkBuckets: model.WorkBuckets,
	}
}

type headerLine struct {
	Kind          Kind          `json:"kind"`
	SchemaVersion int           `json:"schema_version"`
	Histogram     histogramRule `json:"histogram"`
	Header
}

func marshalHeader(h Header) ([]byte, error) {
	line, err := json.Marshal(headerLine{
		Kind: KindHeader, SchemaVersion: SchemaVersion, Histogram: currentHistogramRule(), Header: h,
	})
	if err != nil {
		return nil, fmt.Errorf("encode trace header: %w", err)
	}
	return line, nil
}

func parseHeader(line []byte) (Header, int, error) {
	var version struct {
		Kind          Kind `json:"kind"`
		SchemaVersion *int `json:"schema_version"`
	}
	if err := json.Unmarshal(line, &version); err != nil || version.Kind != KindHeader || version.SchemaVersion == nil {
		return Header{}, 0, fmt.Errorf("%w: its first line is not a header", ErrNotTrace)
	}
	if err := checkSchema(*version.SchemaVersion); err != nil {
		return Header{}, 0, err
	}
	var h headerLine
	if err := json.Unmarshal(line, &h); err != nil {
		return Header{}, 0, fmt.Errorf("decode trace header: %w: %w", ErrCorrupt, err)
	}
	if want := currentHistogramRule(); h.Histogram != want {
		return Header{}, 0, fmt.Errorf("%w: histogram rule %+v, this build has %+v", ErrSchema, h.Histogram, want)
	}
	return h.Header, *version.SchemaVersion, nil
}

func checkSchema(version int) error {
	switch {
	case version > SchemaVersion:
		return fmt.Errorf("%w: version %d, and this build reads %d to %d: use a newer autotune", ErrSchema, version, oldestSchemaVersion, SchemaVersion)
	case version < oldestSchemaVersion:
		return fmt.Errorf("%w: version %d, and this build reads %d to %d: use the autotune that recorded it", ErrSchema, version, oldestSchemaVersion, SchemaVersion)
	default:
		return nil
	}
}
