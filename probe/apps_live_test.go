package probe

import (
	"testing"

	"autotune/bpf"
	"autotune/experiments/testbed"
)

// More processes than the map holds cost the detail of some, not the window.
func TestMoreApplicationsThanFitAreNoLoss(t *testing.T) {
	testbed.Require(t)
	sizes := mapSizes{napis: 1, cpus: 2}
	_, collection, err := newLoader(sizes)
	if err != nil {
		t.Fatal(err)
	}
	p := newPrograms(collection, sizes)
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	for pid := range uint32(3 * appCapacity) {
		if err := collection.Maps[bpf.ReceiveMapApps].Put(pid+1, bpf.ReceiveAppWaits{Returned: uint64(pid)}); err != nil {
			t.Fatalf("process %d: %v", pid+1, err)
		}
	}
	var r reading
	if err := p.read(&r); err != nil {
		t.Fatal(err)
	}
	if n := len(r.apps); n < appCapacity/2 || n > appCapacity || r.lost != 0 {
		t.Errorf("%d applications read, %d events lost; want at most %d and none", n, r.lost, appCapacity)
	}
	if _, ok := r.apps[3*appCapacity]; !ok {
		t.Error("the last application is not known")
	}
}
