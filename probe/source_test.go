package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// sourceFixture is a source on a kernel in memory.
type sourceFixture struct {
	*Source
	kernel    *memoryKernel
	inventory *scripted
	proc      fakeProc
	start     time.Time
}

// newFixture must run inside a synctest bubble: the ticker and the clock are
// those of the bubble.
func newFixture(t *testing.T, options Options, napis ...model.NAPI) *sourceFixture {
	t.Helper()
	return newFixtureOn(t, options, nil, napis...)
}

// newFixtureOn is a fixture with a ring of single events.
func newFixtureOn(t *testing.T, options Options, ring eventRing, napis ...model.NAPI) *sourceFixture {
	t.Helper()
	f := &sourceFixture{
		kernel:    newMemoryKernel(4),
		inventory: &scripted{napis: napis},
		proc:      newFakeProc(t),
		start:     time.Now(),
	}
	f.kernel.singles = ring
	options.Inventory, options.Procfs = f.inventory, f.proc.root
	options, err := options.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	clock := func() (time.Duration, error) { return time.Since(f.start), nil }
	f.Source, err = newSource(t.Context(), f.kernel, options, napis, nil, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.ticker.Stop() })
	return f
}

func (f *sourceFixture) next(t *testing.T) model.Sample {
	t.Helper()
	s, err := f.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// polled returns the softirq polls of a sample by queue index.
func polled(s model.Sample) map[int]uint64 {
	out := make(map[int]uint64)
	for _, q := range s.Queues {
		out[q.Queue.Index] = q.Softirq.Polls
	}
	return out
}

func TestWindowsHaveTheirRealLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{Interval: 250 * time.Millisecond}, testNAPI(0, 7))
		var got [][2]time.Duration
		for i := range 4 {
			if i == 2 {
				// Whoever asks late gets a longer window, not a queue of short ones.
				time.Sleep(600 * time.Millisecond)
			}
			s := f.next(t)
			got = append(got, [2]time.Duration{s.At, s.Span})
		}
		ms := time.Millisecond
		want := [][2]time.Duration{{250 * ms, 250 * ms}, {500 * ms, 250 * ms}, {1100 * ms, 600 * ms}, {1250 * ms, 150 * ms}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ends and lengths (-want +got):\n%s", diff)
		}
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7))
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		if _, err := f.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
		}
		if got := time.Since(f.start); got != 300*time.Millisecond {
			t.Errorf("returned after %v, want 300ms", got)
		}
	})
}

func TestSampleHoldsTheGrowthOfEachQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{SampleEvery: 3}, testNAPI(1, 8), testNAPI(0, 7))
		f.kernel.poll(7, 100)
		f.next(t)
		f.kernel.poll(7, 5)
		f.kernel.poll(8, 3)
		f.kernel.lost = 9
		got := f.next(t)

		queue := func(index int, id uint32, polls uint64) model.QueueSample {
			q := model.QueueSample{
				Queue:       testQueue(index),
				NAPIID:      id,
				Softirq:     model.PollCounts{Polls: polls, Packets: 2 * polls},
				SoftirqTime: new(time.Duration),
				Timer:       &model.TimerCounts{},

				TimerSoftirq: &model.PollCounts{},
				TimerThread:  &model.PollCounts{},
				Takeovers:    &model.Takeovers{},
				Suspension:   &model.Suspension{},
				Netpoll:      new(uint64),
				Unmasked:     new(uint64),
				RingWait:     &model.Histogram{},
				SocketWait:   &model.Histogram{},
				Service:      &model.Histogram{},
				Delay:        &model.Histogram{},
				SampleEvery:  4,
				CPUs:         []int{1},
			}
			q.Work[2] = polls
			q.Delay.Counts[10] = polls
			return q
		}
		var free time.Duration
		latency := &model.Latency{Source: "server-side delay"}
		latency.Histogram.Counts[10] = 8
		want := model.Sample{
			At:      2 * time.Second,
			Span:    time.Second,
			Queues:  []model.QueueSample{queue(0, 7, 5), queue(1, 8, 3)},
			Apps:    []model.AppSample{},
			Latency: latency,
			Lost:    9,
			Active: model.Config{
				testQueue(0): testNAPI(0, 7).Settings,
				testQueue(1): testNAPI(1, 8).Settings,
			},
			NAPIIDs: map[model.Queue]uint32{testQueue(0): 7, testQueue(1): 8},
			Probe:   &model.ProbeSample{Cost: &free, Budget: 10 * time.Millisecond, PollEvery: 1},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(model.Sample{}, "CPUs")); diff != "" {
			t.Errorf("sample (-want +got):\n%s", diff)
		}
	})
}

func TestWhatIsNotObservedIsNil(t *testing.T) {
	for _, tt := range []struct {
		signal string
		isNil  func(model.Sample) bool
	}{
		{signalTimers, func(s model.Sample) bool {
			q := s.Queues[0]
			return q.Timer == nil && q.TimerSoftirq == nil && q.TimerThread == nil && q.Takeovers == nil && q.Suspension == nil
		}},
		{signalHardIRQs, func(s model.Sample) bool {
			c := s.CPUs[0]
			return c.HardIRQs == nil && c.HardIRQ == nil && c.HardIRQIdle == nil
		}},
		{signalSocketReads, func(s model.Sample) bool {
			q := s.Queues[0]
			return q.SocketWait == nil && q.Service == nil && q.Delay == nil && s.Latency == nil && s.Apps == nil
		}},
		{signalSocketSends, func(s model.Sample) bool { return s.Queues[0].Service == nil && s.Queues[0].Delay != nil }},
		{signalSoftirqTimes, func(s model.Sample) bool {
			return s.CPUs[0].NetRX == nil && s.CPUs[0].NetRXIdle == nil && s.Queues[0].SoftirqTime == nil
		}},
	} {
		t.Run(tt.signal, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{}, testNAPI(0, 7))
				f.kernel.poll(7, 5)
				if tt.isNil(f.next(t)) {
					t.Error("nil although it is observed")
				}
				f.kernel.without = tt.signal
				f.kernel.poll(7, 5)
				if !tt.isNil(f.next(t)) {
					t.Errorf("not nil without %s", tt.signal)
				}
			})
		})
	}
}

func TestRenumberedInstancesStartAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{}, testNAPI(0, 7), testNAPI(1, 8))
		f.kernel.poll(7, 1000)
		f.kernel.poll(8, 10)
		f.next(t)

		// Queue 0 is renumbered, and queue 1 takes over its old ID.
		f.inventory.napis = []model.NAPI{testNAPI(0, 9), testNAPI(1, 7)}
		f.kernel.poll(7, 500)
		s := f.next(t)
		if diff := cmp.Diff(map[int]uint64{}, polled(s)); diff != "" {
			t.Errorf("polls in the window of the change (-want +got):\n%s", diff)
		}
		if len(s.Active) != 2 {
			t.Errorf("settings of %d queues read back, want 2", len(s.Active))
		}
		if _, ok := f.kernel.followed[8]; ok || len(f.kernel.followed) != 2 {
			t.Errorf("followed %v, want the NAPIs 7 and 9 only", f.kernel.followed)
		}

		f.kernel.poll(7, 4)
		f.kernel.poll(9, 3)
		if diff := cmp.Diff(map[int]uint64{0: 3, 1: 4}, polled(f.next(t))); diff != "" {
			t.Errorf("polls in the first window after (-want +got):\n%s", diff)
		}
	})
}

func TestThreadsAreFollowedAsTheyComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		threaded := func(pid uint32) model.NAPI {
			n := testNAPI(0, 7)
			n.PID = &pid
			return n
		}
		f := newFixture(t, Options{}, testNAPI(0, 7))
		f.proc.write(t, "40/task/40/schedstat", []byte("1000 0 0\n"))
		f.proc.write(t, "41/task/41/schedstat", []byte("500 0 0\n"))
		threadTime := func() *time.Duration {
			f.kernel.poll(7, 1)
			s := f.next(t)
			if diff := cmp.Diff(map[int]uint64{0: 1}, polled(s)); diff != "" {
				t.Fatalf("polls (-want +got):\n%s", diff)
			}
			return s.Queues[0].ThreadTime
		}
		spent := func(d time.Duration) *time.Duration { return &d }
		for _, step := range []struct {
			name      string
			napi      model.NAPI
			schedstat string
			want      *time.Duration
			threads   map[uint32]bool
		}{
			{"no thread", testNAPI(0, 7), "", nil, map[uint32]bool{}},
			{"a thread appears", threaded(40), "", nil, map[uint32]bool{40: true}},
			{"it works", threaded(40), "1750 0 0\n", spent(750), map[uint32]bool{40: true}},
			{"another takes its place", threaded(41), "", nil, map[uint32]bool{41: true}},
			{"and idles", threaded(41), "", spent(0), map[uint32]bool{41: true}},
			{"it goes", testNAPI(0, 7), "", nil, map[uint32]bool{}},
		} {
			f.inventory.napis = []model.NAPI{step.napi}
			if step.schedstat != "" {
				f.proc.write(t, "40/task/40/schedstat", []byte(step.schedstat))
			}
			if diff := cmp.Diff(step.want, threadTime()); diff != "" {
				t.Errorf("%s: thread time (-want +got):\n%s", step.name, diff)
			}
			if diff := cmp.Diff(step.threads, f.kernel.threads); diff != "" {
				t.Errorf("%s: threads followed (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

func TestQueuesWithoutReadBack(t *testing.T) {
	failed := func(index int, err error) error {
		return &model.QueueError{Queue: testQueue(index), Op: "napi-get", Err: err}
	}
	for _, tt := range []struct {
		name   string
		napis  []model.NAPI
		err    error
		polled map[int]uint64
		absent map[int]string
	}{
		{
			name:   "one link goes down",
			napis:  []model.NAPI{testNAPI(1, 8)},
			err:    errors.Join(failed(0, model.ErrLinkDown)),
			polled: map[int]uint64{1: 1},
			absent: map[int]string{0: "napi-get queue 1:2:0: link is down"},
		},
		{
			name:   "one cannot be read for now, but still runs",
			napis:  []model.NAPI{testNAPI(1, 8)},
			err:    fmt.Errorf("inventory: %w", errors.Join(failed(0, model.ErrBusy))),
			polled: map[int]uint64{0: 1, 1: 1},
			absent: map[int]string{0: "inventory: napi-get queue 1:2:0: busy"},
		},
		{
			name:   "nothing can be read",
			err:    errors.New("netlink broke"),
			polled: map[int]uint64{0: 1, 1: 1},
			absent: map[int]string{0: "netlink broke", 1: "netlink broke"},
		},
		{
			name:   "one is not mentioned any more",
			napis:  []model.NAPI{testNAPI(1, 8)},
			polled: map[int]uint64{1: 1},
		},
		{
			name:   "two share an instance",
			napis:  []model.NAPI{testNAPI(0, 7), testNAPI(1, 7)},
			polled: map[int]uint64{0: 1},
			absent: map[int]string{1: "its NAPI instance 7 also serves queue 1:2:0, which is followed"},
		},
		{
			name: "more than there is room for",
			napis: []model.NAPI{
				testNAPI(0, 7), testNAPI(1, 8), testNAPI(2, 9), testNAPI(3, 10), testNAPI(4, 11),
			},
			polled: map[int]uint64{0: 1, 1: 1},
			absent: map[int]string{4: "4 NAPI instances are followed already: start again to follow more"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Options{}, testNAPI(0, 7), testNAPI(1, 8))
				f.inventory.napis, f.inventory.err = tt.napis, tt.err
				f.kernel.poll(7, 1)
				f.kernel.poll(8, 1)
				s := f.next(t)
				if diff := cmp.Diff(tt.polled, polled(s)); diff != "" {
					t.Errorf("polls (-want +got):\n%s", diff)
				}
				var absent map[int]string
				for q, why := range s.Absent {
					if absent == nil {
						absent = make(map[int]string)
					}
					absent[q.Index] = why
					if _, ok := s.Active[q]; ok {
						t.Errorf("queue %v is absent and active", q)
					}
				}
				if diff := cmp.Diff(tt.absent, absent); diff != "" {
					t.Errorf("absent (-want +got):\n%s", diff)
				}
			})
		})
	}
	t.Run("an inventory that knows nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, Options{})
			broken := errors.New("netlink broke")
			f.inventory.err = broken
			if _, err := f.Next(t.Context()); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}
		})
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for name, options := range map[string]Options{
		"no inventory":     {},
		"a short interval": {Inventory: &scripted{}, Interval: time.Millisecond},
		"a long sample":    {Inventory: &scripted{}, SampleEvery: 1 << 17},
		"a whole CPU":      {Inventory: &scripted{}, Budget: 1.5},
		"no number":        {Inventory: &scripted{}, Budget: math.NaN()},
	} {
		if _, err := Open(t.Context(), options); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever the inventory says, no instance is counted twice, none is left
// behind, and no growth exceeds what was counted.
func TestFollowedInstancesMatchTheInventory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kernel := newMemoryKernel(4)
		s := &Source{
			kernel: kernel,
			queues: make(map[model.Queue]*queue),
			free:   []int{3, 2, 1, 0},
		}
		var r reading
		for range rapid.IntRange(1, 12).Draw(rt, "windows") {
			var napis []model.NAPI
			listed := make(map[uint32]bool)
			for index := range 6 {
				if id := rapid.Uint32Range(0, 8).Draw(rt, "id"); rapid.Bool().Draw(rt, "listed") {
					napis = append(napis, testNAPI(index, id))
					listed[id] = true
				}
			}
			if err := kernel.read(&r); err != nil {
				rt.Fatal(err)
			}
			steady, refused, err := s.match(napis, nil, &r)
			if err != nil {
				rt.Fatal(err)
			}
			if len(s.queues)+len(s.free) != kernel.size {
				rt.Fatalf("%d queues and %d free slots, want %d together", len(s.queues), len(s.free), kernel.size)
			}
			if len(kernel.followed) != len(s.queues) {
				rt.Fatalf("%d instances followed for %d queues", len(kernel.followed), len(s.queues))
			}
			for id := range kernel.followed {
				if !listed[id] || id == 0 {
					rt.Fatalf("NAPI %d is followed although it is not listed", id)
				}
			}
			if got := len(s.queues) + len(refused); got != len(napis) {
				rt.Fatalf("%d queues followed or refused of %d listed", got, len(napis))
			}
			for _, q := range steady {
				if got := q.sample(&r, kernel, 1).Softirq.Polls; got > 3 {
					rt.Fatalf("queue %v grew by %d, at most 3 were counted", q.napi.Queue, got)
				}
			}
			for id := range kernel.followed {
				kernel.poll(id, rapid.Uint64Range(0, 3).Draw(rt, "polls"))
			}
		}
	})
}
