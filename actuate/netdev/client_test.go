package netdev

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func ptr[T any](v T) *T { return &v }

func TestDumpsComeInAnyOrderAndUnknownAttributesAreIgnored(t *testing.T) {
	c := testClient(t, func(req netlink.Message, command uint8, data []byte) ([]netlink.Message, error) {
		if command != cmdNAPIGet || req.Header.Flags != netlink.Request|netlink.Dump {
			t.Errorf("command %d flags %v, want %d and request|dump", command, req.Header.Flags, cmdNAPIGet)
		}
		if diff := cmp.Diff(attrs(attribute{attrNAPIIfindex, uint32(7)}), data); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		return multipart(req, 0,
			attrs(attribute{attrNAPIID, uint32(66)}, attribute{99, []byte("abc")}, attribute{attrNAPIIfindex, uint32(7)}),
			attrs(attribute{attrNAPIIfindex, uint32(7)}, attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIThreaded, uint32(1)}),
			attrs(attribute{attrNAPIIfindex, uint32(7)}, attribute{attrNAPIID, uint32(67)}, attribute{attrNAPIGROFlushTimeout, uint64(5e9)}),
		)
	})
	got, err := c.NAPIs(7)
	if err != nil {
		t.Fatal(err)
	}
	want := []NAPI{
		{ID: 66, Ifindex: 7},
		{ID: 65, Ifindex: 7, Threaded: ptr(uint32(1))},
		{ID: 67, Ifindex: 7, GROFlushTimeout: ptr(5 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEmptyDumpIsNoError(t *testing.T) {
	c := testClient(t, func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) { return multipart(req, 0) })
	got, err := c.NAPIs(2)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want nothing", got, err)
	}
}

func TestInterruptedDumpIsTakenAgain(t *testing.T) {
	for _, tt := range []struct {
		name        string
		interrupted int
		want        error
	}{
		{"once interrupted", 1, nil},
		{"interrupted as often as it is tried", maxAttempts, model.ErrBusy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			c := testClient(t, func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
				calls++
				flags := netlink.DumpInterrupted
				if calls > tt.interrupted {
					flags = 0
				}
				return multipart(req, flags, attrs(attribute{attrNAPIIfindex, uint32(7)}, attribute{attrNAPIID, uint32(calls)}))
			})
			got, err := c.NAPIs(7)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if tt.want == nil && (len(got) != 1 || got[0].ID != 2) {
				t.Errorf("got %v, want the second dump", got)
			}
		})
	}
}

func TestAcknowledgedSetThatAlsoRepliesLeavesNothingBehind(t *testing.T) {
	c := testClient(t, func(req netlink.Message, command uint8, _ []byte) ([]netlink.Message, error) {
		if command == cmdNAPISet {
			if req.Header.Flags != netlink.Request|netlink.Acknowledge {
				t.Errorf("flags %v", req.Header.Flags)
			}
			// The socket then holds the reply and, after it, the ack.
			return []netlink.Message{reply(req, 0, nil), ack(req)}, nil
		}
		return []netlink.Message{reply(req, 0, attrs(attribute{attrNAPIIfindex, uint32(2)}, attribute{attrNAPIID, uint32(65)}))}, nil
	})
	if err := c.SetNAPI(65, NAPIUpdate{DeferHardIRQs: ptr(uint32(1))}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NAPI(2, 65); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestMessagesOfEarlierRequestsAreSkipped(t *testing.T) {
	c := testClient(t, func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
		late := req
		late.Header.Sequence--
		return []netlink.Message{
			reply(late, 0, attrs(attribute{attrNAPIIfindex, uint32(9)}, attribute{attrNAPIID, uint32(1)})),
			ack(late),
			reply(req, 0, attrs(attribute{attrNAPIIfindex, uint32(2)}, attribute{attrNAPIID, uint32(65)})),
		}, nil
	})
	got, err := c.NAPI(2, 65)
	if diff := cmp.Diff(NAPI{ID: 65, Ifindex: 2}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestSetSendsOnlyWhatIsSetAndAsShortAsItFits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		update NAPIUpdate
		want   []byte
	}{
		{"flush only, 4 bytes", NAPIUpdate{GROFlushTimeout: ptr(200 * time.Microsecond)},
			attrs(attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIGROFlushTimeout, uint32(200000)})},
		{"the last that fits 4 bytes", NAPIUpdate{GROFlushTimeout: ptr(time.Duration(1<<32 - 1))},
			attrs(attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIGROFlushTimeout, uint32(1<<32 - 1)})},
		{"the first that needs 8 bytes", NAPIUpdate{IRQSuspendTimeout: ptr(time.Duration(1 << 32))},
			attrs(attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIIRQSuspendTimeout, uint64(1 << 32)})},
		{"zero is a value", NAPIUpdate{DeferHardIRQs: ptr(uint32(0))},
			attrs(attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIDeferHardIRQs, uint32(0)})},
		{"the largest defer count", NAPIUpdate{DeferHardIRQs: ptr(uint32(1<<31 - 1))},
			attrs(attribute{attrNAPIID, uint32(65)}, attribute{attrNAPIDeferHardIRQs, uint32(1<<31 - 1)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent []byte
			c := testClient(t, func(req netlink.Message, _ uint8, data []byte) ([]netlink.Message, error) {
				sent = data
				return []netlink.Message{ack(req)}, nil
			})
			if err := c.SetNAPI(65, tt.update); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, sent); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestValuesBeyondTheKernelsLimitAreRefusedUnsent(t *testing.T) {
	c := testClient(t, func(netlink.Message, uint8, []byte) ([]netlink.Message, error) {
		t.Error("a request was sent")
		return nil, unix.EIO
	})
	for _, u := range []NAPIUpdate{
		{DeferHardIRQs: ptr(uint32(1 << 31))},
		{DeferHardIRQs: ptr(^uint32(0))},
		{GROFlushTimeout: ptr(time.Duration(-1))},
		{IRQSuspendTimeout: ptr(time.Duration(-1))},
	} {
		err := c.SetNAPI(65, u)
		if !errors.Is(err, model.ErrOutOfBounds) || !errors.Is(err, unix.ERANGE) {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

func TestRepliesForAnotherDeviceAreRefused(t *testing.T) {
	c := testClient(t, func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
		data := attrs(attribute{attrNAPIIfindex, uint32(9)}, attribute{attrNAPIID, uint32(65)},
			attribute{attrQueueType, uint32(0)})
		if req.Header.Flags&netlink.Dump == netlink.Dump {
			return multipart(req, 0, data)
		}
		return []netlink.Message{reply(req, 0, data)}, nil
	})
	if _, err := c.NAPI(2, 65); !errors.Is(err, model.ErrGone) {
		t.Errorf("napi-get by id: %v, want %v", err, model.ErrGone)
	}
	if _, err := c.NAPIs(2); !errors.Is(err, errWrongDevice) {
		t.Errorf("napi-get dump: %v, want %v", err, errWrongDevice)
	}
	if _, err := c.Queues(2); !errors.Is(err, errWrongDevice) {
		t.Errorf("queue-get dump: %v, want %v", err, errWrongDevice)
	}
}

func TestQueuesAndDevices(t *testing.T) {
	c := testClient(t, func(req netlink.Message, command uint8, _ []byte) ([]netlink.Message, error) {
		if command == cmdDevGet {
			return multipart(req, 0, attrs(attribute{attrDevIfindex, uint32(2)}, attribute{attrDevXDPFeatures, uint64(3)}))
		}
		return multipart(req, 0,
			attrs(attribute{attrQueueID, uint32(0)}, attribute{attrQueueIfindex, uint32(2)}, attribute{attrQueueType, uint32(1)}),
			attrs(attribute{attrQueueID, uint32(0)}, attribute{attrQueueIfindex, uint32(2)}, attribute{attrQueueType, uint32(0)}, attribute{attrQueueNAPIID, uint32(8193)}))
	})
	queues, err := c.Queues(2)
	want := []Queue{{ID: 0, Ifindex: 2, Type: QueueTx}, {ID: 0, Ifindex: 2, Type: QueueRx, NAPIID: ptr(uint32(8193))}}
	if diff := cmp.Diff(want, queues); err != nil || diff != "" {
		t.Errorf("queues: %v (-want +got):\n%s", err, diff)
	}
	devices, err := c.Devices()
	if diff := cmp.Diff([]Device{{Ifindex: 2, XDPFeatures: ptr(uint64(3))}}, devices); err != nil || diff != "" {
		t.Errorf("devices: %v (-want +got):\n%s", err, diff)
	}
}

// TestErrnoMatrix goes through the field's list of which errno means what at
// which stage.
func TestErrnoMatrix(t *testing.T) {
	data, err := os.ReadFile("testdata/errno_matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Op    string  `json:"op"`
		Errno *string `json:"errno"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	errno := func(e unix.Errno, text string, offset int) kernelFunc {
		return func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
			return errnoReply(req, e, text, offset), nil
		}
	}
	set := func(u NAPIUpdate) func(*Client) error { return func(c *Client) error { return c.SetNAPI(65, u) } }
	get := func(c *Client) error { _, err := c.NAPI(2, 65); return err }
	dumpAll := func(c *Client) error { _, err := c.NAPIs(2); return err }
	one := NAPIUpdate{DeferHardIRQs: ptr(uint32(1))}
	type check struct {
		kernel kernelFunc
		do     func(*Client) error
		is     []error
		isNot  []error
		text   string
	}
	checks := map[string][]check{
		"CTRL_GETFAMILY netdev ENOENT": {{kernel: nil, is: []error{ErrUnsupported, model.ErrReadOnly, unix.ENOENT}, text: "6.3"}},
		"napi-get dump EOPNOTSUPP":     {{kernel: errno(unix.EOPNOTSUPP, "", 0), do: dumpAll, is: []error{ErrUnsupported, model.ErrReadOnly}, isNot: []error{model.ErrGone}, text: "6.8"}},
		"napi-get reply without attrs 5/6 ": {{
			kernel: func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
				return multipart(req, 0, attrs(attribute{attrNAPIIfindex, uint32(2)}, attribute{attrNAPIID, uint32(65)}))
			},
			do: func(c *Client) error {
				napis, err := c.NAPIs(2)
				if err == nil && len(napis) == 1 {
					if _, complete := napis[0].Settings(); complete {
						t.Error("a get-only kernel passes for one that can be tuned")
					}
				}
				return err
			},
		}},
		"napi-get id=X EINVAL or ENOENT (differs by stable level)": {
			{kernel: errno(unix.EINVAL, "", 0), do: get, is: []error{model.ErrGone, unix.EINVAL}},
			{kernel: errno(unix.ENOENT, "", 20), do: get, is: []error{model.ErrGone, unix.ENOENT}, isNot: []error{ErrUnsupported}},
		},
		"napi-set EOPNOTSUPP": {{kernel: errno(unix.EOPNOTSUPP, "", 0), do: set(one), is: []error{ErrUnsupported, model.ErrReadOnly}, text: "6.13"}},
		"napi-set with newer attr (e.g. threaded=8) EINVAL + extack": {{
			// The defer count ends 16 bytes after the headers, where the
			// suspend timeout begins.
			kernel: errno(unix.EINVAL, "Unknown attribute type", 36),
			do: func(c *Client) error {
				u := NAPIUpdate{DeferHardIRQs: ptr(uint32(1)), IRQSuspendTimeout: ptr(time.Millisecond)}
				err := c.SetNAPI(65, u)
				var refused *Error
				if !errors.As(err, &refused) || refused.Attribute != AttrIRQSuspendTimeout {
					t.Errorf("%v does not name the attribute", err)
				} else if diff := cmp.Diff(NAPIUpdate{DeferHardIRQs: u.DeferHardIRQs}, u.Without(refused.Attribute)); diff != "" {
					t.Errorf("without it (-want +got):\n%s", diff)
				}
				return err
			},
			is: []error{ErrUnsupported}, isNot: []error{model.ErrGone, model.ErrReadOnly}, text: "Unknown attribute type",
		}},
		"napi-set EPERM": {{kernel: errno(unix.EPERM, "", 0), do: set(one), is: []error{model.ErrReadOnly}, isNot: []error{ErrUnsupported}, text: "CAP_NET_ADMIN"}},
		"napi-set defer-hard-irqs > 2147483647 ERANGE": {
			{kernel: func(netlink.Message, uint8, []byte) ([]netlink.Message, error) {
				t.Error("sent")
				return nil, unix.EIO
			}, do: set(NAPIUpdate{DeferHardIRQs: ptr(uint32(1 << 31))}), is: []error{unix.ERANGE, model.ErrOutOfBounds}},
			{kernel: errno(unix.ERANGE, "integer out of range", 28), do: set(one), is: []error{unix.ERANGE, model.ErrOutOfBounds}},
		},
		"napi-get dump on a down link ": {{
			kernel: func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) { return multipart(req, 0) },
			do:     dumpAll,
		}},
	}
	for _, row := range rows {
		name := row.Op + " "
		if row.Errno != nil {
			name += *row.Errno
		}
		t.Run(name, func(t *testing.T) {
			list, ok := checks[name]
			if !ok {
				t.Fatal("no test for this row")
			}
			for _, want := range list {
				c, err := dialTest(want.kernel)
				if err == nil && want.do != nil {
					err = want.do(c)
				}
				if (err != nil) != (len(want.is) > 0) {
					t.Fatalf("error %v, want it to be %v", err, want.is)
				}
				for _, target := range want.is {
					if !errors.Is(err, target) {
						t.Errorf("%q is not %q", err, target)
					}
				}
				for _, target := range want.isNot {
					if errors.Is(err, target) {
						t.Errorf("%q is %q", err, target)
					}
				}
				if err != nil && !strings.Contains(err.Error(), want.text) {
					t.Errorf("%q does not say %q", err, want.text)
				}
			}
		})
	}
}

func TestOtherErrnos(t *testing.T) {
	for _, tt := range []struct {
		errno unix.Errno
		want  error
	}{
		{unix.EBUSY, model.ErrBusy}, {unix.EAGAIN, model.ErrBusy}, {unix.ENODEV, model.ErrGone}, {unix.EACCES, model.ErrReadOnly},
	} {
		c := testClient(t, func(req netlink.Message, _ uint8, _ []byte) ([]netlink.Message, error) {
			return errnoReply(req, tt.errno, "", 0), nil
		})
		if err := c.SetNAPI(1, NAPIUpdate{DeferHardIRQs: ptr(uint32(1))}); !errors.Is(err, tt.want) || !errors.Is(err, tt.errno) {
			t.Errorf("napi-set %v: %v", tt.errno, err)
		}
		if _, err := c.NAPIs(1); !errors.Is(err, tt.want) {
			t.Errorf("napi-get dump %v: %v", tt.errno, err)
		}
	}
}
