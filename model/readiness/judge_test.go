package readiness_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/readiness"

	"github.com/google/go-cmp/cmp"
)

// ready is a process of two threads on two queues to which every answer is
// yes, on four CPUs of two nodes.
func ready() readiness.Facts {
	batch := 40 * time.Microsecond
	latency := 2 * time.Microsecond
	f := readiness.Facts{
		App: readiness.App{PID: 7, Comm: "server", Batch: &batch, CPUs: cpus(1.9)},
		CPUs: map[int]readiness.CPU{
			0: {Node: 0, ExitLatency: &latency, IdleState: "C1"}, 1: {Node: 0, ExitLatency: &latency, IdleState: "C1"},
			2: {Node: 1, ExitLatency: &latency, IdleState: "C1"}, 3: {Node: 1, ExitLatency: &latency, IdleState: "C1"},
		},
	}
	for i := range 2 {
		id := uint32(100 + i)
		f.App.Contexts = append(f.App.Contexts, model.EpollContext{FD: 5 + i, Budget: 64, Prefer: true, NAPIIDs: []uint32{id}})
		f.App.Threads = append(f.App.Threads, readiness.Thread{TID: 7 + i, CPUs: []int{i}, Waits: []int{5 + i}})
		f.NAPIs = append(f.NAPIs, readiness.NAPI{
			ID: id, Queue: model.Queue{Ifindex: 2, Index: i}, Ifname: "eth0", CPUs: []int{i},
			Settings:   model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond},
			Suspension: &model.Suspension{Started: 10, Resumed: 10},
			Polled:     &readiness.Polled{Packets: 1000, Application: 950},
		})
	}
	return f
}

func cpus(n float64) *float64 { return &n }

// unsuspended takes away that suspensions were seen.
func unsuspended(f *readiness.Facts) {
	for i := range f.NAPIs {
		f.NAPIs[i].Suspension = &model.Suspension{}
	}
}

// answered picks the verdicts other than yes.
func answered(answers []readiness.Answer) map[string]readiness.Verdict {
	out := map[string]readiness.Verdict{}
	for _, a := range answers {
		if a.Verdict != readiness.Yes {
			out[string(a.Question)+" "+a.Subject] = a.Verdict
		}
	}
	return out
}

func TestEachQuestionIsAnsweredByItsOwnFacts(t *testing.T) {
	const no, unknown = readiness.No, readiness.Unknown
	type verdicts = map[string]readiness.Verdict
	for _, tt := range []struct {
		name string
		but  func(*readiness.Facts)
		want verdicts
		// blocked: nothing may be suspended.
		blocked bool
	}{
		{name: "a process that is ready", but: func(*readiness.Facts) {}, want: verdicts{}},
		{
			name:    "contexts could not be listed",
			but:     func(f *readiness.Facts) { f.App.Contexts = nil },
			want:    verdicts{"epoll ": unknown},
			blocked: true,
		},
		{
			name:    "contexts of which only the descriptor is known",
			but:     func(f *readiness.Facts) { f.App.Contexts = []model.EpollContext{{FD: 3, Opaque: true}} },
			want:    verdicts{"epoll ": unknown},
			blocked: true,
		},
		{
			name:    "no epoll context",
			but:     func(f *readiness.Facts) { f.App.Contexts = []model.EpollContext{} },
			want:    verdicts{"epoll ": no},
			blocked: true,
		},
		{
			name:    "a context of which not all sockets could be listed",
			but:     func(f *readiness.Facts) { f.App.Contexts[0].MoreNAPIs = true },
			want:    verdicts{"unmixed epoll context 5": unknown},
			blocked: true,
		},
		{
			name: "contexts of which no socket here could be listed, but not all were",
			but: func(f *readiness.Facts) {
				f.App.Contexts = []model.EpollContext{{FD: 5, Prefer: true, NAPIIDs: []uint32{7}, MoreNAPIs: true}}
			},
			want:    verdicts{"epoll ": unknown},
			blocked: true,
		},
		{
			name: "sockets of another interface only",
			but: func(f *readiness.Facts) {
				f.App.Contexts = []model.EpollContext{{FD: 3, Prefer: true, NAPIIDs: []uint32{9}}}
			},
			want:    verdicts{"epoll ": no},
			blocked: true,
		},
		{
			name:    "a context that does not prefer",
			but:     func(f *readiness.Facts) { f.App.Contexts[1].Prefer = false },
			want:    verdicts{"prefer epoll context 6": no},
			blocked: true,
		},
		{
			name: "a context that mixes",
			but: func(f *readiness.Facts) {
				f.App.Contexts = f.App.Contexts[:1]
				f.App.Contexts[0].NAPIIDs = []uint32{100, 101}
			},
			want:    verdicts{"unmixed epoll context 5": no},
			blocked: true,
		},
		{
			name:    "a context that mixes in another interface",
			but:     func(f *readiness.Facts) { f.App.Contexts[0].NAPIIDs = []uint32{9, 100} },
			want:    verdicts{"unmixed epoll context 5": no},
			blocked: true,
		},
		{
			name: "a socket that has received nothing does not mix",
			but:  func(f *readiness.Facts) { f.App.Contexts[0].NAPIIDs = []uint32{0, 100} },
			want: verdicts{},
		},
		{
			name:    "a flush timeout without a defer count",
			but:     func(f *readiness.Facts) { f.NAPIs[1].Settings.DeferHardIRQs = 0 },
			want:    verdicts{"deferral eth0 queue 1": no},
			blocked: true,
		},
		{
			name:    "a defer count without a flush timeout",
			but:     func(f *readiness.Facts) { f.NAPIs[0].Settings.GROFlushTimeout = 0 },
			want:    verdicts{"deferral eth0 queue 0": no},
			blocked: true,
		},
		{
			name: "a thread on another CPU of the node",
			but:  func(f *readiness.Facts) { f.App.Threads[0].CPUs = []int{0, 1} },
			want: verdicts{},
		},
		{
			name: "a thread that may run on the other node",
			but:  func(f *readiness.Facts) { f.App.Threads[0].CPUs = []int{0, 2} },
			want: verdicts{"placement epoll context 5": no},
		},
		{
			name: "a thread that was seen waiting for nothing",
			but:  func(f *readiness.Facts) { f.App.Threads[0].Waits = nil },
			want: verdicts{"placement epoll context 5": unknown},
		},
		{
			name: "an instance whose CPU is not known",
			but:  func(f *readiness.Facts) { f.NAPIs[0].CPUs = nil },
			want: verdicts{"placement epoll context 5": unknown},
		},
		{
			name: "two threads on one context",
			but:  func(f *readiness.Facts) { f.App.Threads[1].Waits = []int{5, 6} },
			want: verdicts{"threads ": no},
		},
		{
			name: "two contexts on one queue",
			but:  func(f *readiness.Facts) { f.App.Contexts[1].NAPIIDs = []uint32{100} },
			want: verdicts{"threads ": no},
		},
		{
			name: "a queue without a context",
			but:  func(f *readiness.Facts) { f.App.Contexts = f.App.Contexts[:1] },
			want: verdicts{"threads ": no},
		},
		{
			name:    "a mean batch that is close to the suspend timeout",
			but:     func(f *readiness.Facts) { *f.App.Batch = 5 * time.Millisecond },
			want:    verdicts{"batch ": no},
			blocked: true,
		},
		{
			name: "a mean batch a little further from it",
			but:  func(f *readiness.Facts) { *f.App.Batch = 5*time.Millisecond - 1 },
			want: verdicts{},
		},
		{
			name: "suspensions that were seen to be short outweigh the mean of batches",
			but: func(f *readiness.Facts) {
				*f.App.Batch = 10 * time.Millisecond
				f.NAPIs[0].Suspension.Length.Add(100*time.Microsecond, 100)
			},
			want: verdicts{},
		},
		{
			name: "no suspend timeout is judged by a usual one",
			but: func(f *readiness.Facts) {
				f.NAPIs[0].Settings.IRQSuspendTimeout, f.NAPIs[1].Settings.IRQSuspendTimeout = 0, 0
				*f.App.Batch = readiness.DefaultSuspend
			},
			want:    verdicts{"batch ": no},
			blocked: true,
		},
		{
			name: "no batch was seen",
			but:  func(f *readiness.Facts) { f.App.Batch = nil },
			want: verdicts{"batch ": unknown},
		},
		{
			name:    "the safety timer fired",
			but:     func(f *readiness.Facts) { f.NAPIs[1].Suspension.Expired = 1 },
			want:    verdicts{"safety_timer eth0 queue 1": no},
			blocked: true,
		},
		{
			name:    "suspensions were not observed",
			but:     func(f *readiness.Facts) { f.NAPIs[0].Suspension = nil },
			want:    verdicts{"safety_timer eth0 queue 0": unknown},
			blocked: true,
		},
		{
			name: "an idle state that takes longer to leave than the flush timeout",
			but: func(f *readiness.Facts) {
				slow := 21 * time.Microsecond
				f.CPUs[1] = readiness.CPU{ExitLatency: &slow, IdleState: "C6"}
			},
			want: verdicts{"idle_state ": no},
		},
		{
			name: "an idle state of a CPU that serves nothing here",
			but: func(f *readiness.Facts) {
				slow := time.Millisecond
				f.CPUs[3] = readiness.CPU{Node: 1, ExitLatency: &slow, IdleState: "C6"}
			},
			want: verdicts{},
		},
		{
			name: "no idle states are reported",
			but:  func(f *readiness.Facts) { f.CPUs = map[int]readiness.CPU{0: {}, 1: {}} },
			want: verdicts{"idle_state ": unknown},
		},
		{
			name: "an application that most packets come to otherwise while it is suspended",
			but:  func(f *readiness.Facts) { f.NAPIs[0].Polled.Application = 600 },
			want: verdicts{"gain ": no},
		},
		{
			name: "one that is busy, before it is suspended",
			but:  unsuspended,
			want: verdicts{},
		},
		{
			name: "one that sleeps an eighth of the time",
			but: func(f *readiness.Facts) {
				unsuspended(f)
				f.App.CPUs = cpus(1.75)
			},
			want: verdicts{"gain ": no},
		},
		{
			name: "one that would be busy if it polled itself",
			but: func(f *readiness.Facts) {
				unsuspended(f)
				f.App.CPUs = cpus(1)
				f.NAPIs[0].ThreadCPUs, f.NAPIs[1].ThreadCPUs = cpus(0.4), cpus(0.5)
			},
			want: verdicts{},
		},
		{
			name: "one whose CPU time was not observed",
			but: func(f *readiness.Facts) {
				unsuspended(f)
				f.App.CPUs = nil
			},
			want: verdicts{"gain ": unknown},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := ready()
			tt.but(&f)
			answers := readiness.Judge(f)
			if diff := cmp.Diff(tt.want, answered(answers)); diff != "" {
				t.Errorf("verdicts other than yes (-want +got):\n%s", diff)
			}
			if got := readiness.Ready(answers); got == tt.blocked {
				t.Errorf("ready is %v, want %v", got, !tt.blocked)
			}
			for _, a := range answers {
				told := a.Consequence != "" && a.Remedy != ""
				switch {
				case a.Detail == "":
					t.Errorf("%s %s: nothing is said of what was seen", a.Question, a.Subject)
				case a.Verdict == readiness.No && !told:
					t.Errorf("%s %s is no, without consequence or remedy: %+v", a.Question, a.Subject, a)
				case a.Verdict == readiness.Unknown && a.Remedy == "":
					t.Errorf("%s %s is unknown, and nothing says how to find out", a.Question, a.Subject)
				case a.Verdict == readiness.Yes && (a.Consequence+a.Remedy != "" || a.Fix != ""):
					t.Errorf("%s %s is yes, but something is to be done: %+v", a.Question, a.Subject, a)
				}
			}
		})
	}
}

func TestTheDeepestIdleStateThatMayBeEntered(t *testing.T) {
	us := func(n int) *time.Duration { d := time.Duration(n) * time.Microsecond; return &d }
	states := []model.IdleState{
		{Name: "POLL"}, {Name: "C1", Latency: 2 * time.Microsecond}, {Name: "C1E", Latency: 10 * time.Microsecond, Disabled: true},
		{Name: "C6", Latency: 133 * time.Microsecond},
	}
	for _, tt := range []struct {
		name       string
		cpu        model.CPUConditions
		dmaLatency *time.Duration
		want       readiness.CPU
	}{
		{"no limit", model.CPUConditions{IdleStates: states}, us(2000000000), readiness.CPU{Node: 1, ExitLatency: us(133), IdleState: "C6"}},
		{"a limit for the host", model.CPUConditions{IdleStates: states}, us(20), readiness.CPU{Node: 1, ExitLatency: us(2), IdleState: "C1"}},
		{"a limit for the CPU", model.CPUConditions{IdleStates: states, ResumeLatency: us(0)}, nil, readiness.CPU{Node: 1, ExitLatency: us(0), IdleState: "POLL"}},
		{"no cpuidle", model.CPUConditions{}, nil, readiness.CPU{Node: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readiness.CPUsOf(model.Conditions{CPUs: []model.CPUConditions{tt.cpu}, CPUDMALatency: tt.dmaLatency}, map[int]int{0: 1})
			if diff := cmp.Diff(map[int]readiness.CPU{0: tt.want}, got); diff != "" {
				t.Errorf("CPUs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMixedContextIsNotToPrefer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		context model.EpollContext
		want    readiness.Fix
	}{
		{"of one instance", model.EpollContext{FD: 5, NAPIIDs: []uint32{100}}, readiness.FixPrefer},
		{"of two instances", model.EpollContext{FD: 5, NAPIIDs: []uint32{100, 101}}, ""},
		{"perhaps of two instances", model.EpollContext{FD: 5, NAPIIDs: []uint32{100}, MoreNAPIs: true}, ""},
	} {
		f := ready()
		f.App.Contexts = []model.EpollContext{tt.context}
		for _, a := range readiness.Judge(f) {
			if a.Question == readiness.QuestionPrefer && (a.Verdict != readiness.No || a.Fix != tt.want) {
				t.Errorf("%s: %+v, want fix %q", tt.name, a, tt.want)
			}
		}
	}
}
