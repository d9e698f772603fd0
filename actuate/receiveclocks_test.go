package actuate_test

import (
	"path/filepath"
	"testing"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func TestReceiveClocksAreThoseThatStampNow(t *testing.T) {
	system := memkernel.New()
	namespace := system.AddNamespace("n")
	on, off := "all", "none"
	want := make(map[int]int)
	var names []string
	for _, d := range []struct {
		name     string
		stamping *model.Stamping
		used     bool
	}{
		{"all", &model.Stamping{Clock: 4, Filter: &on}, true},
		{"off", &model.Stamping{Clock: 1, Filter: &off}, false},
		{"mute", &model.Stamping{Clock: 2}, true},
		{"none", nil, false},
	} {
		device := namespace.AddDevice(d.name, 1, memkernel.Virtio())
		device.SetStamping(d.stamping)
		if d.used {
			want[device.Link().Index] = d.stamping.Clock
		}
		names = append(names, d.name)
	}
	dir := t.TempDir()
	host, err := actuate.Open(t.Context(), actuate.Options{
		System: system, Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: names,
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	got, err := host.ReceiveClocks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clocks by device (-want +got):\n%s", diff)
	}
	known, err := host.Conditions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := known.Devices[0].Stamping; s == nil || s.Clock != 4 {
		t.Errorf("conditions %+v", known.Devices[0])
	}
}
