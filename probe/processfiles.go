package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iterTask is union bpf_iter_link_info of include/uapi/linux/bpf.h for an
// iterator over tasks: all threads of one process where pid is set.
type iterTask struct{ tid, pid, pidfd, _ uint32 }

// filesOf opens an iterator over the files of one process. The error wraps
// [errors.ErrUnsupported] before Linux 6.1, which can only iterate over all. The
// link is made here because cilium/ebpf (v0.22) cannot restrict one.
func (c *contexts) filesOf(pid uint32) (io.ReadCloser, error) {
	restriction := &iterTask{pid: pid}
	// The kernel is given its address as a number, which must not change.
	var pinned runtime.Pinner
	pinned.Pin(restriction)
	defer pinned.Unpin()
	attach := struct {
		program, target, kind, flags uint32
		info                         uint64
		infoSize, _                  uint32
	}{
		program: uint32(c.program.FD()), kind: unix.BPF_TRACE_ITER,
		info: uint64(uintptr(unsafe.Pointer(restriction))), infoSize: uint32(unsafe.Sizeof(*restriction)),
	}
	lnk, err := bpfCall(unix.BPF_LINK_CREATE, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("iterate over the files of process %d: %w (%w)", pid, err, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("iterate over the files of process %d: %w", pid, err)
	}
	// An open iterator keeps its link.
	defer unix.Close(lnk)
	create := struct{ link, flags uint32 }{link: uint32(lnk)}
	fd, err := bpfCall(unix.BPF_ITER_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, fmt.Errorf("iterate over the files of process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "bpf_iter"), nil
}

// bpfCall makes a call of bpf(2) that returns a descriptor.
func bpfCall(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}
