package actuate_test

import (
	"context"
	"errors"
	"testing"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
)

func TestConditionsOfTheSelectedDevices(t *testing.T) {
	m := newMachine(t, 2, memkernel.Virtio())
	usecs, irq, first := uint32(8), uint32(41), "0"
	m.device.SetCoalescing(&model.Coalescing{RXUsecs: &usecs})
	m.device.SetIRQ(1, irq)
	m.ns.AddDevice("other0", 1, memkernel.Virtio())
	h := mustOpen(t, m.options("a"))
	got, err := h.Conditions(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := model.Conditions{Devices: []model.DeviceConditions{{
		Netns: m.ns.Inode(), Ifindex: m.device.Link().Index, Ifname: "dev0", Coalescing: &model.Coalescing{RXUsecs: &usecs},
		NAPIs: []model.NAPIConditions{
			{Queue: m.device.Queue(0)}, {Queue: m.device.Queue(1), IRQ: &irq, IRQAffinity: &first, IRQEffective: &first},
		},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLiveConditions compares what is read of a veth, which moderates nothing,
// and of this machine's own interfaces with what the older ioctl says.
func TestLiveConditions(t *testing.T) {
	testbed.Require(t)
	b := bed(t, 2)
	h := mustOpen(t, liveOptions(t, b))
	got, err := h.Conditions(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Devices) != 1 || got.Devices[0].Coalescing != nil || got.Devices[0].NIC != nil || len(got.Devices[0].NAPIs) != 2 {
		t.Errorf("veth: %+v", got.Devices)
	}
	if len(got.CPUs) == 0 || got.CPUDMALatency == nil || got.IdleLimit == nil {
		t.Errorf("CPUs %+v, latency limit %v, idle limit %v", got.CPUs, got.CPUDMALatency, got.IdleLimit)
	}

	host, err := actuate.Open(context.Background(), actuate.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := host.Conditions(context.Background())
	if err := errors.Join(err, host.Close()); err != nil {
		t.Fatal(err)
	}
	byIoctl, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer byIoctl.Close()
	for _, d := range all.Devices {
		want, err := byIoctl.GetCoalesce(d.Ifname)
		switch {
		case err != nil && d.Coalescing == nil:
		case err != nil || d.Coalescing == nil:
			t.Errorf("%s: %+v, and the ioctl says %+v, %v", d.Ifname, d.Coalescing, want, err)
		case d.Coalescing.RXUsecs != nil && *d.Coalescing.RXUsecs != want.RxCoalesceUsecs,
			d.Coalescing.RXFrames != nil && *d.Coalescing.RXFrames != want.RxMaxCoalescedFrames,
			d.Coalescing.AdaptiveRX != nil && *d.Coalescing.AdaptiveRX != (want.UseAdaptiveRxCoalesce != 0):
			t.Errorf("%s: %+v, and the ioctl says %+v", d.Ifname, d.Coalescing, want)
		}
	}
	t.Logf("%d CPUs, %d devices of this machine", len(all.CPUs), len(all.Devices))
}
