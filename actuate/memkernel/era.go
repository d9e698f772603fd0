package memkernel

import (
	"fmt"

	"autotune/actuate/netdev"
	"autotune/model"

	"golang.org/x/sys/unix"
)

// Era is a generation of kernels, by what the netdev family can do.
type Era int

// The eras, the latest first.
const (
	// EraSet sets each NAPI instance on its own (Linux 6.13).
	EraSet Era = iota
	// EraList lists NAPI instances, without values (6.8 to 6.12).
	EraList
	// EraNone lists none: the family lacks the commands (6.3 to 6.7), or is
	// not there.
	EraNone
)

func (e Era) lists(op string) error {
	if e <= EraList {
		return nil
	}
	return unsupported(op)
}

func (e Era) sets() error {
	if e == EraSet {
		return nil
	}
	return unsupported("napi-set")
}

func unsupported(op string) error {
	return fmt.Errorf("%s: %w: %w (%w)", op, netdev.ErrUnsupported, model.ErrReadOnly, unix.EOPNOTSUPP)
}
