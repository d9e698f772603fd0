package actuate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"autotune/actuate/busypoll"

	"golang.org/x/sys/unix"
)

// DefaultRunDir is where the device locks live; it is empty after a boot.
const DefaultRunDir = "/run/autotune"

// stateLockFile guards the state directory itself.
const stateLockFile = "lock"

// maxLockContent is more than any owner record; a page, so that one write is
// not torn by a kill.
const maxLockContent = 4096

// Owner is what a lock says about the run that holds it, or held it when it
// crashed.
type Owner struct {
	Version  int    `json:"version"`
	PID      int    `json:"pid"`
	StateDir string `json:"state_dir"`
	BootID   string `json:"boot_id"`
	// Netns is the namespace's inode number, which the kernel uses again, as
	// it does interface indexes: only with the namespace's cookie and the
	// hardware address they tell one device from a later one.
	Netns   uint64 `json:"netns"`
	Cookie  uint64 `json:"cookie"`
	Ifname  string `json:"ifname"`
	Ifindex int    `json:"ifindex"`
	MAC     string `json:"mac"`
	// Process is set where the lock is of an application instead.
	Process *busypoll.Handle `json:"process"`
}

// of reports whether the record is about this very device. Numbers of
// namespaces and devices are used again; a cookie never is, and name and
// address together rarely.
func (o *Owner) of(kernel Kernel, link Link, bootID string) bool {
	return o.BootID == bootID && namespaceIdentity{Inode: o.Netns, Cookie: o.Cookie}.is(kernel.Inode(), kernel.Cookie()) &&
		o.Ifindex == link.Index && sameDevice(o.Ifname, o.MAC, link)
}

// LockedError is a device or state directory that a live run owns.
type LockedError struct {
	// What is owned, for example "interface eth0".
	What string
	Path string
	// PID is the owner's process ID, 0 where it could not be found out.
	PID int
	// StateDir is the owner's, empty where it is not known.
	StateDir string
}

func (e *LockedError) Error() string {
	owner := "another run"
	if e.PID != 0 {
		owner = fmt.Sprintf("process %d", e.PID)
	}
	if e.StateDir != "" {
		owner += " (state in " + e.StateDir + ")"
	}
	return fmt.Sprintf("%s is owned by %s, which is still running: stop it first (lock %s)", e.What, owner, e.Path)
}

// lock is a held flock(2). The kernel releases it with the process; its
// content outlives a crash and tells the next run what to put back.
type lock struct {
	path string
	f    *os.File
	// socket is beside the file of a device whose namespace is open: see
	// [locks.claim].
	socket io.Closer
}

// errStaleLock: the file was removed by its owner between opening and locking.
var errStaleLock = errors.New("lock file was replaced")

// acquire takes the lock, or returns a [LockedError].
func acquire(path, what string) (*lock, error) {
	for range 16 {
		l, err := tryAcquire(path, what)
		if !errors.Is(err, errStaleLock) {
			return l, err
		}
	}
	return nil, fmt.Errorf("lock %s: %w again and again", path, errStaleLock)
}

func tryAcquire(path, what string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: flock %s: %w", what, path, err)
		}
		locked := &LockedError{What: what, Path: path}
		// A line of /proc/locks can be missed while others come and go.
		for try := 0; try < 5 && locked.PID == 0; try++ {
			locked.PID = holder(f)
		}
		if owner, err := readOwner(f); err == nil && owner != nil && (locked.PID == 0 || owner.PID == locked.PID) {
			locked.PID, locked.StateDir = owner.PID, owner.StateDir
		}
		return nil, locked
	}
	var held, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &held); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", what, err), f.Close())
	}
	if unix.Stat(path, &named) != nil || held.Ino != named.Ino || held.Dev != named.Dev {
		return nil, errors.Join(errStaleLock, f.Close())
	}
	return &lock{path: path, f: f}, nil
}

// holder finds who holds the flock on f in /proc/locks; 0 when it is not
// listed, for example because it is in another PID namespace.
func holder(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer func() { _ = locks.Close() }()
	return parseLocks(locks, fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino))
}

// parseLocks reads lines of fs/locks.c, lock_get_status:
// "1: FLOCK  ADVISORY  WRITE 708 08:01:271 0 EOF".
func parseLocks(r io.Reader, file string) int {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// leftover returns the record of a run that ended without cleaning up, or nil.
func (l *lock) leftover() (*Owner, error) {
	owner, err := readOwner(l.f)
	if err != nil {
		return nil, fmt.Errorf("lock %s was left by a crashed run and does not say which: %w; "+
			"run `autotune restore --state DIR` with that run's state directory, then delete the file", l.path, err)
	}
	return owner, nil
}

func readOwner(f *os.File) (*Owner, error) {
	data := make([]byte, maxLockContent)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	var owner Owner
	if err := json.Unmarshal(data[:n], &owner); err != nil {
		return nil, err
	}
	if owner.Version != stateVersion || owner.StateDir == "" {
		return nil, fmt.Errorf("%w: version %d, state directory %q", errStateContents, owner.Version, owner.StateDir)
	}
	return &owner, nil
}

// claim records the owner, durably.
func (l *lock) claim(owner Owner) error {
	owner.Version = stateVersion
	data, err := json.Marshal(owner)
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	if len(data) > maxLockContent {
		return fmt.Errorf("lock %s: the owner record is too long (%d bytes)", l.path, len(data))
	}
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	if _, err := l.f.WriteAt(data, 0); err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	return nil
}

// forget empties the record of a run whose state is settled.
func (l *lock) forget() error {
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	return nil
}

// forgetOf is forget, unless the record names another state: that one has to be
// settled too.
func (l *lock) forgetOf(stateDir string) error {
	if owner, err := readOwner(l.f); err == nil && owner != nil && owner.StateDir != stateDir {
		return nil
	}
	return l.forget()
}

// release gives the lock up. With clean the file goes as well.
func (l *lock) release(clean bool) error {
	var err error
	if clean {
		err = os.Remove(l.path)
	}
	if l.socket != nil {
		err = errors.Join(err, l.socket.Close())
	}
	return errors.Join(err, l.f.Close())
}

// locks are those that one run holds, by path. A run meets its own again when
// it restores what an earlier one left.
type locks struct {
	runDir string
	held   map[string]*lock
}

func newLocks(runDir string) *locks {
	if runDir == "" {
		runDir = DefaultRunDir
	}
	return &locks{runDir: runDir, held: map[string]*lock{}}
}

func (l *locks) take(path, what string) (*lock, error) {
	if have, ok := l.held[path]; ok {
		return have, nil
	}
	got, err := acquire(path, what)
	if err != nil {
		return nil, err
	}
	l.held[path] = got
	return got, nil
}

func (l *locks) state(dir string) (*lock, error) {
	return l.take(filepath.Join(dir, stateLockFile), "state directory "+dir)
}

func (l *locks) device(netns uint64, ifindex int, ifname string) (*lock, error) {
	if err := os.MkdirAll(l.runDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the locks: %w", err)
	}
	return l.take(filepath.Join(l.runDir, fmt.Sprintf("%d-%d.lock", netns, ifindex)), "interface "+ifname)
}

// process locks all contexts and sockets of a process.
func (l *locks) process(h busypoll.Handle) (*lock, error) {
	if err := os.MkdirAll(l.runDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the locks: %w", err)
	}
	return l.take(l.processPath(h), fmt.Sprintf("process %d", h.PID))
}

func (l *locks) processPath(h busypoll.Handle) string {
	return filepath.Join(l.runDir, fmt.Sprintf("process-%d-%d.lock", h.PID, h.Start))
}

// keepOnly gives up the locks of devices other than those with the given
// paths: what was taken to restore an earlier run.
func (l *locks) keepOnly(paths map[string]bool) error {
	var errs []error
	for path, held := range l.held {
		if !paths[path] {
			errs = append(errs, l.drop(path, held))
		}
	}
	return errors.Join(errs...)
}

func (l *locks) drop(path string, held *lock) error {
	delete(l.held, path)
	owner, err := readOwner(held.f)
	return held.release(err == nil && owner == nil)
}

// release gives up all locks. Those whose record still names an unsettled
// state keep their file, for the next run to find.
func (l *locks) release() error {
	var errs []error
	for path, held := range l.held {
		errs = append(errs, l.drop(path, held))
	}
	return errors.Join(errs...)
}
