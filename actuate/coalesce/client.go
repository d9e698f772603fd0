package coalesce

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"autotune/model"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnsupported says that the kernel (before 5.6) has no ethtool family, or
// that the device has no interrupt moderation to report.
var ErrUnsupported = errors.New("not reported")

// timeout bounds the wait for a reply; the kernel holds the device's lock
// meanwhile, which a driver that resets can keep for seconds.
const timeout = 5 * time.Second

// Client asks the ethtool family of one network namespace.
type Client struct {
	mu     sync.Mutex
	conn   *genetlink.Conn
	family uint16
	// limited tells that the connection has deadlines; those of tests do not.
	limited bool
}

// New dials a client in the calling thread's network namespace. The error wraps
// [ErrUnsupported] where the kernel has no such family.
func New() (*Client, error) {
	conn, err := genetlink.Dial(&netlink.Config{Strict: true})
	if err != nil {
		return nil, fmt.Errorf("open a generic netlink socket: %w", err)
	}
	c, err := initClient(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.limited = true
	return c, nil
}

func initClient(conn *genetlink.Conn) (*Client, error) {
	family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("find the ethtool family: %w: %w", err, ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("find the ethtool family: %w", err)
	}
	return &Client{conn: conn, family: family.ID}, nil
}

// Close closes the socket.
func (c *Client) Close() error { return c.conn.Close() }

// Get returns the moderation of a device: [ErrUnsupported] where it has none,
// [model.ErrGone] where there is no such device.
func (c *Client) Get(ifindex int) (model.Coalescing, error) {
	op := fmt.Sprintf("coalesce-get ifindex %d", ifindex)
	ae := netlink.NewAttributeEncoder()
	ae.Nested(unix.ETHTOOL_A_COALESCE_HEADER, func(header *netlink.AttributeEncoder) error {
		header.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, uint32(ifindex))
		return nil
	})
	data, err := ae.Encode()
	if err != nil {
		return model.Coalescing{}, fmt.Errorf("%s: %w", op, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limited {
		if err := c.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return model.Coalescing{}, fmt.Errorf("%s: %w", op, err)
		}
	}
	msgs, err := c.conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: unix.ETHTOOL_MSG_COALESCE_GET, Version: unix.ETHTOOL_GENL_VERSION},
		Data:   data,
	}, c.family, netlink.Request)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return model.Coalescing{}, fmt.Errorf("%s: %w: %w", op, err, ErrUnsupported)
	case errors.Is(err, unix.ENODEV):
		return model.Coalescing{}, fmt.Errorf("%s: %w: %w", op, err, model.ErrGone)
	case err != nil:
		return model.Coalescing{}, fmt.Errorf("%s: %w", op, err)
	case len(msgs) != 1:
		return model.Coalescing{}, fmt.Errorf("%s: %d replies, want one", op, len(msgs))
	}
	out, err := parse(msgs[0].Data)
	if err != nil {
		return model.Coalescing{}, fmt.Errorf("%s: %w", op, err)
	}
	return out, nil
}

// parse decodes a reply. The driver's operations say which attributes there
// are (coalesce_fill_reply); unknown ones are skipped.
func parse(data []byte) (model.Coalescing, error) {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return model.Coalescing{}, fmt.Errorf("coalesce reply: %w", err)
	}
	var c model.Coalescing
	for ad.Next() {
		switch ad.Type() {
		case unix.ETHTOOL_A_COALESCE_RX_USECS:
			c.RXUsecs = number(ad)
		case unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES:
			c.RXFrames = number(ad)
		case unix.ETHTOOL_A_COALESCE_TX_USECS:
			c.TXUsecs = number(ad)
		case unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES:
			c.TXFrames = number(ad)
		case unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX:
			c.AdaptiveRX = flag(ad)
		case unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX:
			c.AdaptiveTX = flag(ad)
		case unix.ETHTOOL_A_COALESCE_USE_CQE_MODE_RX:
			c.CQEModeRX = flag(ad)
		case unix.ETHTOOL_A_COALESCE_USE_CQE_MODE_TX:
			c.CQEModeTX = flag(ad)
		}
	}
	if err := ad.Err(); err != nil {
		return model.Coalescing{}, fmt.Errorf("coalesce reply: %w", err)
	}
	return c, nil
}

func number(ad *netlink.AttributeDecoder) *uint32 {
	v := ad.Uint32()
	return &v
}

func flag(ad *netlink.AttributeDecoder) *bool {
	v := ad.Uint8() != 0
	return &v
}
