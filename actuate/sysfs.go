package actuate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"autotune/model"

	"golang.org/x/sys/unix"
)

const sysfsRoot = "/sys"

// sysfs is /sys as one network namespace shows it.
//
// sysfs shows the namespace that it was mounted in, whatever namespace the
// reader has entered since. So where the mount at hand does not show the device
// in question, one is made on a thread with a mount namespace of its own; the
// open root keeps it after the thread has ended.
type sysfs struct {
	ns *Namespace

	mu              sync.Mutex
	atHand, mounted *os.Root
}

// root returns a sysfs that shows this very device; [model.ErrGone] where there
// is no such device.
func (s *sysfs) root(link Link) (*os.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ns.Current() {
		if s.atHand == nil {
			var err error
			if s.atHand, err = os.OpenRoot(sysfsRoot); err != nil {
				return nil, fmt.Errorf("open sysfs: %w", err)
			}
		}
		if showsLink(s.atHand.FS(), link) {
			return s.atHand, nil
		}
	}
	if s.mounted == nil {
		err := s.ns.withSysfs(func(root string) error {
			var err error
			s.mounted, err = os.OpenRoot(root)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if !showsLink(s.mounted.FS(), link) {
		return nil, fmt.Errorf("sysfs of network namespace %v shows no %s with index %d and address %q: %w",
			s.ns.Ref(), link.Name, link.Index, link.MAC, model.ErrGone)
	}
	return s.mounted, nil
}

func (s *sysfs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, root := range []*os.Root{s.atHand, s.mounted} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	s.atHand, s.mounted = nil, nil
	return errors.Join(errs...)
}

// withSysfs runs fn on a thread inside the namespace where root is a sysfs
// that shows it. The mount ends with the thread, and with what fn opened.
func (n *Namespace) withSysfs(fn func(root string) error) error {
	return n.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace to see sysfs in: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("separate the mounts to see sysfs in: %w", err)
		}
		if err := unix.Mount("sysfs", sysfsRoot, "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mount sysfs of network namespace %v: %w", n.ref, err)
		}
		return fn(sysfsRoot)
	})
}

// classNet is the directory of a device.
func classNet(ifname string) string { return path.Join("class/net", ifname) }

// lower returns the names of the devices below a stacked one. The kernel links
// them in sysfs whatever kind it is (netdev_adjacent_sysfs_add in
// net/core/dev.c).
func (s *sysfs) lower(link Link) ([]string, error) {
	root, err := s.root(link)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(root.FS(), classNet(link.Name))
	if err != nil {
		return nil, explainSysfs("list the lower devices of "+link.Name, err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// rxQueues counts the receive queues in use (net_rx_queue_update_kobjects in
// net/core/net-sysfs.c).
func (s *sysfs) rxQueues(link Link) (int, error) {
	root, err := s.root(link)
	if err != nil {
		return 0, err
	}
	return countRxQueues(root.FS(), link.Name)
}

func countRxQueues(sys fs.FS, ifname string) (int, error) {
	entries, err := fs.ReadDir(sys, path.Join(classNet(ifname), "queues"))
	if err != nil {
		return 0, explainSysfs("count the receive queues of "+ifname, err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "rx-") {
			n++
		}
	}
	return n, nil
}

func (s *sysfs) defaults(link Link) (Defaults, error) {
	root, err := s.root(link)
	if err != nil {
		return Defaults{}, err
	}
	return parseDefaults(root.FS(), link.Name)
}

// setDefault writes one device-level value. What is above the kernel's limit is
// not sent: before the fix of CVE-2024-50018 it would be taken, and overflow.
func (s *sysfs) setDefault(link Link, k Knob, v uint64) error {
	op := fmt.Sprintf("write %s of %s", k.sysfs(), link.Name)
	switch {
	case k == KnobSuspend:
		return fmt.Errorf("%s: %w", op, ErrNoSuspend)
	case k == KnobDefer && v > model.MaxDeferHardIRQs, v > 1<<63-1:
		return fmt.Errorf("%s: %d: %w (%w)", op, v, model.ErrOutOfBounds, unix.ERANGE)
	}
	root, err := s.root(link)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(path.Join(classNet(link.Name), k.sysfs()), os.O_WRONLY, 0)
	if err != nil {
		return explainSysfs(op, err)
	}
	_, err = f.WriteString(strconv.FormatUint(v, 10))
	return explainSysfs(op, errors.Join(err, f.Close()))
}

func showsLink(sys fs.FS, link Link) bool {
	index, err := readSysfs(sys, link.Name, "ifindex")
	if err != nil || index != strconv.Itoa(link.Index) {
		return false
	}
	address, err := readSysfs(sys, link.Name, "address")
	return err == nil && address == link.MAC
}

func parseDefaults(sys fs.FS, ifname string) (Defaults, error) {
	text, err := readSysfs(sys, ifname, KnobDefer.sysfs())
	if err != nil {
		return Defaults{}, err
	}
	// Kernels before the fix of CVE-2024-50018 show counts above 2^31-1 as
	// negative.
	hardIRQs, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(uint32(hardIRQs)) != hardIRQs && int64(int32(hardIRQs)) != hardIRQs {
		return Defaults{}, fmt.Errorf("read %s of %s: %q is no count", KnobDefer.sysfs(), ifname, text)
	}
	text, err = readSysfs(sys, ifname, KnobFlush.sysfs())
	if err != nil {
		return Defaults{}, err
	}
	flush, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return Defaults{}, fmt.Errorf("read %s of %s: %w", KnobFlush.sysfs(), ifname, err)
	}
	return Defaults{
		DeferHardIRQs:   uint32(hardIRQs),
		GROFlushTimeout: time.Duration(min(flush, 1<<63-1)),
	}, nil
}

func readSysfs(sys fs.FS, ifname, name string) (string, error) {
	data, err := fs.ReadFile(sys, path.Join(classNet(ifname), name))
	if err != nil {
		return "", explainSysfs(fmt.Sprintf("read %s of %s", name, ifname), err)
	}
	return strings.TrimSpace(string(data)), nil
}

// explainSysfs says what an errno of a device's file means.
func explainSysfs(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s: %w: no CAP_NET_ADMIN over the network namespace, or sysfs is read-only; run as root, or observe only: %w", op, err, model.ErrReadOnly)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: the interface no longer exists, or the kernel is older than 5.8: %w", op, err, model.ErrGone)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: %w: %w", op, err, model.ErrGone)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return fmt.Errorf("%s: %w: %w", op, err, model.ErrBusy)
	case errors.Is(err, unix.ERANGE):
		return fmt.Errorf("%s: %w: %w", op, err, model.ErrOutOfBounds)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}
