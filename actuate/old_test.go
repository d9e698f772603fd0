package actuate_test

import (
	"fmt"

	"autotune/actuate"
	"autotune/actuate/netdev"
	"autotune/model"

	"golang.org/x/sys/unix"
)

// old is this machine with a kernel that cannot set NAPI instances, as before
// Linux 6.13: it answers as those do, and sysfs is real.
type old struct {
	actuate.Live
	// lists tells that napi-get lists instances, without values (6.8 to 6.12).
	lists bool
}

func (o old) Open(ref actuate.NamespaceRef) (actuate.Kernel, error) {
	k, err := o.Live.Open(ref)
	if err != nil {
		return nil, err
	}
	return oldKernel{k, o.lists}, nil
}

func (o old) Find(inode uint64, ref actuate.NamespaceRef) (actuate.Kernel, error) {
	k, err := o.Live.Find(inode, ref)
	if err != nil {
		return nil, err
	}
	return oldKernel{k, o.lists}, nil
}

type oldKernel struct {
	actuate.Kernel
	lists bool
}

func lacks(op string) error {
	return fmt.Errorf("%s: %w: %w (%w)", op, netdev.ErrUnsupported, model.ErrReadOnly, unix.EOPNOTSUPP)
}

func (k oldKernel) CheckSet() error { return lacks("napi-set") }

func (k oldKernel) SetNAPI(uint32, netdev.NAPIUpdate) error { return lacks("napi-set") }

func (k oldKernel) Queues(ifindex int) ([]netdev.Queue, error) {
	if !k.lists {
		return nil, lacks("queue-get")
	}
	return k.Kernel.Queues(ifindex)
}

func (k oldKernel) NAPIs(ifindex int) ([]netdev.NAPI, error) {
	if !k.lists {
		return nil, lacks("napi-get")
	}
	napis, err := k.Kernel.NAPIs(ifindex)
	for i := range napis {
		napis[i] = bare(napis[i])
	}
	return napis, err
}

func (k oldKernel) NAPI(ifindex int, id uint32) (netdev.NAPI, error) {
	if !k.lists {
		return netdev.NAPI{}, lacks("napi-get")
	}
	n, err := k.Kernel.NAPI(ifindex, id)
	return bare(n), err
}

func bare(n netdev.NAPI) netdev.NAPI {
	return netdev.NAPI{ID: n.ID, Ifindex: n.Ifindex, IRQ: n.IRQ, PID: n.PID}
}
