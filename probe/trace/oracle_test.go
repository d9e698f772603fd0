package trace

import (
	"encoding/json"
	"fmt"
	"time"

	"autotune/model"
)

// The oracle is a second, independent reading of the format: plain structs and
// encoding/json. It is what the hand-written decoder is checked against and
// timed against.

type oracleSample struct {
	Kind    Kind           `json:"kind"`
	At      int64          `json:"at_ns"`
	Span    int64          `json:"span_ns"`
	Queues  []oracleQueue  `json:"queues"`
	CPUs    []oracleCPU    `json:"cpus"`
	Apps    []oracleApp    `json:"apps"`
	Latency *oracleLatency `json:"latency"`
	Lost    uint64         `json:"lost_events"`
	Active  []oracleActive `json:"active"`
	NAPIs   []oracleNAPI   `json:"napi_ids"`
	Absent  []oracleAbsent `json:"absent"`
	Probe   *oracleProbe   `json:"probe"`
}

type oracleProbe struct {
	Cost      *int64 `json:"cost_ns_per_s"`
	Budget    int64  `json:"budget_ns_per_s"`
	PollEvery uint32 `json:"poll_every"`
}

type oracleSuspension struct {
	Started uint64     `json:"started"`
	Resumed uint64     `json:"resumed"`
	Expired uint64     `json:"expired"`
	Flushed uint64     `json:"flushed"`
	Length  [][]uint64 `json:"length"`
}

type oracleQueue struct {
	Queue       model.Queue  `json:"queue"`
	NAPIID      uint32       `json:"napi_id"`
	Softirq     oraclePolls  `json:"softirq"`
	Thread      oraclePolls  `json:"thread"`
	Busy        oraclePolls  `json:"busy"`
	Work        [][]uint64   `json:"work"`
	Timer       *oracleTimer `json:"timer"`
	ThreadTime  *int64       `json:"thread_time_ns"`
	RingWait    [][]uint64   `json:"ring_wait"`
	SocketWait  [][]uint64   `json:"socket_wait"`
	Service     [][]uint64   `json:"service"`
	Delay       [][]uint64   `json:"delay"`
	SampleEvery uint32       `json:"sample_every"`

	TimerSoftirq *oraclePolls      `json:"timer_softirq"`
	TimerThread  *oraclePolls      `json:"timer_thread"`
	Netpoll      *uint64           `json:"netpoll"`
	Takeovers    *model.Takeovers  `json:"takeovers"`
	Unmasked     *uint64           `json:"unmasked"`
	Interrupts   *uint64           `json:"interrupts"`
	SoftirqTime  *int64            `json:"softirq_time_ns"`
	Suspension   *oracleSuspension `json:"suspension"`
}

type oraclePolls struct {
	Polls   uint64 `json:"polls"`
	Packets uint64 `json:"packets"`
	Empty   uint64 `json:"empty"`
	Full    uint64 `json:"full"`
}

type oracleTimer struct {
	Arms  uint64 `json:"arms"`
	Fires uint64 `json:"fires"`
}

type oracleCPU struct {
	CPU       int    `json:"cpu"`
	NetRX     *int64 `json:"net_rx_ns"`
	NetRXIdle *int64 `json:"net_rx_idle_ns"`
	Busy      int64  `json:"busy_ns"`

	HardIRQs     *uint64 `json:"hard_irqs"`
	HardIRQ      *int64  `json:"hard_irq_ns"`
	HardIRQIdle  *int64  `json:"hard_irq_idle_ns"`
	Ksoftirqd    *int64  `json:"ksoftirqd_ns"`
	TransmitOnly *uint64 `json:"transmit_only"`

	Steal    int64  `json:"steal_ns"`
	Squeezed uint64 `json:"squeezed"`
}

type oracleApp struct {
	PID      int             `json:"pid"`
	Comm     string          `json:"comm"`
	CPU      int64           `json:"cpu_ns"`
	Waits    [][]uint64      `json:"waits"`
	Contexts []oracleContext `json:"contexts"`

	Events    *uint64          `json:"events"`
	Full      *uint64          `json:"full"`
	BusyPolls *model.BusyPolls `json:"busy_polls"`
	Cgroup    string           `json:"cgroup"`
	Selected  bool             `json:"selected"`
}

type oracleContext struct {
	FD       int      `json:"fd"`
	BusyPoll int64    `json:"busy_poll_ns"`
	Budget   uint16   `json:"busy_poll_budget"`
	Prefer   bool     `json:"prefer_busy_poll"`
	NAPIIDs  []uint32 `json:"napi_ids"`
	Opaque   bool     `json:"opaque"`
	More     bool     `json:"more"`
}

type oracleLatency struct {
	Source    string     `json:"source"`
	Histogram [][]uint64 `json:"histogram"`
}

type oracleActive struct {
	Queue    model.Queue `json:"queue"`
	Defer    uint32      `json:"defer_hard_irqs"`
	Flush    int64       `json:"gro_flush_timeout_ns"`
	Suspend  int64       `json:"irq_suspend_timeout_ns"`
	BusyPoll int64       `json:"busy_poll_ns"`
	Budget   uint16      `json:"busy_poll_budget"`
	Prefer   bool        `json:"prefer_busy_poll"`
}

type oracleNAPI struct {
	Queue  model.Queue `json:"queue"`
	NAPIID uint32      `json:"napi_id"`
}

type oracleAbsent struct {
	Queue  model.Queue `json:"queue"`
	Reason string      `json:"reason"`
}

func oracleDecode(line []byte) (model.Sample, error) {
	var in oracleSample
	if err := json.Unmarshal(line, &in); err != nil {
		return model.Sample{}, err
	}
	if in.Kind != KindSample {
		return model.Sample{}, fmt.Errorf("kind %q", in.Kind)
	}
	out := model.Sample{At: time.Duration(in.At), Span: time.Duration(in.Span), Lost: in.Lost}
	var bad error
	fill := func(counts []uint64, runs [][]uint64) {
		for _, run := range runs {
			for i, n := range run[min(1, len(run)):] {
				at := run[0] + uint64(i)
				if at >= uint64(len(counts)) {
					bad = fmt.Errorf("bucket %d", at)
					return
				}
				counts[at] += n
			}
		}
	}
	histogram := func(runs [][]uint64) *model.Histogram {
		if runs == nil {
			return nil
		}
		h := new(model.Histogram)
		fill(h.Counts[:], runs)
		return h
	}
	if in.Queues != nil {
		out.Queues = []model.QueueSample{}
	}
	for _, q := range in.Queues {
		sample := model.QueueSample{
			Queue: q.Queue, NAPIID: q.NAPIID,
			Softirq: model.PollCounts(q.Softirq), Thread: model.PollCounts(q.Thread), Busy: model.PollCounts(q.Busy),
			Timer: (*model.TimerCounts)(q.Timer), ThreadTime: (*time.Duration)(q.ThreadTime),
			RingWait: histogram(q.RingWait), SocketWait: histogram(q.SocketWait),
			Service: histogram(q.Service), Delay: histogram(q.Delay),
			SampleEvery:  q.SampleEvery,
			TimerSoftirq: (*model.PollCounts)(q.TimerSoftirq), TimerThread: (*model.PollCounts)(q.TimerThread),
			Netpoll: q.Netpoll, Takeovers: q.Takeovers, Unmasked: q.Unmasked, Interrupts: q.Interrupts,
			SoftirqTime: (*time.Duration)(q.SoftirqTime),
		}
		if p := q.Suspension; p != nil {
			sample.Suspension = &model.Suspension{Started: p.Started, Resumed: p.Resumed, Expired: p.Expired, Flushed: p.Flushed}
			fill(sample.Suspension.Length.Counts[:], p.Length)
		}
		fill(sample.Work[:], q.Work)
		out.Queues = append(out.Queues, sample)
	}
	if in.CPUs != nil {
		out.CPUs = []model.CPUSample{}
	}
	for _, c := range in.CPUs {
		out.CPUs = append(out.CPUs, model.CPUSample{
			CPU: c.CPU, NetRX: (*time.Duration)(c.NetRX), NetRXIdle: (*time.Duration)(c.NetRXIdle),
			Busy: time.Duration(c.Busy), Steal: time.Duration(c.Steal), Squeezed: c.Squeezed,
			HardIRQs: c.HardIRQs, HardIRQ: (*time.Duration)(c.HardIRQ), HardIRQIdle: (*time.Duration)(c.HardIRQIdle),
			Ksoftirqd: (*time.Duration)(c.Ksoftirqd), TransmitOnly: c.TransmitOnly,
		})
	}
	if in.Apps != nil {
		out.Apps = []model.AppSample{}
	}
	for _, a := range in.Apps {
		app := model.AppSample{PID: a.PID, Comm: a.Comm, CPU: time.Duration(a.CPU), Events: a.Events, Full: a.Full, BusyPolls: a.BusyPolls, Cgroup: a.Cgroup, Selected: a.Selected}
		if a.Waits != nil {
			app.Waits = new([model.WorkBuckets]uint64)
			fill(app.Waits[:], a.Waits)
		}
		if a.Contexts != nil {
			app.Contexts = []model.EpollContext{}
		}
		for _, c := range a.Contexts {
			app.Contexts = append(app.Contexts, model.EpollContext{
				FD: c.FD, BusyPoll: time.Duration(c.BusyPoll), Budget: c.Budget, Prefer: c.Prefer, NAPIIDs: c.NAPIIDs, Opaque: c.Opaque, MoreNAPIs: c.More,
			})
		}
		out.Apps = append(out.Apps, app)
	}
	if in.Latency != nil {
		out.Latency = &model.Latency{Source: in.Latency.Source}
		fill(out.Latency.Histogram.Counts[:], in.Latency.Histogram)
	}
	if in.Active != nil {
		out.Active = model.Config{}
	}
	for _, a := range in.Active {
		out.Active[a.Queue] = model.Settings{
			DeferHardIRQs: a.Defer, GROFlushTimeout: time.Duration(a.Flush), IRQSuspendTimeout: time.Duration(a.Suspend),
			BusyPoll: model.BusyPoll{Span: time.Duration(a.BusyPoll), Budget: a.Budget, Prefer: a.Prefer},
		}
	}
	if in.NAPIs != nil {
		out.NAPIIDs = map[model.Queue]uint32{}
	}
	for _, n := range in.NAPIs {
		out.NAPIIDs[n.Queue] = n.NAPIID
	}
	if in.Absent != nil {
		out.Absent = map[model.Queue]string{}
	}
	for _, a := range in.Absent {
		out.Absent[a.Queue] = a.Reason
	}
	if p := in.Probe; p != nil {
		out.Probe = &model.ProbeSample{Cost: (*time.Duration)(p.Cost), Budget: time.Duration(p.Budget), PollEvery: p.PollEvery}
	}
	return out, bad
}
