package probe

import (
	"errors"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/experiments/testbed"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// storm does something again and again until it is told to stop.
type storm struct {
	stop, done chan struct{}
	times      int
	err        error
}

func startStorm(once func() error) *storm {
	s := &storm{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Millisecond):
			}
			if s.err = once(); s.err != nil {
				return
			}
			s.times++
		}
	}()
	return s
}

func (s *storm) end(tb testing.TB) int {
	tb.Helper()
	close(s.stop)
	<-s.done
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.times
}

// Others come to the same tracepoint and leave it hundreds of times, before and
// behind the probe, and no hit of the probe's is missing.
func TestOthersOnTheSameTracepointTakeNothing(t *testing.T) {
	testbed.Require(t)
	spec, err := bpf.LoadSelftest()
	if err != nil {
		t.Fatal(err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	attach := func() (link.Link, error) {
		return link.AttachTracing(link.TracingOptions{Program: collection.Programs["empty_napi_poll"]})
	}
	attachAndLeave := func() error {
		lnk, err := attach()
		if err != nil {
			return err
		}
		return lnk.Close()
	}
	tracefs, err := openTracefs()
	if err != nil {
		t.Fatal(err)
	}
	defer tracefs.Close()
	id, err := tracepointID(tracefs, "napi", "napi_poll")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		once func() error
	}{
		{"BPF programs", attachAndLeave},
		{"perf events", func() error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Size: unix.PERF_ATTR_SIZE_VER0}
			fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{"statistics of programs", func() error {
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			if err != nil {
				return err
			}
			return errors.Join(attachAndLeave(), stats.Close())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, err := attach()
			if err != nil {
				t.Fatal(err)
			}
			b := newBed(t, testbed.Options{})
			d := b.datagrams(t)
			s := b.open(t, Options{Interval: liveInterval})
			hidden := startUnseen(t)
			before, err := b.RxPackets()
			if err != nil {
				t.Fatal(err)
			}
			others := startStorm(tt.once)
			for i := range 400 {
				if i == 200 {
					if err := first.Close(); err != nil {
						t.Fatal(err)
					}
				}
				d.send(t, 20, 0)
				time.Sleep(time.Millisecond)
			}
			times := others.end(t)
			var total totals
			received := b.settle(t, s, &total) - before
			t.Logf("others came and left %d times", times)
			hidden.compare(t, b, total.polls().Packets, received)
			if total.lost != 0 {
				t.Errorf("%d lost: %v", total.lost, losses(t, s))
			}
		})
	}
}
