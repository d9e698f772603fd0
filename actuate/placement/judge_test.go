package placement_test

import (
	"testing"

	"autotune/actuate/placement"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// moved lists what a judgement would do, as "what: from -> to".
func moved(findings []placement.Finding) []string {
	var out []string
	for _, f := range findings {
		for _, m := range f.Moves {
			out = append(out, m.Item.String()+": "+m.From+" -> "+m.To)
		}
	}
	return out
}

func queue(index int, thread *placement.Thread, irq *placement.IRQ) placement.Queue {
	off := ""
	return placement.Queue{
		Queue: model.Queue{Netns: 1, Ifindex: 2, Index: index}, Ifname: "eth0", NAPIID: uint32(100 + index), Thread: thread, IRQ: irq, RPS: &off,
	}
}

func thread(tid int, cpus ...int) *placement.Thread {
	return &placement.Thread{TID: tid, Started: uint64(tid), CPUs: cpus}
}

func worker(tid, napi int, cpus ...int) placement.Worker {
	return placement.Worker{Thread: *thread(tid, cpus...), PID: 7, Comm: "server", NAPIIDs: []uint32{uint32(napi)}}
}

func TestPollsGoWherePacketsAreRead(t *testing.T) {
	twoNodes := map[int]int{0: 0, 1: 0, 2: 1, 3: 1}
	steered := "2-3"
	for _, tt := range []struct {
		name  string
		facts placement.Facts
		want  []string
		// aligned is what is said of each queue.
		aligned []bool
	}{
		{
			name: "both on one CPU",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 1), nil)},
				Workers: []placement.Worker{worker(8, 100, 1)},
			},
			aligned: []bool{true},
		},
		{
			name: "the NAPI thread follows a pinned worker",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 0), nil)},
				Workers: []placement.Worker{worker(8, 100, 1)},
			},
			want:    []string{"NAPI thread 50: 0 -> 1"},
			aligned: []bool{false},
		},
		{
			name: "a worker that is free is narrowed to where a pinned NAPI thread polls",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 1), nil)},
				Workers: []placement.Worker{worker(8, 100, 0, 1)},
			},
			want:    []string{"thread 8: 0-1 -> 1"},
			aligned: []bool{false},
		},
		{
			name: "where both are free, queues get CPUs of their own",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 0, 1), nil), queue(1, thread(51, 0, 1), nil)},
				Workers: []placement.Worker{worker(8, 100, 0, 1), worker(9, 101, 0, 1)},
			},
			want: []string{
				"NAPI thread 50: 0-1 -> 0", "thread 8: 0-1 -> 0", "NAPI thread 51: 0-1 -> 1", "thread 9: 0-1 -> 1",
			},
			aligned: []bool{false, false},
		},
		{
			name: "a queue that stays keeps its CPU from one that is free",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 0, 1), nil), queue(1, thread(51, 0), nil)},
				Workers: []placement.Worker{worker(8, 100, 0, 1), worker(9, 101, 0)},
			},
			want:    []string{"NAPI thread 50: 0-1 -> 1", "thread 8: 0-1 -> 1"},
			aligned: []bool{false, true},
		},
		{
			name: "an interrupt goes to the worker's CPU",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, nil, &placement.IRQ{Number: 30, Affinity: []int{0, 1, 2, 3}, Effective: []int{2}})},
				Workers: []placement.Worker{worker(8, 100, 1)},
			},
			want:    []string{"interrupt 30: 0-3 -> 1"},
			aligned: []bool{false},
		},
		{
			name: "an interrupt is irqbalance's, and the worker is kept on its node",
			facts: placement.Facts{
				Queues:   []placement.Queue{queue(0, nil, &placement.IRQ{Number: 30, Affinity: []int{0, 1, 2, 3}, Effective: []int{2}})},
				Workers:  []placement.Worker{worker(8, 100, 0, 1, 3)},
				Nodes:    twoNodes,
				Balancer: 99,
			},
			want:    []string{"thread 8: 0-1,3 -> 3"},
			aligned: []bool{false},
		},
		{
			name: "workers that share a queue are kept on its node, not on its CPU",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 2), nil)},
				Workers: []placement.Worker{worker(8, 100, 0, 1, 2, 3), worker(9, 100, 2, 3)},
				Nodes:   twoNodes,
			},
			want:    []string{"thread 8: 0-3 -> 2-3"},
			aligned: []bool{false},
		},
		{
			name: "a worker is never given a CPU that it may not run on",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, thread(50, 2), nil)},
				Workers: []placement.Worker{worker(8, 100, 0), worker(9, 100, 1)},
				Nodes:   twoNodes,
			},
			aligned: []bool{false},
		},
		{
			name: "a thread of a process that was not selected stays, and is followed",
			facts: func() placement.Facts {
				fixed := worker(8, 100, 1, 2)
				fixed.Fixed = true
				return placement.Facts{Queues: []placement.Queue{queue(0, thread(50, 0), nil)}, Workers: []placement.Worker{fixed}}
			}(),
			want:    []string{"NAPI thread 50: 0 -> 1"},
			aligned: []bool{false},
		},
		{
			name: "a worker with sockets of two queues moves neither",
			facts: placement.Facts{
				Queues: []placement.Queue{queue(0, thread(50, 0), nil), queue(1, thread(51, 1), nil)},
				Workers: []placement.Worker{
					{Thread: *thread(8, 2), PID: 7, Comm: "server", NAPIIDs: []uint32{100, 101}},
				},
			},
			aligned: []bool{true, true},
		},
		{
			name: "a thread that was made anew goes where the one before it was",
			facts: func() placement.Facts {
				q := queue(0, thread(50, 0, 1, 2, 3), nil)
				q.Before = []int{2}
				return placement.Facts{Queues: []placement.Queue{q}}
			}(),
			want:    []string{"NAPI thread 50: 0-3 -> 2"},
			aligned: []bool{false},
		},
		{
			name: "and so does one whose worker is free",
			facts: func() placement.Facts {
				q := queue(0, thread(50, 0, 1), nil)
				q.Before = []int{1}
				return placement.Facts{Queues: []placement.Queue{q}, Workers: []placement.Worker{worker(8, 100, 0, 1)}}
			}(),
			want:    []string{"NAPI thread 50: 0-1 -> 1", "thread 8: 0-1 -> 1"},
			aligned: []bool{false},
		},
		{
			name: "packet steering is turned off",
			facts: func() placement.Facts {
				q := queue(1, thread(50, 0), nil)
				q.RPS = &steered
				return placement.Facts{Queues: []placement.Queue{q}}
			}(),
			want:    []string{"receive packet steering of queue 1: 2-3 -> "},
			aligned: []bool{false},
		},
		{
			name: "nothing is known of what polls, and nothing moves",
			facts: placement.Facts{
				Queues:  []placement.Queue{queue(0, nil, nil)},
				Workers: []placement.Worker{worker(8, 100, 0, 1)},
			},
			aligned: []bool{true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := placement.Judge(tt.facts)
			if diff := cmp.Diff(tt.want, moved(findings)); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
			var aligned []bool
			for _, f := range findings {
				aligned = append(aligned, f.Aligned)
				if f.Detail == "" || f.Aligned != (f.Consequence == "") || f.Aligned != (f.Remedy == "") || f.Aligned && len(f.Moves) > 0 {
					t.Errorf("finding %+v does not hang together", f)
				}
			}
			if diff := cmp.Diff(tt.aligned, aligned); diff != "" {
				t.Errorf("aligned (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAligningSettles applies what is judged, and judges again: nothing may be
// left to do.
func TestAligningSettles(t *testing.T) {
	facts := placement.Facts{
		Queues: []placement.Queue{
			queue(0, thread(50, 0, 1, 2, 3), nil), queue(1, nil, &placement.IRQ{Number: 30, Affinity: []int{0, 1, 2, 3}, Effective: []int{0}}),
			queue(2, thread(52, 3), nil),
		},
		Workers: []placement.Worker{worker(8, 100, 0, 1), worker(9, 101, 0, 1, 2, 3), worker(10, 102, 0, 1, 2, 3), worker(11, 102, 2)},
		Nodes:   map[int]int{0: 0, 1: 0, 2: 1, 3: 1},
	}
	carryOut(t, &facts, placement.Judge(facts))
	if again := moved(placement.Judge(facts)); again != nil {
		t.Errorf("after aligning there is more to do: %v", again)
	}
}

// carryOut makes the moves in the facts.
func carryOut(t *testing.T, facts *placement.Facts, findings []placement.Finding) {
	t.Helper()
	for _, f := range findings {
		for _, m := range f.Moves {
			cpus, err := model.ParseCPUList(m.To)
			if err != nil {
				t.Fatal(err)
			}
			for i := range facts.Queues {
				q := &facts.Queues[i]
				if m.Item.Kind == placement.KindNAPIThread && q.Thread != nil && q.Thread.TID == m.Item.TID {
					q.Thread.CPUs = cpus
				}
				if m.Item.Kind == placement.KindIRQ && q.IRQ != nil && q.IRQ.Number == m.Item.IRQ {
					q.IRQ.Affinity, q.IRQ.Effective = cpus, cpus
				}
			}
			for i := range facts.Workers {
				if m.Item.Kind == placement.KindThread && facts.Workers[i].TID == m.Item.TID {
					facts.Workers[i].CPUs = cpus
				}
			}
		}
	}
}
