//go:build linux

package workload

import (
	"net/netip"
	"time"
)

// ServerInterval is what the server did in one reporting interval.
type ServerInterval struct {
	Start time.Duration `json:"start_ns"`
	End   time.Duration `json:"end_ns"`
	// Requests were answered; Wakes counts returns of epoll_wait that
	// delivered requests.
	Requests uint64 `json:"requests"`
	Wakes    uint64 `json:"wakes"`
	Gaps     Gaps   `json:"gaps"`
}

// ServerTotals is what the server did from its start to its stop.
type ServerTotals struct {
	Requests uint64 `json:"requests"`
	Wakes    uint64 `json:"wakes"`
	// Gaps counts gaps, GapTime is their sum.
	Gaps    uint64        `json:"gaps"`
	GapTime time.Duration `json:"gap_time_ns"`
}

// ClientInterval is what the client did in one reporting interval. An interval
// ends early where a phase or its settle time ends, so that each belongs to
// one of them wholly.
type ClientInterval struct {
	Start time.Duration `json:"start_ns"`
	End   time.Duration `json:"end_ns"`
	// Phase is the name of the phase, and Settling whether its settle time
	// was still running.
	Phase    string `json:"phase"`
	Settling bool   `json:"settling"`
	// Rate is the rate asked for, in requests per second.
	Rate float64 `json:"requests_per_s"`
	// Offered requests became due, Sent were sent, Completed were answered,
	// and Dropped had no room left in the queue.
	Offered   uint64 `json:"offered"`
	Sent      uint64 `json:"sent"`
	Completed uint64 `json:"completed"`
	Dropped   uint64 `json:"dropped"`
	// Carried of the completed were due before the interval's phase, or its
	// settle time, had begun; they are in neither histogram.
	Carried uint64 `json:"carried"`
	// ExcludedClient and ExcludedServer of the completed overlapped a gap of
	// the client's or a stolen gap of the server's; they are in RawLatency
	// only.
	ExcludedClient uint64 `json:"excluded_client"`
	ExcludedServer uint64 `json:"excluded_server"`
	// Backlog is the number of requests that wait for a connection at the
	// end, and MaxBacklog the largest it was.
	Backlog    int `json:"backlog"`
	MaxBacklog int `json:"max_backlog"`
	// Gaps are the client's.
	Gaps Gaps `json:"gaps"`
	// Latency is from due to answered, without the excluded; RawLatency is
	// with them.
	Latency    *Latency `json:"latency"`
	RawLatency *Latency `json:"raw_latency"`
}

// ClientTotals is what the client did from its start to its stop.
type ClientTotals struct {
	Offered   uint64        `json:"offered"`
	Sent      uint64        `json:"sent"`
	Completed uint64        `json:"completed"`
	Dropped   uint64        `json:"dropped"`
	Excluded  uint64        `json:"excluded"`
	Gaps      uint64        `json:"gaps"`
	GapTime   time.Duration `json:"gap_time_ns"`
}

// Phase is a command to the client: offer requests at a rate from now on.
type Phase struct {
	Name string `json:"name"`
	// Rate is in requests per second; zero offers none. Requests that are
	// waiting or in flight are still completed.
	Rate float64 `json:"requests_per_s"`
	// Closed offers the next request of each connection as soon as its reply
	// has come, whatever Rate says: as much as the server can answer, timed
	// from when it is sent. Delays then tell nothing about a server that is
	// offered a load; it is for comparing settings of one that is always busy.
	Closed bool `json:"closed"`
	// Burst makes requests come in bursts of so many on the average, and nothing
	// in between; at most 1 means that they come at random. BurstRate is in
	// requests per second within a burst, and Rate stays that of the phase.
	Burst     float64 `json:"burst_requests"`
	BurstRate float64 `json:"burst_requests_per_s"`
	// Settle is how long the phase's intervals are marked as settling.
	Settle time.Duration `json:"settle_ns"`
	// Fresh drops the requests that still wait for a connection, so that an
	// overload before does not reach into this phase. They count as dropped.
	Fresh bool `json:"fresh"`
}

// PhaseSummary is a phase condensed.
type PhaseSummary struct {
	Phase string
	// Span is the time measured, the settle time left out.
	Span time.Duration
	// OfferedRate and AchievedRate are in requests per second.
	OfferedRate, AchievedRate float64
	// Completed and the rest are sums over the intervals, MaxBacklog is the
	// largest.
	Offered, Completed, Dropped, Excluded uint64
	MaxBacklog                            int
	Gaps                                  uint64
	GapTime                               time.Duration
	// Latency excludes requests that overlap a gap; RawLatency does not.
	Latency, RawLatency *Latency
}

// Summarize condenses those of the intervals that belong to the named phase
// and are not settling. Intervals of a phase that ran several times are taken
// together.
func Summarize(intervals []ClientInterval, phase string) PhaseSummary {
	s := PhaseSummary{Phase: phase, Latency: NewLatency(), RawLatency: NewLatency()}
	for _, in := range intervals {
		if in.Phase != phase || in.Settling {
			continue
		}
		s.Span += in.End - in.Start
		s.Offered += in.Offered
		s.Completed += in.Completed
		s.Dropped += in.Dropped
		s.Excluded += in.ExcludedClient + in.ExcludedServer
		s.MaxBacklog = max(s.MaxBacklog, in.MaxBacklog)
		s.Gaps += in.Gaps.Count
		s.GapTime += in.Gaps.Total
		s.Latency.Merge(in.Latency)
		s.RawLatency.Merge(in.RawLatency)
	}
	if s.Span > 0 {
		s.OfferedRate = float64(s.Offered) / s.Span.Seconds()
		s.AchievedRate = float64(s.Completed) / s.Span.Seconds()
	}
	return s
}

// command is a line to a process.
type command struct {
	Phase *Phase `json:"phase,omitempty"`
	Stop  bool   `json:"stop,omitempty"`
}

// message is a line from a process of either kind; one field is set, or the
// three of an interval.
type message[I, T any] struct {
	Ready    *ready        `json:"ready,omitempty"`
	Phase    *phaseStarted `json:"phase,omitempty"`
	Interval *I            `json:"interval,omitempty"`
	// Latency and Excluded go with a client's interval, whose own histograms
	// are null on the wire: its raw latency is both together.
	Latency  *Latency `json:"latency,omitempty"`
	Excluded *Latency `json:"excluded,omitempty"`
	Totals   *T       `json:"totals,omitempty"`
	// Error is why the process ends.
	Error string `json:"error,omitempty"`
}

type ready struct {
	// Addr is where a server listens.
	Addr netip.AddrPort `json:"addr"`
}

type phaseStarted struct {
	Name string        `json:"name"`
	At   time.Duration `json:"at_ns"`
}
