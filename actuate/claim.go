package actuate

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// claimName is the abstract socket address by which one run owns a device.
func claimName(ifindex int) string { return fmt.Sprintf("@autotune/%d", ifindex) }

// claimBacklog is how many may have asked who owns the device: nobody takes
// their connections off the queue.
const claimBacklog = 128

// claim is a bound socket. It goes with the process, whatever ends it.
type claim struct{ fd int }

func (c claim) Close() error { return unix.Close(c.fd) }

// Claim implements [Kernel]. Abstract addresses belong to the network
// namespace, as the device does: unlike a lock file it is seen from every
// mount namespace that a process which could tune the device may be in.
func (k *liveKernel) Claim(ifindex int) (io.Closer, error) {
	var held claim
	err := k.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a socket to own the device by: %w", err)
		}
		address := &unix.SockaddrUnix{Name: claimName(ifindex)}
		err = unix.Bind(fd, address)
		if errors.Is(err, unix.EADDRINUSE) {
			pid := claimant(address)
			return errors.Join(&LockedError{
				What: fmt.Sprintf("interface %d", ifindex), PID: pid,
				Path: fmt.Sprintf("socket %s of network namespace %v", address.Name, k.ns.Ref()),
			}, unix.Close(fd))
		}
		// Whoever finds it taken asks it who has it.
		if err == nil {
			err = unix.Listen(fd, claimBacklog)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("bind socket %s to own the device by: %w", address.Name, err), unix.Close(fd))
		}
		held.fd = fd
		return nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// claimant returns the process that listens on an address, as this PID
// namespace knows it; 0 where it does not.
func claimant(address *unix.SockaddrUnix) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, address); err != nil {
		return 0
	}
	owner, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(owner.Pid)
}

// claim adds the claim to a device lock that is held. A run that meets its own
// has it already.
func (l *locks) claim(kernel Kernel, ifindex int, ifname string) error {
	held, err := l.device(kernel.Inode(), ifindex, ifname)
	if err != nil || held.socket != nil {
		return err
	}
	held.socket, err = kernel.Claim(ifindex)
	var locked *LockedError
	if errors.As(err, &locked) {
		locked.What = "interface " + ifname
		return locked
	}
	return err
}
