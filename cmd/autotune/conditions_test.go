package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"autotune/probe/trace"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

// hostTree makes files below a root of its own.
func hostTree(t *testing.T, files map[string]string) hostFiles {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		writeText(t, path, text)
	}
	return hostFiles{root: root}
}

func TestConditionsOfAHost(t *testing.T) {
	const cpu = "sys/devices/system/cpu/"
	irq := uint32(77)
	devices := []trace.Device{{Ifname: "eth7", NAPIs: []trace.NAPI{{NAPIID: 8193, IRQ: &irq}, {NAPIID: 8194}}}}
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  trace.Conditions
	}{
		{"one that tells nothing", map[string]string{"proc/cmdline": "quiet\n"}, trace.Conditions{
			Devices: devices, CPUs: []trace.CPU{}, IdleLimit: ptr(""),
		}},
		{"a server", map[string]string{
			cpu + "cpu0/cpufreq/scaling_governor":        "performance\n",
			cpu + "cpu0/power/pm_qos_resume_latency_us":  "0\n",
			cpu + "cpu0/cpuidle/state0/name":             "POLL\n",
			cpu + "cpu0/cpuidle/state0/latency":          "0\n",
			cpu + "cpu0/cpuidle/state0/disable":          "0\n",
			cpu + "cpu0/cpuidle/state1/name":             "C6\n",
			cpu + "cpu0/cpuidle/state1/latency":          "133\n",
			cpu + "cpu0/cpuidle/state1/disable":          "1\n",
			cpu + "cpu10/power/pm_qos_resume_latency_us": "n/a\n",
			cpu + "cpu2/power/pm_qos_resume_latency_us":  "50\n",
			cpu + "cpufreq/ignored":                      "",
			cpu + "cpuidle/current_driver":               "intel_idle\n",
			cpu + "cpuidle/current_governor":             "menu\n",
			"proc/irq/77/smp_affinity_list":              "0-3\n",
			"proc/cmdline":                               "ro intel_idle.max_cstate=1 idle=poll quiet\n",
			"dev/cpu_dma_latency":                        "\x14\x00\x00\x00",
		}, trace.Conditions{
			Devices: []trace.Device{{Ifname: "eth7", NAPIs: []trace.NAPI{{NAPIID: 8193, IRQ: &irq, IRQAffinity: ptr("0-3")}, {NAPIID: 8194}}}},
			CPUs: []trace.CPU{
				{CPU: 0, Governor: ptr("performance"), IdleStates: []trace.IdleState{
					{Name: "POLL"}, {Name: "C6", Latency: 133 * time.Microsecond, Disabled: true},
				}},
				{CPU: 2, ResumeLatency: ptr(50 * time.Microsecond)},
				{CPU: 10, ResumeLatency: ptr(time.Duration(0))},
			},
			CPUIdleDriver: ptr("intel_idle"), CPUIdleGovernor: ptr("menu"),
			CPUDMALatency: ptr(20 * time.Microsecond), IdleLimit: ptr("intel_idle.max_cstate=1 idle=poll"),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, hostTree(t, tc.files).conditions(devices)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionsAreWrittenWhenTheyChange(t *testing.T) {
	governor := "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
	files := hostTree(t, map[string]string{governor: "powersave\n"})
	w := conditionsWatch{files: files, last: files.conditions(nil)}
	if _, changed := w.changed(11 * time.Second); changed {
		t.Error("nothing had changed")
	}
	writeText(t, filepath.Join(files.root, governor), "performance\n")
	if _, changed := w.changed(12 * time.Second); changed {
		t.Error("read again after a second")
	}
	now, changed := w.changed(22 * time.Second)
	if !changed || *now.CPUs[0].Governor != "performance" {
		t.Errorf("%v, %+v", changed, now)
	}
	if _, changed := w.changed(33 * time.Second); changed {
		t.Error("written twice")
	}
}
