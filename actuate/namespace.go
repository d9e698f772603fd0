package actuate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// netnsDir is where named namespaces are mounted (ip-netns(8)).
const netnsDir = "/run/netns"

// NamespaceRef is a way to a network namespace. At most one field is set; the
// zero value is the namespace of the caller.
type NamespaceRef struct {
	// Name is a name under /run/netns.
	Name string `json:"name"`
	// Path is any file that is a namespace.
	Path string `json:"path"`
	// PID is a process in the namespace.
	PID int `json:"pid"`
}

// ParseNamespace reads the command line's form: a name, a path (anything with
// a slash), or empty for the current namespace.
func ParseNamespace(s string) NamespaceRef {
	if strings.Contains(s, "/") {
		return NamespaceRef{Path: s}
	}
	return NamespaceRef{Name: s}
}

func (r NamespaceRef) String() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.Path != "":
		return r.Path
	case r.PID != 0:
		return fmt.Sprintf("of process %d", r.PID)
	default:
		return "(current)"
	}
}

// file is the namespace's file. The calling thread's and not the process's:
// another thread may have entered another namespace for a moment.
func (r NamespaceRef) file() string {
	switch {
	case r.Name != "":
		return filepath.Join(netnsDir, r.Name)
	case r.Path != "":
		return r.Path
	case r.PID != 0:
		return filepath.Join("/proc", strconv.Itoa(r.PID), "ns/net")
	default:
		return "/proc/thread-self/ns/net"
	}
}

// Namespace is an open network namespace. While it is open the namespace
// exists, even after its name was deleted: see [Namespace.Alive].
type Namespace struct {
	ref   NamespaceRef
	inode uint64
	f     *os.File
}

// OpenNamespace opens the namespace that ref leads to; [model.ErrGone] where
// there is none.
func OpenNamespace(ref NamespaceRef) (*Namespace, error) {
	f, err := os.Open(ref.file())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("network namespace %v: no %s (`ip netns list` shows the named ones): %w", ref, ref.file(), model.ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %v: %w", ref, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return nil, errors.Join(fmt.Errorf("statfs %s: %w", ref.file(), err), f.Close())
	}
	if fs.Type != unix.NSFS_MAGIC {
		// What is left of a name whose mount is gone is an empty file.
		return nil, errors.Join(fmt.Errorf("network namespace %v: %s is not a namespace: %w", ref, ref.file(), model.ErrGone), f.Close())
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return nil, errors.Join(fmt.Errorf("network namespace %v: %s is a namespace of another kind", ref, ref.file()), f.Close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat %s: %w", ref.file(), err), f.Close())
	}
	return &Namespace{ref: ref, inode: st.Ino, f: f}, nil
}

// Ref returns how the namespace was opened.
func (n *Namespace) Ref() NamespaceRef { return n.ref }

// Inode returns the namespace's inode number, which identifies it until it is
// gone; the number may be used again later.
func (n *Namespace) Inode() uint64 { return n.inode }

// Alive returns [model.ErrGone] once the name, path or process that the
// namespace was opened by does not lead to it any more.
func (n *Namespace) Alive() error {
	if n.ref == (NamespaceRef{}) {
		return nil
	}
	var st unix.Stat_t
	err := unix.Stat(n.ref.file(), &st)
	if err == nil && st.Ino == n.inode {
		return nil
	}
	return fmt.Errorf("network namespace %v was deleted or replaced: %w", n.ref, model.ErrGone)
}

// Current reports whether it is the calling process's own namespace.
func (n *Namespace) Current() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &st) == nil && st.Ino == n.inode
}

// Do runs fn on an OS thread of its own inside the namespace. Sockets that fn
// opens stay in the namespace; the thread ends with fn.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if n.Current() {
			// Already here, and entering it would ask for CAP_SYS_ADMIN.
			return fn()
		}
		if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %v: %w", n.ref, err)
		}
		return fn()
	})
}

// Close lets go of the namespace.
func (n *Namespace) Close() error { return n.f.Close() }

// onThread runs fn on an OS thread that is thrown away afterwards, so that
// whatever fn did to the thread's namespaces ends with it.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread is never thrown away, and /proc/self is its
			// view: keep it busy here while another thread does the work.
			done <- onThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}
