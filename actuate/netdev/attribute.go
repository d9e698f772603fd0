package netdev

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/mdlayher/netlink"
)

// Sizes that extack offsets count: struct nlmsghdr, struct genlmsghdr and
// struct nlattr.
const (
	netlinkHeaderLen   = 16
	genlHeaderLen      = 4
	attributeHeaderLen = 4
)

// sentAttribute is where an attribute begins in a request.
type sentAttribute struct {
	attr   uint16
	offset int
}

// AttributeError is an attribute of a reply that could not be decoded.
type AttributeError struct {
	// Message is the kind of reply ("napi"), Attribute the attribute's number
	// in it, Name its name in the specification and Len its length in bytes.
	Message   string
	Attribute uint16
	Name      string
	Len       int
	Err       error
}

func (e *AttributeError) Error() string {
	return fmt.Sprintf("%s attribute %d (%s) of length %d: %v", e.Message, e.Attribute, e.Name, e.Len, e.Err)
}

func (e *AttributeError) Unwrap() error { return e.Err }

// decodeAttributes calls decode for each attribute that has a name; newer
// kernels send others, which are skipped.
func decodeAttributes(data []byte, message string, nameOf func(uint16) string, decode func(uint16, []byte) error) error {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return fmt.Errorf("%s reply: %w", message, err)
	}
	for ad.Next() {
		name := nameOf(ad.Type())
		if name == "" {
			continue
		}
		value := ad.Bytes()
		if err := decode(ad.Type(), value); err != nil {
			return &AttributeError{Message: message, Attribute: ad.Type(), Name: name, Len: len(value), Err: err}
		}
	}
	if err := ad.Err(); err != nil {
		return fmt.Errorf("%s reply: %w", message, err)
	}
	return nil
}

func fixed32(value []byte) (uint32, error) {
	if len(value) != 4 {
		return 0, fmt.Errorf("want 4 bytes")
	}
	return binary.NativeEndian.Uint32(value), nil
}

func pointer32(field **uint32, value []byte) error {
	v, err := fixed32(value)
	if err != nil {
		return err
	}
	*field = &v
	return nil
}

// decodeUint decodes NLA_UINT (include/net/netlink.h, nla_put_uint): 4 bytes
// where the value fits, else 8.
func decodeUint(value []byte) (uint64, error) {
	switch len(value) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(value)), nil
	case 8:
		return binary.NativeEndian.Uint64(value), nil
	default:
		return 0, fmt.Errorf("want 4 or 8 bytes")
	}
}

func pointerTimeout(field **time.Duration, value []byte) error {
	v, err := decodeUint(value)
	if err != nil {
		return err
	}
	timeout := time.Duration(min(v, uint64(MaxTimeout)))
	*field = &timeout
	return nil
}

func uintLen(v uint64) int {
	if v <= math.MaxUint32 {
		return 4
	}
	return 8
}

func putUint(ae *netlink.AttributeEncoder, attr uint16, v uint64) {
	if uintLen(v) == 4 {
		ae.Uint32(attr, uint32(v))
		return
	}
	ae.Uint64(attr, v)
}
