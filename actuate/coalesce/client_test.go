package coalesce

import (
	"errors"
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func ptr[T any](v T) *T { return &v }

func answer(t testing.TB, data []byte, refusal error) *Client {
	t.Helper()
	family := genetlink.Family{ID: 21, Name: unix.ETHTOOL_GENL_NAME, Version: 1}
	conn := genltest.Dial(genltest.ServeFamily(family, func(req genetlink.Message, _ netlink.Message) ([]genetlink.Message, error) {
		want := []byte{12, 0, unix.ETHTOOL_A_COALESCE_HEADER, 0x80, 8, 0, unix.ETHTOOL_A_HEADER_DEV_INDEX, 0, 7, 0, 0, 0}
		if diff := cmp.Diff(want, req.Data); diff != "" || req.Header.Command != unix.ETHTOOL_MSG_COALESCE_GET {
			t.Errorf("command %d, request (-want +got):\n%s", req.Header.Command, diff)
		}
		if refusal != nil {
			return nil, refusal
		}
		return []genetlink.Message{{Data: data}}, nil
	}))
	c, err := initClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func encode(t testing.TB, fill func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	data, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestReplies has the replies of drivers as coalesce_fill_reply makes them: an
// attribute for what the driver has, also where it is zero.
func TestReplies(t *testing.T) {
	header := func(ae *netlink.AttributeEncoder) {
		ae.Nested(unix.ETHTOOL_A_COALESCE_HEADER, func(h *netlink.AttributeEncoder) error {
			h.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, 7)
			h.String(unix.ETHTOOL_A_HEADER_DEV_NAME, "eth7")
			return nil
		})
	}
	for _, tt := range []struct {
		name string
		fill func(*netlink.AttributeEncoder)
		want model.Coalescing
	}{
		{"virtio_net", func(ae *netlink.AttributeEncoder) {
			header(ae)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_USECS, 0)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES, 1)
			ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 0)
		}, model.Coalescing{RXUsecs: ptr(uint32(0)), RXFrames: ptr(uint32(1)), AdaptiveRX: ptr(false)}},
		{"mlx5 with DIM and CQE mode", func(ae *netlink.AttributeEncoder) {
			header(ae)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_USECS, 8)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES, 128)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_TX_USECS, 8)
			ae.Uint32(unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES, 128)
			ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 1)
			ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, 1)
			ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_CQE_MODE_TX, 0)
			ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_CQE_MODE_RX, 1)
			ae.Bytes(99, []byte("from the future"))
		}, model.Coalescing{
			RXUsecs: ptr(uint32(8)), RXFrames: ptr(uint32(128)), TXUsecs: ptr(uint32(8)), TXFrames: ptr(uint32(128)),
			AdaptiveRX: ptr(true), AdaptiveTX: ptr(true), CQEModeRX: ptr(true), CQEModeTX: ptr(false),
		}},
		{"nothing", header, model.Coalescing{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := answer(t, encode(t, tt.fill), nil).Get(7)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		errno unix.Errno
		want  error
	}{{unix.EOPNOTSUPP, ErrUnsupported}, {unix.ENODEV, model.ErrGone}, {unix.EPERM, unix.EPERM}} {
		_, err := answer(t, nil, &netlink.OpError{Op: "receive", Err: tt.errno}).Get(7)
		if !errors.Is(err, tt.want) || !errors.Is(err, tt.errno) {
			t.Errorf("%v: %v", tt.errno, err)
		}
	}
}

func TestDamagedReply(t *testing.T) {
	data := encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint8(unix.ETHTOOL_A_COALESCE_RX_USECS, 1) })
	if _, err := answer(t, data, nil).Get(7); err == nil {
		t.Error("a count of one byte passes")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.ETHTOOL_A_COALESCE_RX_USECS, 8)
		ae.Uint8(unix.ETHTOOL_A_COALESCE_USE_CQE_MODE_RX, 1)
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parse(data)
		if err != nil && got != (model.Coalescing{}) {
			t.Errorf("%+v beside %v", got, err)
		}
	})
}
