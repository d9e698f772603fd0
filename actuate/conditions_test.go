package actuate

import (
	"bytes"
	"testing"
	"testing/fstest"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func files(contents map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, data := range contents {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return out
}

const cpu = "devices/system/cpu/"

// TestCPUConditionsByKernel has the files of machines of several kinds.
func TestCPUConditionsByKernel(t *testing.T) {
	for _, tt := range []struct {
		name      string
		sys, proc map[string]string
		want      model.Conditions
	}{
		{
			name: "bare metal, intel_pstate and intel_idle limited on the command line",
			sys: map[string]string{
				cpu + "cpuidle/current_driver": "intel_idle\n", cpu + "cpuidle/current_governor": "menu\n",
				cpu + "cpu0/cpufreq/scaling_governor": "powersave\n", cpu + "cpu0/cpufreq/scaling_min_freq": "800000\n",
				cpu + "cpu0/cpufreq/scaling_max_freq": "3500000\n", cpu + "cpu0/power/pm_qos_resume_latency_us": "n/a\n",
				cpu + "cpu0/cpuidle/state0/name": "POLL\n", cpu + "cpu0/cpuidle/state0/latency": "0\n", cpu + "cpu0/cpuidle/state0/disable": "0\n",
				cpu + "cpu0/cpuidle/state1/name": "C1\n", cpu + "cpu0/cpuidle/state1/latency": "2\n", cpu + "cpu0/cpuidle/state1/disable": "0\n",
				cpu + "cpu0/cpuidle/state2/name": "C6\n", cpu + "cpu0/cpuidle/state2/latency": "133\n", cpu + "cpu0/cpuidle/state2/disable": "1\n",
			},
			proc: map[string]string{"cmdline": "BOOT_IMAGE=/vmlinuz ro intel_idle.max_cstate=1 processor.max-cstate=1 quiet\n"},
			want: model.Conditions{
				CPUIdleDriver: ptr("intel_idle"), CPUIdleGovernor: ptr("menu"),
				IdleLimit: ptr("intel_idle.max_cstate=1 processor.max-cstate=1"),
				CPUs: []model.CPUConditions{{
					CPU: 0, Governor: ptr("powersave"), MinFrequency: ptr(uint64(800000)), MaxFrequency: ptr(uint64(3500000)),
					ResumeLatency: ptr(time.Duration(0)),
					IdleStates:    []model.IdleState{{Name: "POLL"}, {Name: "C1", Latency: 2 * time.Microsecond}, {Name: "C6", Latency: 133 * time.Microsecond, Disabled: true}},
				}},
			},
		},
		{
			name: "a virtual machine: no cpufreq, an older kernel's name of the governor, CPU 1 offline, ids beyond 9",
			sys: map[string]string{
				cpu + "cpuidle/current_driver": "none\n", cpu + "cpuidle/current_governor_ro": "menu\n",
				cpu + "cpu0/power/pm_qos_resume_latency_us": "0\n", cpu + "cpu1/online": "0\n", cpu + "cpu10/online": "1\n",
				cpu + "cpu2/power/pm_qos_resume_latency_us": "50\n", cpu + "cpufreq/boost": "1\n", cpu + "online": "0,2,10\n",
			},
			proc: map[string]string{"cmdline": "quiet\n"},
			want: model.Conditions{
				CPUIdleDriver: ptr("none"), CPUIdleGovernor: ptr("menu"), IdleLimit: ptr(""),
				CPUs: []model.CPUConditions{{CPU: 0}, {CPU: 2, ResumeLatency: ptr(50 * time.Microsecond)}, {CPU: 10}},
			},
		},
		{
			name: "nothing but a directory",
			sys:  map[string]string{cpu + "cpu0/uevent": ""},
			want: model.Conditions{CPUs: []model.CPUConditions{{CPU: 0}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseCPUs(files(tt.sys), files(tt.proc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := parseCPUs(files(nil), files(nil)); err == nil {
		t.Error("no sysfs at all is no error")
	}
}

func TestDeviceConditionsFromSysfs(t *testing.T) {
	for _, tt := range []struct {
		name string
		sys  map[string]string
		want model.DeviceConditions
	}{
		{"a NIC", map[string]string{
			"class/net/eth0/device/vendor": "0x15b3\n", "class/net/eth0/device/device": "0x1017\n", "class/net/eth0/speed": "100000\n",
		}, model.DeviceConditions{NIC: ptr("15b3:1017"), SpeedMbps: ptr(uint32(100000))}},
		{"no carrier", map[string]string{"class/net/eth0/speed": "-1\n"}, model.DeviceConditions{}},
		{"a virtual device", nil, model.DeviceConditions{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got model.DeviceConditions
			fillDevice(files(tt.sys), "eth0", &got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIRQAffinity(t *testing.T) {
	proc := files(map[string]string{
		"irq/41/smp_affinity_list": "0-3,8\n", "irq/41/effective_affinity_list": "2\n", "irq/42/smp_affinity_list": "1\n",
	})
	for _, tt := range []struct {
		irq  *uint32
		want model.NAPIConditions
	}{
		{nil, model.NAPIConditions{}},
		{ptr(uint32(41)), model.NAPIConditions{IRQ: ptr(uint32(41)), IRQAffinity: ptr("0-3,8"), IRQEffective: ptr("2")}},
		// Without CONFIG_GENERIC_IRQ_EFFECTIVE_AFF_MASK.
		{ptr(uint32(42)), model.NAPIConditions{IRQ: ptr(uint32(42)), IRQAffinity: ptr("1")}},
		{ptr(uint32(43)), model.NAPIConditions{IRQ: ptr(uint32(43))}},
	} {
		got := model.NAPIConditions{IRQ: tt.irq}
		fillIRQ(proc, &got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestLatencyLimit(t *testing.T) {
	if got := latencyLimit(bytes.NewReader([]byte{0x00, 0x94, 0x35, 0x77})); got == nil || *got != model.NoLatencyLimit {
		t.Errorf("the default reads %v", got)
	}
	if got := latencyLimit(bytes.NewReader([]byte{0, 0, 0, 0})); got == nil || *got != 0 {
		t.Errorf("a limit of 0 reads %v", got)
	}
	if got := latencyLimit(bytes.NewReader([]byte{1, 2})); got != nil {
		t.Errorf("two bytes read %v", got)
	}
}

// TestSysfsByKernel has the device-level files as kernels show them.
func TestSysfsByKernel(t *testing.T) {
	const dir = "class/net/eth0/"
	for _, tt := range []struct {
		name         string
		count, flush string
		want         Defaults
		wantsFailure bool
	}{
		{"zeros", "0\n", "0\n", Defaults{}, false},
		{"set", "100\n", "200000\n", Defaults{DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond}, false},
		{"above 2^31-1, before the fix of CVE-2024-50018", "-2147483648\n", "0\n", Defaults{DeferHardIRQs: 1 << 31}, false},
		{"a timeout that no time.Duration holds", "0\n", "18446744073709551615\n", Defaults{GROFlushTimeout: 1<<63 - 1}, false},
		{"no count", "x\n", "0\n", Defaults{}, true},
		{"beyond any count", "99999999999\n", "0\n", Defaults{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseDefaults(files(map[string]string{dir + "napi_defer_hard_irqs": tt.count, dir + "gro_flush_timeout": tt.flush}), "eth0")
			if (err != nil) != tt.wantsFailure {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	n, err := countRxQueues(files(map[string]string{
		dir + "queues/rx-0/rps_cpus": "", dir + "queues/rx-1/rps_cpus": "", dir + "queues/tx-0/xps_cpus": "",
	}), "eth0")
	if n != 2 || err != nil {
		t.Errorf("%d receive queues, %v; want 2", n, err)
	}
}
