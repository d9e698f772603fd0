package model

import "time"

// Conditions are the facts of a host that compete with the tuned settings for
// the same latency. What is not reported, or does not exist, is nil.
type Conditions struct {
	Devices []DeviceConditions `json:"devices"`
	CPUs    []CPUConditions    `json:"cpus"`
	// CPUIdleDriver and CPUIdleGovernor choose among the idle states
	// (/sys/devices/system/cpu/cpuidle).
	CPUIdleDriver   *string `json:"cpuidle_driver"`
	CPUIdleGovernor *string `json:"cpuidle_governor"`
	// CPUDMALatency is the limit that processes set on the exit latency of idle
	// states of all CPUs (/dev/cpu_dma_latency), in whole microseconds;
	// [NoLatencyLimit] where none did.
	CPUDMALatency *time.Duration `json:"cpu_dma_latency_ns"`
	// IdleLimit is what the kernel command line says on idle states, for
	// example "intel_idle.max_cstate=1"; empty where it says nothing.
	IdleLimit *string `json:"idle_limit"`
}

// NoLatencyLimit is PM_QOS_CPU_LATENCY_DEFAULT_VALUE of include/linux/pm_qos.h:
// nobody has set a limit.
const NoLatencyLimit = 2000 * time.Second

// DeviceConditions are those of one network device.
type DeviceConditions struct {
	Netns   uint64 `json:"netns"`
	Ifindex int    `json:"ifindex"`
	Ifname  string `json:"ifname"`
	// Firmware and BusInfo are what ethtool reports of the driver, NIC the
	// vendor and device ID in hexadecimal ("15b3:1017").
	Firmware *string `json:"firmware"`
	BusInfo  *string `json:"bus_info"`
	NIC      *string `json:"nic"`
	// SpeedMbps is the link speed in Mbit/s.
	SpeedMbps  *uint32     `json:"speed_mbps"`
	Coalescing *Coalescing `json:"coalescing"`
	// Stamping is how the device stamps received packets; nil where it cannot.
	Stamping *Stamping        `json:"stamping"`
	NAPIs    []NAPIConditions `json:"napis"`
}

// Stamping is how a device stamps received packets with the time of its clock.
type Stamping struct {
	// Clock is N of the device's clock, /dev/ptpN.
	Clock int `json:"clock"`
	// Filter says which packets are stamped now, by the names that ethtool -T
	// has for the filters: "none", "all", "ptpv2-event"; nil where the driver
	// does not tell.
	Filter *string `json:"filter"`
	// All tells that the device could stamp all packets.
	All bool `json:"can_stamp_all"`
}

// On reports whether packets are stamped, as far as is known.
func (s *Stamping) On() bool {
	return s != nil && (s.Filter == nil || *s.Filter != StampNone)
}

// StampNone is the filter that stamps no packets.
const StampNone = "none"

// NAPIConditions are those of one NAPI instance.
type NAPIConditions struct {
	Queue Queue `json:"queue"`
	// IRQ is what the driver reports; without it the rest is nil.
	IRQ *uint32 `json:"irq"`
	// IRQAffinity are the CPUs that may take the interrupt, and IRQEffective
	// those that it is delivered to, as lists ("0-3,8"): smp_affinity_list and
	// effective_affinity_list of /proc/irq.
	IRQAffinity  *string `json:"irq_affinity"`
	IRQEffective *string `json:"irq_effective_affinity"`
}

// Coalescing is a device's interrupt moderation (ethtool -c). It delays the
// interrupt before any NAPI setting has a say.
type Coalescing struct {
	// AdaptiveRX and AdaptiveTX let the driver or the device move the rest by
	// itself.
	AdaptiveRX *bool `json:"adaptive_rx"`
	AdaptiveTX *bool `json:"adaptive_tx"`
	// RXUsecs and TXUsecs are the delay of the interrupt in microseconds,
	// RXFrames and TXFrames the number of frames that ends it.
	RXUsecs  *uint32 `json:"rx_us"`
	RXFrames *uint32 `json:"rx_frames"`
	TXUsecs  *uint32 `json:"tx_us"`
	TXFrames *uint32 `json:"tx_frames"`
	// CQEModeRX and CQEModeTX restart the delay with every completion instead
	// of counting it from the first (Linux 5.15).
	CQEModeRX *bool `json:"cqe_mode_rx"`
	CQEModeTX *bool `json:"cqe_mode_tx"`
}

// CPUConditions are what limits one CPU's frequency and idle states.
type CPUConditions struct {
	CPU int `json:"cpu"`
	// Governor is the cpufreq governor.
	Governor *string `json:"governor"`
	// MinFrequency and MaxFrequency are the limits that it keeps to, in kHz.
	MinFrequency *uint64 `json:"min_khz"`
	MaxFrequency *uint64 `json:"max_khz"`
	// ResumeLatency is the CPU's own limit on the exit latency of idle states
	// (power/pm_qos_resume_latency_us); nil also where there is no limit.
	ResumeLatency *time.Duration `json:"resume_latency_limit_ns"`
	// IdleStates are the states of cpuidle, the lightest first; nil where
	// there is none.
	IdleStates []IdleState `json:"idle_states"`
}

// IdleState is one idle state of a CPU.
type IdleState struct {
	Name string `json:"name"`
	// Latency is how long it takes to leave the state.
	Latency  time.Duration `json:"exit_latency_ns"`
	Disabled bool          `json:"disabled"`
}
