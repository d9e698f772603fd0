//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// runDir is where iproute2 and autotune look for named network namespaces.
const runDir = "/run/netns"

// Namespace is one side of a [Bed]. It is valid until the bed is closed.
type Namespace struct {
	// Name is what tools take as a namespace's name, and Path the file that
	// it is bound to under /run/netns.
	Name, Path string
	// Inode identifies the namespace, as in /proc/PID/ns/net.
	Inode uint64
	// Ifname and Ifindex are those of the veth end inside.
	Ifname  string
	Ifindex int
	// Addr is the IPv4 address of the veth end.
	Addr netip.Addr
	// HardwareAddr is its MAC address.
	HardwareAddr net.HardwareAddr

	file *os.File

	mu       sync.Mutex
	closed   bool
	children map[int]*os.Process
	// threads holds the threads that started children, each until its child
	// has ended.
	threads sync.WaitGroup
}

// newNamespace makes an empty network namespace and binds it to a name.
func newNamespace(name string) (*Namespace, error) {
	ns := &Namespace{
		Name:     name,
		Path:     filepath.Join(runDir, name),
		children: map[int]*os.Process{},
	}
	if err := provideRunDir(); err != nil {
		return nil, fmt.Errorf("make the directory of named namespaces: %w", err)
	}
	anchor, err := os.OpenFile(ns.Path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, fmt.Errorf("make the file of namespace %s: %w", name, err)
	}
	if err := anchor.Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the file of namespace %s: %w", name, err), unbind(ns.Path))
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace %s: %w", name, err)
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(own, ns.Path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind network namespace %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, unbind(ns.Path))
	}
	ns.file, err = os.Open(ns.Path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %s: %w", name, err), unbind(ns.Path))
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(ns.file.Fd()), &stat); err != nil {
		return nil, errors.Join(fmt.Errorf("identify network namespace %s: %w", name, err), ns.file.Close(), unbind(ns.Path))
	}
	ns.Inode = stat.Ino
	return ns, nil
}

// provideRunDir makes the directory a mount of its own, shared with other mount
// namespaces, as ip-netns(8) does. Otherwise the next `ip netns add` would do
// it, and hide the mounts that are there already: they could neither be found
// nor removed from then on.
func provideRunDir() error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", runDir, "", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Not a mount yet.
	if err := unix.Mount(runDir, runDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return share()
}

// unbind removes a namespace's name. What is left of an earlier, interrupted
// removal is no error.
func unbind(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err == nil {
			continue // in case it was bound more than once
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unbind network namespace %s: %w", path, err)
		}
		break
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the name of network namespace: %w", err)
	}
	return nil
}

// Do runs fn inside the namespace and returns its error. It runs on a thread
// of its own that is discarded: sockets and files that fn opens belong to the
// namespace (as do /proc/sys/net and /proc/thread-self/net), but goroutines
// that fn starts do not. /sys/class/net still shows the host; see
// [Namespace.DoWithSysfs].
func (ns *Namespace) Do(fn func() error) error { return onThreadIn(ns.file, fn) }

// DoWithSysfs is [Namespace.Do] with /sys mounted anew for the thread, in a
// mount namespace of its own, so that /sys/class/net is the namespace's.
func (ns *Namespace) DoWithSysfs(fn func() error) error {
	return ns.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace for sysfs: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("detach the mount namespace for sysfs: %w", err)
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mount sysfs of namespace %s: %w", ns.Name, err)
		}
		return fn()
	})
}

// Start starts cmd inside the namespace. As after [exec.Cmd.Start], the caller
// waits for it. The process is killed when the bed is closed, and by the
// kernel when the process that owns the bed dies.
func (ns *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	// The signal is tied to the thread that forks, not to the process, so
	// that thread stays until the child has ended.
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	started := make(chan error, 1)
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.closed {
		return fmt.Errorf("start %s: network namespace %s is closed", cmd.Path, ns.Name)
	}
	ns.threads.Go(func() {
		err := onThreadIn(ns.file, func() error {
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start %s in network namespace %s: %w", cmd.Path, ns.Name, err)
			}
			pid := cmd.Process.Pid
			ns.children[pid] = cmd.Process // Start still holds the lock
			started <- nil
			awaitExit(pid)
			ns.mu.Lock()
			defer ns.mu.Unlock()
			delete(ns.children, pid)
			return nil
		})
		if err != nil {
			started <- err
		}
	})
	return <-started
}

// awaitExit returns once the child has ended, and leaves its status to
// whoever waits for it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// close kills what was started inside, waits for it and removes the name.
func (ns *Namespace) close() error {
	if ns == nil {
		return nil
	}
	ns.mu.Lock()
	ns.closed = true
	var errs []error
	for pid, process := range ns.children {
		if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("kill process %d in namespace %s: %w", pid, ns.Name, err))
		}
	}
	ns.mu.Unlock()
	ns.threads.Wait()
	errs = append(errs, unbind(ns.Path), ns.file.Close())
	return errors.Join(errs...)
}
