package actuate

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"autotune/actuate/busypoll"
	"autotune/actuate/coalesce"
	"autotune/actuate/netdev"
	"autotune/actuate/placement"
	"autotune/model"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Live is this machine's kernel.
type Live struct {
	// Applications lists what applications there are; nil lists none, and
	// contexts are then known by their descriptor numbers only.
	Applications busypoll.Lister
}

// Processes implements [System].
func (l Live) Processes() busypoll.System { return busypoll.Live{Lister: l.Applications} }

// BootID implements [System].
func (Live) BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// Placement implements [System].
func (Live) Placement(k Kernel) placement.System {
	return placement.Host{Procfs: procfsRoot, Queue: func(q model.Queue) (*os.Root, string, error) {
		if k == nil || k.Inode() != q.Netns {
			return nil, "", fmt.Errorf("its network namespace: %w", model.ErrGone)
		}
		link, err := k.LinkAt(q.Ifindex)
		if err != nil {
			return nil, "", err
		}
		return k.QueueDir(link, q.Index)
	}}
}

// Open implements [System].
func (Live) Open(ref NamespaceRef) (Kernel, error) {
	ns, err := OpenNamespace(ref)
	if err != nil {
		return nil, err
	}
	k, err := newLiveKernel(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return k, nil
}

// Find implements [System]. Beside ref it looks at the caller's namespace, the
// named ones, and those of all processes.
func (l Live) Find(inode uint64, ref NamespaceRef) (Kernel, error) {
	for candidate := range namespaceCandidates(ref) {
		var st unix.Stat_t
		if unix.Stat(candidate.file(), &st) != nil || st.Ino != inode {
			continue
		}
		k, err := l.Open(candidate)
		if errors.Is(err, model.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k.Inode() == inode {
			return k, nil
		}
		if err := k.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("network namespace %v (inode %d): %w", ref, inode, model.ErrGone)
}

func namespaceCandidates(ref NamespaceRef) func(func(NamespaceRef) bool) {
	return func(yield func(NamespaceRef) bool) {
		if !yield(ref) || !yield(NamespaceRef{}) {
			return
		}
		names, _ := os.ReadDir(netnsDir)
		for _, name := range names {
			if !yield(NamespaceRef{Name: name.Name()}) {
				return
			}
		}
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			pid, err := strconv.Atoi(filepath.Base(process))
			if err == nil && !yield(NamespaceRef{PID: pid}) {
				return
			}
		}
	}
}

// liveKernel holds the sockets of one namespace.
type liveKernel struct {
	ns *Namespace
	// netdev is nil where the kernel has no such family; noFamily says so.
	netdev   *netdev.Client
	noFamily error
	sysfs    *sysfs
	cookie   uint64
	route    *rtnetlink.Conn
	ethtool  *ethtool.Ethtool
	// coalesce is nil where the kernel has no ethtool family.
	coalesce *coalesce.Client
	// requests is a socket for requests about interfaces.
	requests int
}

func newLiveKernel(ns *Namespace) (*liveKernel, error) {
	k := &liveKernel{ns: ns, sysfs: &sysfs{ns: ns}, requests: -1}
	// All sockets are made on one thread inside the namespace and keep it:
	// entering it again for each would need the thread to come back.
	err := ns.Do(func() error {
		var err error
		k.netdev, err = netdev.New(netdev.Options{})
		if errors.Is(err, netdev.ErrUnsupported) {
			k.noFamily, err = err, nil
		}
		if err != nil {
			return err
		}
		if k.route, err = rtnetlink.Dial(&netlink.Config{Strict: true}); err != nil {
			return fmt.Errorf("open a route netlink socket: %w", err)
		}
		if k.ethtool, err = ethtool.NewEthtool(); err != nil {
			return fmt.Errorf("open an ethtool socket: %w", err)
		}
		k.coalesce, err = coalesce.New()
		if err != nil && !errors.Is(err, coalesce.ErrUnsupported) {
			return err
		}
		if k.requests, err = openStamping(); err != nil {
			return err
		}
		k.cookie, err = namespaceCookie()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, k.closeSockets())
	}
	return k, nil
}

func (k *liveKernel) closeSockets() error {
	errs := []error{k.sysfs.close()}
	if k.netdev != nil {
		errs = append(errs, k.netdev.Close())
	}
	if k.route != nil {
		errs = append(errs, k.route.Close())
	}
	if k.coalesce != nil {
		errs = append(errs, k.coalesce.Close())
	}
	if k.ethtool != nil {
		k.ethtool.Close()
	}
	if k.requests >= 0 {
		errs = append(errs, unix.Close(k.requests))
	}
	return errors.Join(errs...)
}

func (k *liveKernel) Close() error { return errors.Join(k.closeSockets(), k.ns.Close()) }

func (k *liveKernel) Namespace() NamespaceRef { return k.ns.Ref() }

func (k *liveKernel) Inode() uint64 { return k.ns.Inode() }

func (k *liveKernel) Cookie() uint64 { return k.cookie }

// namespaceCookie returns the cookie of the calling thread's namespace, 0 on
// kernels without.
func namespaceCookie() (cookie uint64, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket to identify the network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("getsockopt SO_NETNS_COOKIE: %w", err)
	}
	return cookie, nil
}

func (k *liveKernel) Alive() error { return k.ns.Alive() }

func (k *liveKernel) Queues(ifindex int) ([]netdev.Queue, error) {
	if k.noFamily != nil {
		return nil, k.noFamily
	}
	return k.netdev.Queues(ifindex)
}

func (k *liveKernel) NAPIs(ifindex int) ([]netdev.NAPI, error) {
	if k.noFamily != nil {
		return nil, k.noFamily
	}
	return k.netdev.NAPIs(ifindex)
}

func (k *liveKernel) NAPI(ifindex int, id uint32) (netdev.NAPI, error) {
	if k.noFamily != nil {
		return netdev.NAPI{}, k.noFamily
	}
	return k.netdev.NAPI(ifindex, id)
}

func (k *liveKernel) SetNAPI(id uint32, u netdev.NAPIUpdate) error {
	if k.noFamily != nil {
		return k.noFamily
	}
	return k.netdev.SetNAPI(id, u)
}

func (k *liveKernel) CheckSet() error {
	if k.noFamily != nil {
		return k.noFamily
	}
	return k.netdev.CheckSet()
}

func (k *liveKernel) QueueDir(link Link, index int) (*os.Root, string, error) {
	root, err := k.sysfs.root(link)
	return root, path.Join(classNet(link.Name), "queues", "rx-"+strconv.Itoa(index)), err
}

func (k *liveKernel) RxQueues(link Link) (int, error) { return k.sysfs.rxQueues(link) }

func (k *liveKernel) Defaults(link Link) (Defaults, error) { return k.sysfs.defaults(link) }

func (k *liveKernel) SetDefault(link Link, knob Knob, v uint64) error {
	return k.sysfs.setDefault(link, knob, v)
}

func (k *liveKernel) Links() ([]Link, error) {
	messages, err := k.route.Link.List()
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	links := make([]Link, 0, len(messages))
	for _, m := range messages {
		if m.Attributes == nil {
			continue
		}
		l := Link{
			Name:  m.Attributes.Name,
			Index: int(m.Index),
			MAC:   m.Attributes.Address.String(),
			Up:    m.Flags&unix.IFF_UP != 0,
		}
		if m.Attributes.Info != nil {
			l.Kind = m.Attributes.Info.Kind
		}
		// Not every device has a driver to name (loopback, ifb).
		l.Driver, _ = k.ethtool.DriverName(l.Name)
		links = append(links, l)
	}
	return links, nil
}

func (k *liveKernel) Link(name string) (Link, error) {
	links, err := k.Links()
	if err != nil {
		return Link{}, err
	}
	var names []string
	for _, l := range links {
		if l.Name == name && l.stacked() {
			l.Lower, err = k.sysfs.lower(l)
			return l, err
		}
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Link{}, fmt.Errorf("interface %q is not in network namespace %v (there are: %s): %w",
		name, k.ns.Ref(), strings.Join(names, ", "), model.ErrGone)
}

func (k *liveKernel) LinkAt(ifindex int) (Link, error) {
	links, err := k.Links()
	if err != nil {
		return Link{}, err
	}
	for _, l := range links {
		if l.Index == ifindex {
			return l, nil
		}
	}
	return Link{}, fmt.Errorf("interface with index %d in network namespace %v: %w", ifindex, k.ns.Ref(), model.ErrGone)
}
