package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// The oracle is a second, independent reading of the format: plain structs and
// encoding/json. It is what the hand-written decoder is checked against and
// timed against.

type oracleSample struct {
	Kind    Kind                     `json:"kind"`
	At      int64                    `json:"at_ns"`
	Span    int64                    `json:"span_ns"`
	Queues  oracleRows[oracleQueue]  `json:"queues"`
	CPUs    oracleRows[oracleCPU]    `json:"cpus"`
	Apps    []oracleApp              `json:"apps"`
	Latency *oracleLatency           `json:"latency"`
	Lost    uint64                   `json:"lost_events"`
	Unknown uint64                   `json:"apps_unknown"`
	Active  oracleRows[oracleActive] `json:"active"`
	NAPIs   oracleRows[oracleNAPI]   `json:"napi_ids"`
	Absent  []oracleAbsent           `json:"absent"`
	Probe   *oracleProbe             `json:"probe"`
}

type oracleProbe struct {
	Cost      *int64 `json:"cost_ns_per_s"`
	Budget    int64  `json:"budget_ns_per_s"`
	PollEvery uint32 `json:"poll_every"`
}

// oracleRows are columns read as objects, by transposing the JSON.
type oracleRows[T any] []T

func (o *oracleRows[T]) UnmarshalJSON(data []byte) error {
	*o = nil
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(data, &texts); err != nil || texts == nil {
		return err
	}
	columns := map[string][]json.RawMessage{}
	for name, text := range texts {
		var rounded string
		if json.Unmarshal(text, &rounded) == nil {
			for _, row := range strings.Split(rounded, " ") {
				quoted, err := json.Marshal(row)
				if err != nil {
					return err
				}
				columns[name] = append(columns[name], quoted)
			}
			continue
		}
		var values []json.RawMessage
		if err := json.Unmarshal(text, &values); err != nil {
			return err
		}
		columns[name] = values
	}
	*o = oracleRows[T]{}
	for i := range columns[slices.Min(slices.Collect(maps.Keys(columns)))] {
		row := map[string]json.RawMessage{}
		for name, values := range columns {
			row[name] = values[i]
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		*o = append(*o, *new(T))
		if err := json.Unmarshal(text, &(*o)[i]); err != nil {
			return err
		}
	}
	return nil
}

type oracleQueue struct {
	Queue       model.Queue  `json:"queue"`
	NAPIID      uint32       `json:"napi_id"`
	ThreadTime  *int64       `json:"thread_time_ns"`
	Work        oracleCounts `json:"work"`
	RingWait    oracleCounts `json:"ring_wait"`
	SocketWait  oracleCounts `json:"socket_wait"`
	Service     oracleCounts `json:"service"`
	Delay       oracleCounts `json:"delay"`
	SampleEvery uint32       `json:"sample_every"`
	CPUs        []int        `json:"cpus"`
	Netpoll     *uint64      `json:"netpoll"`
	Unmasked    *uint64      `json:"unmasked"`
	Interrupts  *uint64      `json:"interrupts"`
	SoftirqTime *int64       `json:"softirq_time_ns"`
	Length      oracleCounts `json:"suspension_length"`

	// numbers has the other columns by name.
	numbers map[string]uint64
}

func (q *oracleQueue) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for name, value := range all {
		if exact, buckets := strings.CutSuffix(name, "_levels"); buckets {
			all[exact] = oracleRounded(value, 1)
		} else if exact, pairs := strings.CutSuffix(name, "_pairs"); pairs {
			all[exact] = oracleRounded(value, 2)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	type plain oracleQueue
	if err := json.Unmarshal(data, (*plain)(q)); err != nil {
		return err
	}
	q.numbers = map[string]uint64{}
	for name, value := range all {
		var n *uint64
		if json.Unmarshal(value, &n) == nil && n != nil {
			q.numbers[name] = *n
		}
	}
	return nil
}

func (q *oracleQueue) has(name string) bool {
	_, ok := q.numbers[name]
	return ok
}

func (q *oracleQueue) polls(loop string) *model.PollCounts {
	if !q.has(loop + "_polls") {
		return nil
	}
	return &model.PollCounts{
		Polls: q.numbers[loop+"_polls"], Packets: q.numbers[loop+"_packets"],
		Empty: q.numbers[loop+"_empty"], Full: q.numbers[loop+"_full"],
	}
}

// oracleCounts are packed counts: runs of a first bucket and its counts. It is
// written by the format's description, not by its decoder.
type oracleCounts [][]uint64

func (c *oracleCounts) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if text == nil {
		*c = nil
		return nil
	}
	*c = oracleCounts{}
	numbers, err := oracleNumbers(*text)
	if err != nil {
		return err
	}
	for i := 1; i < len(numbers); i++ {
		numbers[i] = oracleSigned(numbers[i])
		if i > 1 {
			numbers[i] += numbers[i-1]
		}
	}
	if numbers != nil {
		*c = append(*c, numbers)
	}
	return nil
}

func oracleSigned(d uint64) uint64 {
	if d%2 == 0 {
		return d / 2
	}
	return -((d-1)/2 + 1)
}

// oracleRounded makes exact packed counts of rounded ones, of which each number
// stands for so many buckets.
func oracleRounded(text json.RawMessage, buckets uint64) json.RawMessage {
	var packed string
	if json.Unmarshal(text, &packed) != nil {
		return nil
	}
	numbers, err := oracleNumbers(packed)
	if err != nil || len(numbers) == 1 {
		return nil
	}
	// The rounded counts in their order, whose places are the levels.
	counts := []uint64{0, 1, 2, 3}
	for step := uint64(1); step != 0 && step <= 1<<61; step *= 2 {
		counts = append(counts, 4*step, 5*step, 6*step, 7*step)
	}
	var all []uint64
	level := uint64(0)
	for i, n := range numbers {
		switch i {
		case 0:
			all = make([]uint64, n*buckets)
			continue
		case 1:
			for level+1 < uint64(len(counts)) && counts[level+1] <= n {
				level++
			}
		default:
			level += oracleSigned(n)
			n = counts[level]
		}
		if buckets == 2 {
			all = append(all, n-n/2)
			n /= 2
		}
		all = append(all, n)
	}
	return appendPacked(nil, all)
}

func oracleNumbers(rest string) (numbers []uint64, err error) {
	for rest != "" {
		if digit := strings.Index(packedDigits, rest[:1]); digit >= 0 {
			numbers, rest = append(numbers, uint64(digit)), rest[1:]
		} else if decimal, after, ok := strings.Cut(rest[1:], "~"); rest[0] == '~' && ok {
			n, err := strconv.ParseUint(decimal, 10, 64)
			if err != nil {
				return nil, err
			}
			numbers, rest = append(numbers, n), after
		} else {
			escape, digit := strings.Index(packedEscapes, rest[:1]), strings.Index(packedDigits, rest[1:2])
			numbers, rest = append(numbers, uint64(62+62*escape+digit)), rest[2:]
		}
	}
	return numbers, nil
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

	Cycles       *uint64 `json:"cycles"`
	Instructions *uint64 `json:"instructions"`
}

type oracleApp struct {
	PID      int             `json:"pid"`
	Comm     string          `json:"comm"`
	CPU      int64           `json:"cpu_ns"`
	Waits    oracleCounts    `json:"waits"`
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
	Source    string       `json:"source"`
	Histogram oracleCounts `json:"histogram"`
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
	out := model.Sample{At: time.Duration(in.At), Span: time.Duration(in.Span), Lost: in.Lost, AppsUnknown: in.Unknown}
	var bad error
	fill := func(counts []uint64, runs oracleCounts) {
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
	histogram := func(runs oracleCounts) *model.Histogram {
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
			Softirq: *q.polls("softirq"), Thread: *q.polls("thread"), Busy: *q.polls("busy"),
			ThreadTime: (*time.Duration)(q.ThreadTime),
			RingWait:   histogram(q.RingWait), SocketWait: histogram(q.SocketWait),
			Service: histogram(q.Service), Delay: histogram(q.Delay),
			SampleEvery:  q.SampleEvery,
			CPUs:         q.CPUs,
			TimerSoftirq: q.polls("timer_softirq"), TimerThread: q.polls("timer_thread"),
			Netpoll: q.Netpoll, Unmasked: q.Unmasked, Interrupts: q.Interrupts,
			SoftirqTime: (*time.Duration)(q.SoftirqTime),
		}
		if q.has("timer_arms") {
			sample.Timer = &model.TimerCounts{Arms: q.numbers["timer_arms"], Fires: q.numbers["timer_fires"]}
		}
		if q.has("interrupt_to_timer") {
			sample.Takeovers = &model.Takeovers{
				InterruptToTimer: q.numbers["interrupt_to_timer"], InterruptToApplication: q.numbers["interrupt_to_application"],
				TimerToInterrupt: q.numbers["timer_to_interrupt"], TimerToApplication: q.numbers["timer_to_application"],
				ApplicationToInterrupt: q.numbers["application_to_interrupt"], ApplicationToTimer: q.numbers["application_to_timer"],
			}
		}
		if q.has("suspension_started") {
			sample.Suspension = &model.Suspension{
				Started: q.numbers["suspension_started"], Resumed: q.numbers["suspension_resumed"],
				Expired: q.numbers["suspension_expired"], Flushed: q.numbers["suspension_flushed"],
			}
			fill(sample.Suspension.Length.Counts[:], q.Length)
		}
		if q.has("stamps_used") {
			sample.Stamps = &model.Stamps{
				Used: q.numbers["stamps_used"], Absent: q.numbers["stamps_absent"], Refused: q.numbers["stamps_refused"],
			}
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
			Cycles: c.Cycles, Instructions: c.Instructions,
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
