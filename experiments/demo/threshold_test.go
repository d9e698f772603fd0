package demo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"autotune/actuate/netdev"
	"autotune/experiments/demo"
	"autotune/model"
	"autotune/tuner"
)

// thresholdTuners tunes the bed's real NAPI without probes: specs are
// "threshold", which sets a flush timeout of 200 us above 10,000 packets per
// second and plain interrupts below, "always", which sets it at once, and the
// empty one. It stands in for the tuner where the experiment itself is under
// test.
type thresholdTuners struct {
	// failStop makes Stop fail after it has restored.
	failStop error
	// started counts tuners, and running those not stopped.
	mu               sync.Mutex
	started, running int
	last             demo.TuningRequest
}

func (t *thresholdTuners) Start(_ context.Context, request demo.TuningRequest) (demo.Tuning, error) {
	switch request.Spec {
	case "", "always", "threshold":
	default:
		return nil, fmt.Errorf("unknown policy %q", request.Spec)
	}
	file, err := os.Open(request.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	client, err := netdev.New(netdev.Options{NetNS: int(file.Fd())})
	if err != nil {
		return nil, err
	}
	links, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	tuning := &thresholdTuning{
		tuners: t, request: request, client: client, links: links,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	napis, err := client.NAPIs(request.Ifindex)
	if err != nil {
		return nil, err
	}
	if len(napis) != 1 {
		return nil, fmt.Errorf("%d NAPIs, want 1", len(napis))
	}
	tuning.id = napis[0].ID
	tuning.original, _ = napis[0].Settings()
	if request.Spec == "always" {
		if err := tuning.set(deferred); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	t.started++
	t.running++
	t.last = request
	t.mu.Unlock()
	go tuning.run()
	return tuning, nil
}

var deferred = model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * time.Microsecond}

type thresholdTuning struct {
	tuners   *thresholdTuners
	request  demo.TuningRequest
	client   *netdev.Client
	links    *netlink.Handle
	id       uint32
	original model.Settings

	stop, done chan struct{}
	err        error // valid once done is closed
}

func (t *thresholdTuning) set(s model.Settings) error {
	return t.client.SetNAPI(t.id, netdev.NAPIUpdate{DeferHardIRQs: &s.DeferHardIRQs, GROFlushTimeout: &s.GROFlushTimeout})
}

func (t *thresholdTuning) read() (model.Settings, error) {
	napi, err := t.client.NAPI(t.request.Ifindex, t.id)
	if err != nil {
		return model.Settings{}, err
	}
	s, ok := napi.Settings()
	if !ok {
		return s, errors.New("settings not reported")
	}
	return s, nil
}

func (t *thresholdTuning) run() {
	defer close(t.done)
	ticker := time.NewTicker(t.request.Window)
	defer ticker.Stop()
	begun, packets := bootTime(), uint64(0)
	for first := true; ; first = false {
		select {
		case <-t.stop:
			return
		case <-ticker.C:
		}
		link, err := t.links.LinkByIndex(t.request.Ifindex)
		if err != nil {
			t.err = err
			return
		}
		settings, err := t.read()
		if err != nil {
			t.err = err
			return
		}
		now, total := bootTime(), link.Attrs().Statistics.RxPackets
		queue := model.Queue{Ifindex: t.request.Ifindex}
		sample := model.Sample{
			At: now, Span: now - begun, Active: model.Config{queue: settings},
			Queues: []model.QueueSample{{Queue: queue, NAPIID: t.id, Thread: model.PollCounts{Polls: total - packets}}},
		}
		rate := float64(total-packets) / sample.Span.Seconds()
		begun, packets = now, total
		if first {
			continue
		}
		t.request.Observe(sample, []tuner.Entry{})
		if t.request.Spec != "threshold" {
			continue
		}
		want := model.Settings{}
		if rate > 10000 {
			want = deferred
		}
		if want != settings {
			if t.err = t.set(want); t.err != nil {
				return
			}
		}
	}
}

func (t *thresholdTuning) Stop(context.Context) error {
	close(t.stop)
	<-t.done
	err := errors.Join(t.err, t.set(t.original))
	if read, readErr := t.read(); readErr != nil || read != t.original {
		err = errors.Join(err, fmt.Errorf("read back %v, want %v: %w", read, t.original, readErr))
	}
	t.links.Close()
	t.tuners.mu.Lock()
	defer t.tuners.mu.Unlock()
	t.tuners.running--
	return errors.Join(err, t.client.Close(), t.tuners.failStop)
}

func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail for a known clock
	return time.Duration(ts.Nano())
}
