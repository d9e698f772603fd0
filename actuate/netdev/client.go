package netdev

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"autotune/model"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
)

// maxAttempts bounds how often an interrupted dump is taken again, and
// maxStale how many messages of earlier requests are skipped while waiting for
// the own reply.
const (
	maxAttempts = 8
	maxStale    = 64
)

// defaultTimeout is generous: dumps wait for the rtnl lock, which a driver can
// hold for seconds while it resets.
const defaultTimeout = 5 * time.Second

// Options say where a [Client] works. The zero value is the namespace of the
// calling thread.
type Options struct {
	// NetNS is an open file descriptor of a network namespace; 0 is the
	// calling thread's own. It is not needed after [New] has returned.
	NetNS int
	// Timeout bounds the wait for each reply; 0 is 5 s.
	Timeout time.Duration
}

// Client talks to the netdev family of one network namespace.
type Client struct {
	mu     sync.Mutex
	conn   *genetlink.Conn
	family uint16
	// timeout is 0 on connections without deadlines (tests).
	timeout time.Duration
}

// New dials a client. The error wraps [ErrUnsupported] where the kernel has no
// netdev family (before 6.3).
func New(o Options) (*Client, error) {
	// Strict: the kernel checks requests as strictly as it can, and explains
	// its errors (extack).
	conn, err := genetlink.Dial(&netlink.Config{Strict: true, NetNS: o.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open a generic netlink socket: %w", err)
	}
	c, err := initClient(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.timeout = o.Timeout
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	return c, nil
}

func initClient(conn *genetlink.Conn) (*Client, error) {
	family, err := conn.GetFamily(familyName)
	if err != nil {
		return nil, explain("find the netdev family", stageFamily, nil, err)
	}
	return &Client{conn: conn, family: family.ID}, nil
}

// Close closes the socket, and lets go of its namespace.
func (c *Client) Close() error { return c.conn.Close() }

// Devices lists the devices of the namespace (dev-get).
func (c *Client) Devices() ([]Device, error) {
	return dump(c, "dev-get", cmdDevGet, nil, parseDevice)
}

// Queues lists the queues of a device (queue-get), in the kernel's order. A
// device that is down has none; one that does not exist is [model.ErrGone].
func (c *Client) Queues(ifindex int) ([]Queue, error) {
	op := fmt.Sprintf("queue-get ifindex %d", ifindex)
	data, err := encodeIfindex(attrQueueIfindex, ifindex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	queues, err := dump(c, op, cmdQueueGet, data, parseQueue)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if q.Ifindex != ifindex {
			return nil, fmt.Errorf("%s: %w: ifindex %d", op, errWrongDevice, q.Ifindex)
		}
	}
	return queues, nil
}

// NAPIs lists the NAPI instances of a device that have an ID (napi-get dump),
// in the kernel's order. A device that is down has none; one that does not
// exist is [model.ErrGone].
func (c *Client) NAPIs(ifindex int) ([]NAPI, error) {
	op := fmt.Sprintf("napi-get ifindex %d", ifindex)
	data, err := encodeIfindex(attrNAPIIfindex, ifindex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	napis, err := dump(c, op, cmdNAPIGet, data, parseNAPI)
	if err != nil {
		return nil, err
	}
	for _, n := range napis {
		if n.Ifindex != ifindex {
			return nil, fmt.Errorf("%s: %w: id %d has ifindex %d", op, errWrongDevice, n.ID, n.Ifindex)
		}
	}
	return napis, nil
}

// NAPI reads one instance of the device ifindex (napi-get by id). It returns
// [model.ErrGone] where the ID is unknown, and where it belongs to another
// device: IDs were not separated by namespace on older kernels.
func (c *Client) NAPI(ifindex int, id uint32) (NAPI, error) {
	op := fmt.Sprintf("napi-get id %d", id)
	data, err := encodeID(id)
	if err != nil {
		return NAPI{}, fmt.Errorf("%s: %w", op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	msgs, err := c.exchange(cmdNAPIGet, data, 0)
	if err != nil {
		return NAPI{}, explain(op, stageGet, nil, err)
	}
	if len(msgs) != 1 {
		return NAPI{}, fmt.Errorf("%s: %d replies, want one", op, len(msgs))
	}
	n, err := parseNAPI(msgs[0].Data)
	if err != nil {
		return NAPI{}, fmt.Errorf("%s: %w", op, err)
	}
	if n.Ifindex != ifindex || n.ID != id {
		return NAPI{}, fmt.Errorf("%s of ifindex %d: %w: id %d of ifindex %d: %w", op, ifindex, errWrongDevice, n.ID, n.Ifindex, model.ErrGone)
	}
	return n, nil
}

// SetNAPI changes one instance (napi-set, Linux 6.13). The kernel applies one
// call as a whole under the device's lock. Values outside the kernel's limits
// are refused unsent, wrapping [model.ErrOutOfBounds]. See [Error] for what
// the kernel may answer: [model.ErrGone], [model.ErrReadOnly], [model.ErrBusy],
// or an Attribute that it does not take.
func (c *Client) SetNAPI(id uint32, u NAPIUpdate) error {
	op := fmt.Sprintf("napi-set id %d", id)
	if err := u.check(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	data, layout, err := u.encode(id)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.exchange(cmdNAPISet, data, netlink.Acknowledge)
	return explain(op, stageSet, layout, err)
}

// CheckSet finds out whether this kernel has napi-set: nil, or an error that
// wraps [ErrUnsupported]. It asks with an ID that nobody has, so that nothing is
// changed. A kernel that has the command looks at permission and ID after that
// (genl_family_rcv_msg in net/netlink/genetlink.c), so nil says nothing of them.
func (c *Client) CheckSet() error {
	zero := uint32(0)
	err := c.SetNAPI(math.MaxInt32, NAPIUpdate{DeferHardIRQs: &zero})
	switch {
	case errors.Is(err, ErrUnsupported):
		return err
	case errors.Is(err, model.ErrGone), errors.Is(err, model.ErrReadOnly), errors.Is(err, model.ErrBusy):
		return nil
	default:
		return err
	}
}

// dump takes a dump, again while the kernel says that it was interrupted by a
// change (NLM_F_DUMP_INTR), since such a dump can miss entries.
func dump[T any](c *Client, op string, command uint8, data []byte, parse func([]byte) (T, error)) ([]T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range maxAttempts {
		msgs, err := c.exchange(command, data, netlink.Dump)
		if errors.Is(err, errInterrupted) {
			continue
		}
		if err != nil {
			return nil, explain(op, stageDump, nil, err)
		}
		out := make([]T, 0, len(msgs))
		for _, m := range msgs {
			v, err := parse(m.Data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", op, err)
			}
			out = append(out, v)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s: %w %d times in a row: %w", op, errInterrupted, maxAttempts, model.ErrBusy)
}

var (
	errInterrupted = errors.New("dump interrupted by a change")
	errNoReply     = errors.New("no reply of the kernel to this request")
)

// exchange sends one request and collects what belongs to it. Messages of an
// earlier request (a reply that came after its timeout) are skipped, and with
// [netlink.Acknowledge] everything up to the acknowledgement is read, so that
// nothing is left behind for the next request.
func (c *Client) exchange(command uint8, data []byte, flags netlink.HeaderFlags) ([]genetlink.Message, error) {
	if c.timeout > 0 {
		if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
			return nil, err
		}
	}
	sent, err := c.conn.Send(genetlink.Message{
		Header: genetlink.Header{Command: command, Version: familyVersion},
		Data:   data,
	}, c.family, netlink.Request|flags)
	if err != nil {
		return nil, err
	}
	var out []genetlink.Message
	for range maxStale {
		msgs, headers, err := c.conn.Receive()
		if err != nil {
			var opErr *netlink.OpError
			if errors.As(err, &opErr) && opErr.Sequence != 0 && opErr.Sequence != sent.Header.Sequence {
				continue
			}
			return nil, err
		}
		if len(msgs) == 0 && flags&netlink.Dump == netlink.Dump {
			return out, nil
		}
		own, acknowledged, interrupted := 0, false, false
		for i, m := range msgs {
			h := headers[i].Header
			if h.Sequence != sent.Header.Sequence {
				continue
			}
			own++
			interrupted = interrupted || h.Flags&netlink.DumpInterrupted != 0
			if h.Type == netlink.Error {
				acknowledged = true
				continue
			}
			out = append(out, m)
		}
		switch {
		case interrupted:
			return nil, errInterrupted
		case flags&netlink.Acknowledge != 0:
			if acknowledged {
				return out, nil
			}
		case own > 0:
			return out, nil
		}
	}
	return nil, errNoReply
}

func encodeIfindex(attr uint16, ifindex int) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attr, uint32(ifindex))
	return ae.Encode()
}

func encodeID(id uint32) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrNAPIID, id)
	return ae.Encode()
}
