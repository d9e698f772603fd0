package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"autotune/model"
)

// stallsEvery is how often a queue is warned of, in the time of samples.
const stallsEvery = time.Minute

// stalls tells of queues whose suspension ended with the safety timer: packets
// waited for as long as the suspend timeout, because the application did not
// come back to epoll_wait in time.
type stalls struct {
	asJSON bool
	// out takes lines of JSON, err lines of text.
	out, err io.Writer
	name     func(model.Queue) string
	queues   map[model.Queue]*stallCount
}

// stallCount counts since the last warning.
type stallCount struct {
	started, expired uint64
	warned           *time.Duration
}

// stallLine is a warning in the output of run --json.
type stallLine struct {
	Kind   string      `json:"kind"` // "stall"
	Queue  model.Queue `json:"queue"`
	Ifname string      `json:"ifname"`
	// Started and Expired count suspensions since the last such line, and
	// those that ended with the safety timer.
	Started uint64        `json:"suspensions"`
	Expired uint64        `json:"suspensions_expired"`
	Suspend time.Duration `json:"irq_suspend_timeout_ns"`
	// Applications are the processes that receive on the queue: "name (pid N)".
	Applications []string `json:"applications"`
}

// window takes in one window. A failure to print ends no run.
func (s *stalls) window(sample *model.Sample) {
	for i := range sample.Queues {
		q := &sample.Queues[i]
		if q.Suspension == nil || q.Suspension.Started == 0 && q.Suspension.Expired == 0 {
			continue
		}
		if s.queues == nil {
			s.queues = map[model.Queue]*stallCount{}
		}
		sum := s.queues[q.Queue]
		if sum == nil {
			sum = &stallCount{}
			s.queues[q.Queue] = sum
		}
		sum.started += q.Suspension.Started
		sum.expired += q.Suspension.Expired
		if sum.expired == 0 || sum.warned != nil && sample.At-*sum.warned < stallsEvery {
			continue
		}
		s.warn(stallLine{
			"stall", q.Queue, s.name(q.Queue), max(sum.started, sum.expired), sum.expired,
			sample.Active[q.Queue].IRQSuspendTimeout, applicationsOn(sample, q.NAPIID),
		})
		at := sample.At
		*sum = stallCount{warned: &at}
	}
}

func (s *stalls) warn(line stallLine) {
	if s.asJSON {
		_ = printJSON(s.out, line)
		return
	}
	who := strings.Join(line.Applications, ", ")
	if who == "" {
		who = "the application"
	}
	fmt.Fprintf(s.err, "%s queue %d: %d of %d suspensions ended with the safety timer (irq-suspend-timeout %v), for which packets waited: %s stalled, or was kept from the CPU; "+
		"look for blocking calls in its event loop and for what else runs on its CPU, or use a longer suspend timeout\n",
		line.Ifname, line.Queue.Index, line.Expired, line.Started, line.Suspend, who)
}

// applicationsOn names the processes with a context on an instance.
func applicationsOn(sample *model.Sample, id uint32) []string {
	out := []string{}
	for i := range sample.Apps {
		app := &sample.Apps[i]
		if slices.ContainsFunc(app.Contexts, func(c model.EpollContext) bool { return slices.Contains(c.NAPIIDs, id) }) {
			out = append(out, fmt.Sprintf("%s (pid %d)", app.Comm, app.PID))
		}
	}
	return out
}
