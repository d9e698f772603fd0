package policy

import (
	"testing"
	"time"

	"autotune/model"
)

// readyFeatures are those of a queue under suspension, at a load that its CPU has
// room for.
func readyFeatures(queue int) model.Features {
	return model.Features{
		Queue:      model.Queue{Netns: 1, Ifindex: 2, Index: queue},
		Active:     model.Settings{DeferHardIRQs: 20, GROFlushTimeout: 50 * time.Microsecond, IRQSuspendTimeout: 5 * time.Millisecond},
		PacketRate: 100_000, CostPerPacket: 4 * time.Microsecond, Utilisation: 0.4,
		Quantile: 200 * time.Microsecond, Median: 80 * time.Microsecond,
		Objective:  model.Objective{SLO: 250 * time.Microsecond, Quantile: 0.99},
		Suspension: model.Readiness{Ready: true},
	}
}

func mustGreybox(t *testing.T) *Greybox {
	t.Helper()
	p, err := NewGreybox(DefaultGreyboxOptions())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// While a queue breaks the SLO the others of its device use less of it, and no
// longer.
func TestQueuesMakeRoomBesideOneThatIsLate(t *testing.T) {
	p := mustGreybox(t)
	late, other := readyFeatures(0), readyFeatures(1)
	late.Quantile = 300 * time.Microsecond
	keep := func() float64 {
		q := p.queues[other.Queue]
		return newGreyboxChoice(p, q, p.devices[greyboxDeviceKey{1, 2}], &other).keep
	}
	p.Decide(late)
	p.Decide(other)
	if got := keep(); got != 1 {
		t.Errorf("after one late window the others may use %v of the SLO, want all", got)
	}
	p.Decide(late)
	if got, want := keep(), 1-greyboxUseBeside; got != want {
		t.Errorf("after two late windows the others may use %v of the SLO, want %v", got, want)
	}
	late.Quantile = 200 * time.Microsecond
	p.Decide(late)
	if got := keep(); got != 1 {
		t.Errorf("after the late windows the others may use %v of the SLO, want all", got)
	}
}

// An application that polls by itself and cannot keep up is not helped by softirqs.
func TestAnOverloadedQueueStaysInSuspension(t *testing.T) {
	p := mustGreybox(t)
	f := readyFeatures(0)
	f.PacketRate, f.Utilisation, f.CostPerPacket = 290_000, 1, 3450*time.Nanosecond
	f.Quantile = 300 * time.Microsecond
	for w := range 60 {
		f.Quantile = time.Duration(290+10*(w%3)) * time.Microsecond
		d := p.Decide(f)
		if d.Settings.Mode() != model.ModeSuspension {
			t.Fatalf("window %d: %v, %s", w, d.Settings, d.Why)
		}
		f.Active = d.Settings
	}
}
