package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"
	"autotune/probe/trace"

	"github.com/google/go-cmp/cmp"
)

func TestModerationIsTracedWhenItChanges(t *testing.T) {
	system := memkernel.New()
	device := system.AddNamespace("n").AddDevice("dev0", 1, memkernel.Virtio())
	dir := t.TempDir()
	host, err := actuate.Open(context.Background(), actuate.Options{
		System: system, Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	devices := []trace.Device{{Ifindex: device.Link().Index, Ifname: "dev0", NAPIs: []trace.NAPI{}}}
	known, err := host.Conditions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := conditionsWatch{host: host, last: tracedConditions(devices, known)}
	if w.last.Devices[0].Coalescing != nil {
		t.Errorf("moderation of a driver that has none: %+v", w.last.Devices[0].Coalescing)
	}
	usecs, on := uint32(64), true
	device.SetCoalescing(&model.Coalescing{RXUsecs: &usecs, AdaptiveRX: &on, CQEModeRX: &on})
	now, changed := w.changed(11 * time.Second)
	if !changed {
		t.Fatal("not noticed")
	}
	want := &trace.Coalescing{RXUsecs: &usecs, AdaptiveRX: &on, CQEModeRX: &on}
	if diff := cmp.Diff(want, now.Devices[0].Coalescing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, changed := w.changed(22 * time.Second); changed {
		t.Error("written twice")
	}
}
