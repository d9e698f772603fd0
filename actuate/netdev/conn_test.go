package netdev

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nlenc"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

const testFamily = 0x1d

// kernelFunc answers one request of the netdev family with the messages that a
// socket would hold then.
type kernelFunc func(req netlink.Message, command uint8, attrs []byte) ([]netlink.Message, error)

// testClient returns a client whose requests go to fn. Family look-ups are
// answered as the kernel's controller would.
func testClient(t testing.TB, fn kernelFunc) *Client {
	t.Helper()
	c, err := dialTest(fn)
	if err != nil {
		t.Fatalf("initClient: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func dialTest(fn kernelFunc) (*Client, error) {
	return initClient(genetlink.NewConn(nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
		if len(reqs) == 0 {
			return nil, errors.New("read of an empty socket")
		}
		req := reqs[0]
		if req.Header.Type == unix.GENL_ID_CTRL {
			if fn == nil {
				return errnoReply(req, unix.ENOENT, "", 0), nil
			}
			return []netlink.Message{reply(req, 0, nltest.MustMarshalAttributes([]netlink.Attribute{
				{Type: unix.CTRL_ATTR_FAMILY_ID, Data: nlenc.Uint16Bytes(testFamily)},
				{Type: unix.CTRL_ATTR_FAMILY_NAME, Data: nlenc.Bytes(familyName)},
				{Type: unix.CTRL_ATTR_VERSION, Data: nlenc.Uint32Bytes(1)},
			}))}, nil
		}
		return fn(req, req.Data[0], req.Data[genlHeaderLen:])
	})))
}

func reply(req netlink.Message, flags netlink.HeaderFlags, attrs []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: req.Header.Type, Flags: flags, Sequence: req.Header.Sequence, PID: req.Header.PID},
		Data:   append([]byte{req.Data[0], familyVersion, 0, 0}, attrs...),
	}
}

// multipart is a whole dump: the replies and the end mark.
func multipart(req netlink.Message, flags netlink.HeaderFlags, replies ...[]byte) ([]netlink.Message, error) {
	if len(replies) == 0 {
		return nil, io.EOF
	}
	var out []netlink.Message
	for _, attrs := range replies {
		out = append(out, reply(req, flags|netlink.Multi, attrs))
	}
	done := reply(req, netlink.Multi, nil)
	done.Header.Type = netlink.Done
	done.Data = make([]byte, 4) // the dump's own error code: none
	return append(out, done), nil
}

// errnoReply is NLMSG_ERROR with the request's header, and the extack
// attributes where there is an explanation (netlink_ack in
// net/netlink/af_netlink.c).
func errnoReply(req netlink.Message, errno unix.Errno, text string, offset int) []netlink.Message {
	data := make([]byte, 4+netlinkHeaderLen)
	binary.NativeEndian.PutUint32(data, uint32(-int32(errno)))
	binary.NativeEndian.PutUint32(data[4:], netlinkHeaderLen)
	m := netlink.Message{Header: netlink.Header{Type: netlink.Error, Sequence: req.Header.Sequence, PID: req.Header.PID}}
	if text != "" || offset != 0 {
		m.Header.Flags = netlink.AcknowledgeTLVs | netlink.Capped
		ae := netlink.NewAttributeEncoder()
		if text != "" {
			ae.String(1, text)
		}
		if offset != 0 {
			ae.Uint32(2, uint32(offset))
		}
		tlvs, err := ae.Encode()
		if err != nil {
			panic(err)
		}
		data = append(data, tlvs...)
	}
	m.Data = data
	m.Header.Length = uint32(netlinkHeaderLen + len(data))
	return []netlink.Message{m}
}

func ack(req netlink.Message) netlink.Message { return errnoReply(req, 0, "", 0)[0] }

type attribute struct {
	number uint16
	value  any
}

func attrs(list ...attribute) []byte {
	ae := netlink.NewAttributeEncoder()
	for _, a := range list {
		switch v := a.value.(type) {
		case uint32:
			ae.Uint32(a.number, v)
		case uint64:
			ae.Uint64(a.number, v)
		case []byte:
			ae.Bytes(a.number, v)
		}
	}
	data, err := ae.Encode()
	if err != nil {
		panic(err)
	}
	return data
}
