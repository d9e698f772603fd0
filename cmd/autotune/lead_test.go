package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

// readback is a source that sees nothing but settings.
type readback struct {
	host *actuate.Host
	left int
	at   time.Duration
}

func (r *readback) Next(ctx context.Context) (model.Sample, error) {
	if r.left--; r.left < 0 {
		return model.Sample{}, io.EOF
	}
	napis, err := r.host.NAPIs(ctx)
	r.at += time.Second
	s := model.Sample{At: r.at, Span: time.Second, Active: model.Config{}, NAPIIDs: map[model.Queue]uint32{}}
	for _, n := range napis {
		s.Queues = append(s.Queues, model.QueueSample{Queue: n.Queue, NAPIID: n.ID})
		s.Active[n.Queue], s.NAPIIDs[n.Queue] = n.Settings, n.ID
	}
	return s, err
}

type entries []tuner.Entry

func (e *entries) Record(entry tuner.Entry) error {
	*e = append(*e, entry)
	return nil
}

// TestDeviceWideLoopDecidesOncePerDevice runs the loop on a kernel that sets
// all queues of a device at once: none of them may take the others for another
// writer.
func TestDeviceWideLoopDecidesOncePerDevice(t *testing.T) {
	system := memkernel.New()
	system.Era = memkernel.EraList
	ns := system.AddNamespace("n")
	device := ns.AddDevice("dev0", 3, memkernel.Virtio())
	dir := t.TempDir()
	host, err := actuate.Open(context.Background(), actuate.Options{
		System: system, Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := policy.Parse("static:defer=100,flush=50us")
	if err != nil {
		t.Fatal(err)
	}
	var journal entries
	loop, err := tuner.New(tuner.Options{
		Source: ledSource{&readback{host: host, left: 5}, host}, Actuator: host, Policy: ordered, Journal: &journal,
		Objective: model.Objective{SLO: time.Millisecond, Quantile: 0.9}, Bounds: model.DefaultBounds(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}
	for i := range 3 {
		if got := device.Settings(i); got != want {
			t.Errorf("queue %d is set to %v", i, got)
		}
	}
	applied := 0
	for _, e := range journal {
		if e.Queue != device.Queue(0) || e.Guard == "ownership" {
			t.Errorf("%+v", e)
		}
		if e.Verdict == model.VerdictApplied {
			applied++
		}
	}
	if applied != 1 || len(host.Yielded()) != 0 {
		t.Errorf("applied %d times, yielded %v", applied, host.Yielded())
	}
	_, err = host.Restore(context.Background())
	if err := errors.Join(err, host.Close()); err != nil {
		t.Fatal(err)
	}
	if got := device.Settings(2); got != (model.Settings{}) {
		t.Errorf("left at %v", got)
	}
}
