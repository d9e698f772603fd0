package probe

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
)

// newRawLoader returns a loader as on a host that refuses BTF-typed
// tracepoints, and the programs to attach to its maps.
func newRawLoader(tb testing.TB) (*loader, *programs) {
	tb.Helper()
	testbed.Require(tb)
	possible, err := readPossibleCPUs(sysfsRoot)
	if err != nil {
		tb.Fatal(err)
	}
	sizes := mapSizes{napis: 64, cpus: cpuSlots(possible)}
	l, collection, err := newLoader(sizes)
	if err != nil {
		tb.Fatal(err)
	}
	clear(l.direct.Programs)
	p := newPrograms(collection, sizes)
	tb.Cleanup(func() {
		if err := p.close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return l, p
}

func TestRawTracepointsCountTheSame(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.set(t, deferral(500_000))
		b.serve(t, nil)
		l, raw := newRawLoader(t)
		if err := raw.attachAll(l, false); err != nil {
			t.Fatal(err)
		}
		for _, m := range raw.missing {
			t.Errorf("probe %s is missing (%s): %v", m.Name, m.Lost, m.Err)
		}
		napis, err := b.NAPIs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		options, err := Options{Inventory: b, Interval: liveInterval, Budget: -1}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		second, err := newSource(t.Context(), raw, options, napis, nil, boottime)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(second.ticker.Stop)
		first := b.open(t, Options{Interval: liveInterval})
		b.phase(t, "load", 5000)
		direct, twin := collect(t, first, 6), collect(t, second, 1)
		b.settle(t, first, &direct)
		twin.add(next(t, second))
		twin.add(next(t, second))
		t.Logf("direct %v\nraw %v", direct.String(), twin.String())
		if direct.polls().Packets == 0 {
			t.Fatal("no packets")
		}
		near := func(what string, got, want uint64) {
			t.Helper()
			within(t, what+", raw by direct", float64(got)/float64(want), 0.98, 1.02)
		}
		near("packets", twin.thread.Packets, direct.thread.Packets)
		// The second source's windows reach further into the quiet around the load,
		// in which the timer still polls.
		nearly := func(what string, got, want uint64) {
			t.Helper()
			within(t, what+", raw by direct", float64(got)/float64(want), 0.98, 1.10)
		}
		nearly("polls", twin.thread.Polls, direct.thread.Polls)
		nearly("arms", twin.timer.Arms, direct.timer.Arms)
		nearly("fires", twin.timer.Fires, direct.timer.Fires)
		near("ring waits", twin.ring.Count(), direct.ring.Count())
		near("socket waits", twin.socket.Count(), direct.socket.Count())
		near("services", twin.service.Count(), direct.service.Count())
		near("delays", twin.delay.Count(), direct.delay.Count())
		if twin.netRX == 0 {
			t.Error("no NET_RX time")
		}
	})
}

// pollAddress returns where the kernel keeps a NAPI of the bed.
func (b *bed) pollAddress(tb testing.TB, id uint32) uint64 {
	tb.Helper()
	spec, err := bpf.LoadSelftest()
	if err != nil {
		tb.Fatal(err)
	}
	if err := spec.Variables[bpf.SelftestVarWantedNapiId].Set(id); err != nil {
		tb.Fatal(err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		tb.Fatal(err)
	}
	defer collection.Close()
	lnk, err := link.AttachTracing(link.TracingOptions{Program: collection.Programs[bpf.SelftestProgRememberNapi]})
	if err != nil {
		tb.Fatal(err)
	}
	defer lnk.Close()
	b.serve(tb, nil)
	b.phase(tb, "load", 1000)
	s := b.open(tb, Options{Interval: liveInterval})
	for range 20 {
		next(tb, s)
		var address uint64
		if err := collection.Variables[bpf.SelftestVarPolledNapi].Get(&address); err != nil {
			tb.Fatal(err)
		}
		if address != 0 {
			var total totals
			b.settle(tb, s, &total)
			return address
		}
	}
	tb.Fatalf("NAPI %d was never polled", id)
	return 0
}

// The rows of the file are fed to the napi_poll program itself. What the file
// leaves to the context is set as the softirq programs would.
func TestPollsAreClassifiedAsRecorded(t *testing.T) {
	b := newBed(t, testbed.Options{})
	napis, err := b.NAPIs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := b.pollAddress(t, napis[0].ID)
	// Without the softirq programs only the test says what runs.
	l, p := newRawLoader(t)
	poll, err := l.attachTracepoint(bpf.ReceiveProgNapiPoll)
	if err != nil {
		t.Fatal(err)
	}
	p.note(signalPolls, "", []attached{poll}, nil)
	if err := p.set(bpf.ReceiveVarSoftirqKnown, 1); err != nil {
		t.Fatal(err)
	}
	if err := p.follow(napis[0].ID, 0, nil); err != nil {
		t.Fatal(err)
	}

	records, err := csv.NewReader(bytes.NewReader(readTestdata(t, "tracefs", "napi_poll_events.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, record := range records[1:] {
		id, work, budget, where, expected := record[2], record[3], record[4], record[5], record[6]
		t.Run(strconv.Itoa(i+1)+" "+expected, func(t *testing.T) {
			number := func(text string) uint64 {
				n, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			napi := address
			if number(id) == 0 {
				// Neither a transmit-only instance nor the backlog can be
				// looked up; the program reads 0 from the null page as well.
				napi = 0
			}
			softirq := strings.HasPrefix(where, "softirq")
			if err := p.pretendSoftirq(softirq); err != nil {
				t.Fatal(err)
			}
			var before, after reading
			if err := p.read(&before); err != nil {
				t.Fatal(err)
			}
			if _, err := poll.program.Run(&ebpf.RunOptions{
				Context: []uint64{napi, number(work), number(budget)},
				CPU:     0,
				Flags:   runOnCPU,
			}); err != nil {
				t.Fatal(err)
			}
			if err := p.read(&after); err != nil {
				t.Fatal(err)
			}
			want := model.PollCounts{Polls: 1, Packets: number(work)}
			switch expected {
			case "exhausted":
				want.Full = 1
			case "empty":
				want.Empty = 1
			case "partial":
			default:
				want = model.PollCounts{}
			}
			loop := loopApplication
			if softirq {
				loop = loopSoftirq
			}
			var got, other model.PollCounts
			for i := range loops {
				var work [model.WorkBuckets]uint64
				grown := loopGrowth(&before.counts[0], &after.counts[0], i, &work)
				if i == loop {
					got = grown
				} else {
					other = other.Plus(grown)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
			netpoll := uint64(0)
			if expected == "exclude: budget 0" {
				netpoll = 1
			}
			if got := after.counts[0].Netpoll - before.counts[0].Netpoll; got != netpoll {
				t.Errorf("%d polls of netpoll, want %d", got, netpoll)
			}
			if other != (model.PollCounts{}) {
				t.Errorf("another loop was counted: %+v", other)
			}
		})
	}
}

// runOnCPU is BPF_F_TEST_RUN_ON_CPU.
const runOnCPU = 1

// pretendSoftirq makes CPU 0 look as in, or not in, a NET_RX softirq.
func (p *programs) pretendSoftirq(in bool) error {
	state := bpf.ReceiveCpuState{}
	if in {
		state.InNetRx = 1
	}
	return p.collection.Maps[bpf.ReceiveMapCpus].Put(uint32(0), state)
}
