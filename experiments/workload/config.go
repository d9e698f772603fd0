//go:build linux

package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// The zero values that mean a default.
const (
	DefaultMessageSize = 64
	DefaultInterval    = 250 * time.Millisecond
	DefaultConnections = 128
	DefaultServiceTime = 2 * time.Microsecond
)

// The smallest message holds the time that a reply carries.
const (
	minMessageSize = 8
	maxMessageSize = 1 << 16
	maxConnections = 4096
)

// ServerConfig configures [RunServer].
type ServerConfig struct {
	// Addr is where the server listens; port 0 lets the kernel choose.
	Addr netip.AddrPort `json:"addr"`
	// CPU is the loop's CPU, and RuntimeCPU that of the process's other
	// threads, which do next to nothing.
	CPU        int `json:"cpu"`
	RuntimeCPU int `json:"runtime_cpu"`
	// MessageSize is the size of requests and replies in bytes, 8 to 65536;
	// zero means 64.
	MessageSize int `json:"message_size"`
	// ServiceTime is how long the server computes per request, between
	// reading and answering. Zero means 2 us, about what memcached spends
	// outside the kernel on a small get; negative means none.
	ServiceTime time.Duration `json:"service_time_ns"`
	// Realtime runs the loop under SCHED_FIFO: it runs as soon as it wakes,
	// where otherwise whatever else is on its CPU may finish a time slice of
	// milliseconds first. It needs CAP_SYS_NICE; without it the kernel's usual
	// scheduling is measured. The bed has the same for its NAPI threads, and
	// it is both or neither.
	Realtime bool `json:"realtime"`
	// BusyPoll sets the parameters of the epoll context (EPIOCSPARAMS, Linux
	// 6.9 and later); nil leaves them as the kernel has them.
	BusyPoll *BusyPoll `json:"busy_poll"`
	// Interval is how often the server reports; zero means 250 ms.
	Interval time.Duration `json:"interval_ns"`
}

// BusyPoll is how an epoll context polls the NAPI of its sockets, struct
// epoll_params in include/uapi/linux/eventpoll.h.
type BusyPoll struct {
	// Span is how long epoll_wait polls before it sleeps, in whole
	// microseconds.
	Span time.Duration `json:"span_ns"`
	// Budget is the packets per poll; more than 64 needs CAP_NET_ADMIN.
	Budget uint16 `json:"budget"`
	// Prefer is prefer_busy_poll: the kernel defers interrupts while the
	// context polls.
	Prefer bool `json:"prefer"`
}

func (c ServerConfig) withDefaults() (ServerConfig, error) {
	c.MessageSize = orDefault(c.MessageSize, DefaultMessageSize)
	c.Interval = orDefault(c.Interval, DefaultInterval)
	c.ServiceTime = max(orDefault(c.ServiceTime, DefaultServiceTime), 0)
	if !c.Addr.Addr().Is4() {
		return c, fmt.Errorf("server address %v: want IPv4 and port", c.Addr)
	}
	return c, checkCommon(c.MessageSize, c.Interval, c.CPU, c.RuntimeCPU)
}

// ClientConfig configures [RunClient].
type ClientConfig struct {
	// Addr is the server's address.
	Addr netip.AddrPort `json:"addr"`
	// CPU is the loop's CPU, and RuntimeCPU that of the process's other
	// threads.
	CPU        int `json:"cpu"`
	RuntimeCPU int `json:"runtime_cpu"`
	// MessageSize must be the server's; zero means 64.
	MessageSize int `json:"message_size"`
	// Connections is the number of connections, each with at most one request
	// in flight; 1 to 4096, zero means 128.
	Connections int `json:"connections"`
	// Sleep makes the loop sleep until a reply comes or the next request is
	// due. By default it spins. On a virtual machine of 2 CPUs at 5,000
	// requests per second, sleeping moved p50 from 79 to 143 us and had a
	// fifth of the requests overlap a gap, as an idle CPU often woke more than
	// 100 us late; spinning, less than one in a hundred did.
	Sleep bool `json:"sleep"`
	// Nice is the process's nice value, -20 to 19; negative values need
	// CAP_SYS_NICE. It keeps a client that spins running on a busy machine,
	// and starves what shares its CPU.
	Nice int `json:"nice"`
	// Seed makes the arrivals repeatable.
	Seed uint64 `json:"seed"`
	// Interval is how often the client reports; zero means 250 ms.
	Interval time.Duration `json:"interval_ns"`
	// Exchange is what is sent to a server that is not [RunServer]; nil is
	// that server's own.
	Exchange *Exchange `json:"exchange"`
}

// Exchange is a request in the protocol of some server. Its replies must all be
// of the same length, which the client learns from the first.
type Exchange struct {
	// Prepare is sent once, over a connection of its own, before anything
	// else; what comes back is not looked at. It stores what requests ask for.
	Prepare []byte `json:"prepare"`
	// Request is sent again and again.
	Request []byte `json:"request"`
	// Reply is what the reply must begin with.
	Reply []byte `json:"reply"`
}

func (c ClientConfig) withDefaults() (ClientConfig, error) {
	c.MessageSize = orDefault(c.MessageSize, DefaultMessageSize)
	c.Interval = orDefault(c.Interval, DefaultInterval)
	c.Connections = orDefault(c.Connections, DefaultConnections)
	if !c.Addr.Addr().Is4() || c.Addr.Port() == 0 {
		return c, fmt.Errorf("server address %v: want IPv4 and port", c.Addr)
	}
	if c.Nice < -20 || c.Nice > 19 {
		return c, fmt.Errorf("nice value %d: want -20 to 19", c.Nice)
	}
	if c.Connections < 0 || c.Connections > maxConnections {
		return c, fmt.Errorf("%d connections: want 1 to %d", c.Connections, maxConnections)
	}
	if c.Exchange != nil && (len(c.Exchange.Request) == 0 || len(c.Exchange.Request) > maxMessageSize) {
		return c, fmt.Errorf("a request of %d bytes: want 1 to %d", len(c.Exchange.Request), maxMessageSize)
	}
	return c, checkCommon(c.MessageSize, c.Interval, c.CPU, c.RuntimeCPU)
}

func checkCommon(size int, interval time.Duration, cpus ...int) error {
	if size < minMessageSize || size > maxMessageSize {
		return fmt.Errorf("messages of %d bytes: want %d to %d", size, minMessageSize, maxMessageSize)
	}
	if interval < time.Millisecond {
		return fmt.Errorf("interval %v: want at least 1ms", interval)
	}
	for _, cpu := range cpus {
		if cpu < 0 {
			return errors.New("a CPU number is negative")
		}
	}
	return nil
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
