package netdev

import (
	"errors"
	"fmt"
	"strings"

	"autotune/model"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrUnsupported says that this kernel lacks the family, the command or the attribute.
// Whether writing is impossible as well is told by [model.ErrReadOnly] beside
// it.
var ErrUnsupported = errors.New("not supported by this kernel")

// errWrongDevice: an ID that now belongs to another device.
var errWrongDevice = errors.New("reply is for another device")

// Error is a command that the kernel refused. [errors.Is] matches its errno,
// and the sentinels of package model that its meaning maps to.
type Error struct {
	// Op is the command with what it was for, for example "napi-set id 65".
	Op    string
	Errno unix.Errno
	// Extack is the kernel's own explanation, empty where it gave none.
	Extack string
	// Attribute names the attribute that the kernel refused, empty where it
	// did not say. The other attributes of the request were not applied
	// either: send them again without it.
	Attribute string
	// Meaning says what it means and what to do.
	Meaning string
	// kinds are the sentinels that it maps to.
	kinds []error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, errnoName(e.Errno))
	if e.Attribute != "" {
		fmt.Fprintf(&b, " on %s", e.Attribute)
	}
	if e.Extack != "" {
		fmt.Fprintf(&b, " (kernel: %q)", e.Extack)
	}
	if e.Meaning != "" {
		fmt.Fprintf(&b, ": %s", e.Meaning)
	}
	return b.String()
}

// Unwrap returns the errno and the sentinels.
func (e *Error) Unwrap() []error { return append([]error{e.Errno}, e.kinds...) }

func errnoName(errno unix.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// stage is which command failed, as far as the meaning of an errno depends on
// it.
type stage int

const (
	stageFamily stage = iota
	stageDump
	stageGet
	stageSet
)

// explain turns a failed exchange into an [Error]; errors without an errno
// (a closed socket, a timeout) are wrapped as they are.
func explain(op string, at stage, layout []sentAttribute, err error) error {
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%s: %w", op, err)
	}
	e := &Error{Op: op, Errno: errno}
	var opErr *netlink.OpError
	if errors.As(err, &opErr) {
		e.Extack = opErr.Message
		for _, sent := range layout {
			if opErr.Offset == sent.offset && sent.attr != attrNAPIID {
				e.Attribute = napiAttrName(sent.attr)
			}
		}
	}
	e.kinds, e.Meaning = meaning(at, errno, e.Attribute != "" || e.Extack != "")
	return e
}

// meaning is the table of what an errno says at which stage. refused tells
// that the kernel named an attribute or gave a reason, which for a set means
// that the request and not the NAPI is at fault.
func meaning(at stage, errno unix.Errno, refused bool) ([]error, string) {
	switch errno {
	case unix.EPERM, unix.EACCES:
		return []error{model.ErrReadOnly},
			"no CAP_NET_ADMIN over the network namespace; run as root, or observe only"
	case unix.EBUSY, unix.EAGAIN, unix.ENOBUFS, unix.EINTR:
		return []error{model.ErrBusy}, "the kernel is busy; it is tried again in the next window"
	case unix.ENODEV:
		return []error{model.ErrGone}, "the interface no longer exists"
	default: // what it means depends on the stage
	}
	switch at {
	case stageFamily:
		if errno == unix.ENOENT {
			return []error{ErrUnsupported, model.ErrReadOnly},
				"this kernel has no netdev family (it came with Linux 6.3); only the device-wide sysfs values exist"
		}
	case stageDump:
		if errno == unix.EOPNOTSUPP {
			return []error{ErrUnsupported, model.ErrReadOnly},
				"this kernel's netdev family lacks the command (it came with Linux 6.8); only the device-wide sysfs values exist"
		}
	case stageGet:
		switch errno {
		case unix.ENOENT, unix.EINVAL:
			return []error{model.ErrGone}, "the NAPI no longer exists, or is in another namespace; list them again"
		case unix.EOPNOTSUPP:
			return []error{ErrUnsupported, model.ErrReadOnly},
				"this kernel's netdev family lacks the command (it came with Linux 6.8)"
		default:
		}
	case stageSet:
		switch {
		case errno == unix.ENOENT, errno == unix.EINVAL && !refused:
			return []error{model.ErrGone}, "the NAPI no longer exists, or is in another namespace; list them again"
		case errno == unix.EINVAL:
			return []error{ErrUnsupported}, "this kernel refuses the attribute; the others can be set without it"
		case errno == unix.EOPNOTSUPP:
			return []error{ErrUnsupported, model.ErrReadOnly},
				"this kernel cannot set values per NAPI (napi-set came with Linux 6.13); only the device-wide sysfs values exist"
		case errno == unix.ERANGE:
			return []error{model.ErrOutOfBounds}, "the value is outside the kernel's own limit"
		}
	}
	return nil, ""
}
