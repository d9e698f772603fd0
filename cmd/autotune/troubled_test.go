package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/probe/trace"
	"autotune/tuner"
)

// troubled is a host in memory on which much goes wrong: other writers, links
// that go down and come back under another NAPI ID, refusals of every kind. It
// is both ends of a loop.
type troubled struct {
	random *rand.Rand
	queues []model.Queue
	active model.Config
	ids    map[model.Queue]uint32
	down   map[model.Queue]int
	left   int
	at     time.Duration
	// calm leaves out what goes wrong.
	calm bool
	// endApply is the Apply that fails as a whole, as on Ctrl-C.
	endApply int
	applies  int
}

func newTroubled(seed uint64, queues, windows int) *troubled {
	h := &troubled{
		random: rand.New(rand.NewPCG(seed, 3)), active: model.Config{}, ids: map[model.Queue]uint32{},
		down: map[model.Queue]int{}, left: windows, at: 90 * time.Minute,
	}
	for i := range queues {
		q := model.Queue{Netns: 4026532000, Ifindex: 2, Index: i}
		h.queues = append(h.queues, q)
		h.ids[q] = uint32(8193 + i)
		h.active[q] = model.Settings{}
	}
	return h
}

func (h *troubled) chance(p float64) bool { return !h.calm && h.random.Float64() < p }

// Next implements [tuner.Source].
func (h *troubled) Next(context.Context) (model.Sample, error) {
	if h.left == 0 {
		return model.Sample{}, io.EOF
	}
	h.left--
	span := 100*time.Millisecond + time.Duration(h.random.IntN(100_000))
	h.at += span
	s := model.Sample{
		At: h.at, Span: span, Active: model.Config{}, NAPIIDs: map[model.Queue]uint32{},
		Apps: []model.AppSample{{PID: 4100, Comm: "serv\"er é", CPU: time.Duration(h.random.IntN(60_000_000))}},
	}
	if h.chance(0.02) {
		s.Lost = 7
	}
	for _, q := range h.queues {
		if h.chance(0.01) {
			h.down[q] = 1 + h.random.IntN(4)
		}
		if h.down[q] > 0 {
			if h.down[q]--; h.down[q] == 0 {
				h.ids[q] += 100
				h.active[q] = model.Settings{}
			} else {
				if s.Absent == nil {
					s.Absent = map[model.Queue]string{}
				}
				s.Absent[q] = "link is down"
				continue
			}
		}
		if h.chance(0.003) {
			h.active[q] = model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 33 * time.Microsecond}
		}
		s.Active[q], s.NAPIIDs[q] = h.active[q], h.ids[q]
		s.Queues = append(s.Queues, h.queue(q))
		netRX := time.Duration(h.random.IntN(30_000_000))
		steal := time.Duration(0)
		if h.chance(0.02) {
			steal = 30 * time.Millisecond
		}
		s.CPUs = append(s.CPUs, model.CPUSample{CPU: q.Index, NetRX: &netRX, NetRXIdle: &netRX, Busy: netRX * 2, Steal: steal})
	}
	return s, nil
}

func (h *troubled) queue(q model.Queue) model.QueueSample {
	packets := uint64(300 + h.random.IntN(900))
	flush := h.active[q].GROFlushTimeout
	delay := &model.Histogram{}
	for range packets / 4 {
		delay.Add(20*time.Microsecond+time.Duration(h.random.ExpFloat64()*40e3)+time.Duration(h.random.Float64()*float64(flush)), 1)
	}
	out := model.QueueSample{
		Queue: q, NAPIID: h.ids[q], Timer: &model.TimerCounts{Arms: packets, Fires: packets / 2}, Delay: delay, SampleEvery: 1,
		Softirq: model.PollCounts{Polls: packets, Packets: packets, Empty: packets / 10},
	}
	out.Work[1] = packets
	return out
}

// Apply implements [tuner.Actuator].
func (h *troubled) Apply(_ context.Context, want model.Config) (model.Config, error) {
	h.applies++
	if h.applies == h.endApply {
		return nil, fmt.Errorf("apply: nothing was written: %w", context.Canceled)
	}
	var errs []error
	for _, q := range slices.SortedFunc(maps.Keys(want), model.Queue.Compare) {
		refuse := func(err error) {
			errs = append(errs, &model.QueueError{Queue: q, Op: "napi-set", Err: fmt.Errorf("NAPI %d: <%w>", h.ids[q], err)})
		}
		switch {
		case h.chance(0.03):
			refuse(model.ErrBusy)
		case h.chance(0.02):
			refuse(model.ErrLinkDown)
		case h.chance(0.004):
			refuse(model.ErrGone)
		case h.chance(0.01):
			h.active[q] = model.Settings{DeferHardIRQs: 9, GROFlushTimeout: 99 * time.Microsecond}
			refuse(model.ErrForeignWrite)
		case h.chance(0.02): // accepted and ignored
		case h.chance(0.02):
			refuse(errors.New("numerical result out of range"))
			h.active[q] = want[q]
		default:
			h.active[q] = want[q]
		}
	}
	got := maps.Clone(h.active)
	if h.chance(0.02) {
		clear(got)
	}
	return got, errors.Join(errs...)
}

func testTraceHeader() trace.Header {
	wall := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	return trace.Header{
		Host: "server-1", Kernel: "6.18.0", StartedAt: 90 * time.Minute, StartedWall: &wall, Interval: 100 * time.Millisecond,
		Histograms: trace.DetailRounded,
		Conditions: trace.Conditions{Devices: []trace.Device{{
			Netns: 4026532000, Ifindex: 2, Ifname: "eth7",
			NAPIs: []trace.NAPI{{Queue: model.Queue{Netns: 4026532000, Ifindex: 2}, CPUs: []int{0}}},
		}}},
	}
}

// recordRun runs a policy on a host, as run --trace does, and returns the
// path of the trace and the journal that a file would have got.
func recordRun(t testing.TB, h *troubled, spec string, apply bool) (path string, journal string) {
	t.Helper()
	files, journal := recordParts(t, h, spec, apply, trace.Rotation{})
	return files[0], journal
}

// recordParts is recordRun with a trace that goes on in another file.
func recordParts(t testing.TB, h *troubled, spec string, apply bool, rotation trace.Rotation) (files []string, journal string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.trace.zst")
	decide, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	header := testTraceHeader()
	o := tuner.Options{
		Source: h, Policy: decide, Journal: tuner.NewJSONL(&out), Bounds: model.DefaultBounds(),
		Objective: model.Objective{SLO: 200 * time.Microsecond, Quantile: 0.9},
		CPUs:      tracedCPUs(header),
	}
	if apply {
		o.Actuator = h
	}
	if header.Run, err = tracedRun(o, h.active); err != nil {
		t.Fatal(err)
	}
	rt, err := openRunTrace(path, rotation, header, &o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	loop, err := tuner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	err = loop.Run(t.Context())
	var lost *tuner.LostError
	if err != nil && !errors.As(err, &lost) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	line, err := rt.close()
	if err != nil || line.FailedWrites != 0 {
		t.Fatalf("%v: %v", line, err)
	}
	return line.Files, out.String()
}

// verifyJSON runs replay --verify and returns its answer.
func verifyJSON(t testing.TB, path string) (code int, v verified) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), []string{"replay", "--verify", "--json", path}, &out, &errs)
	if err := json.Unmarshal([]byte(out.String()), &v); err != nil {
		t.Fatalf("%v: %q, %q", err, out.String(), errs.String())
	}
	return code, v
}
