package memkernel

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"autotune/actuate"
	"autotune/actuate/placement"
	"autotune/model"
)

// Op names an operation to [System.Fault].
type Op string

// The operations. OpSet is also a write to sysfs. OpSetDone comes after the
// write took effect: an error there is a reply that got lost.
const (
	OpOpen     Op = "open"
	OpLink     Op = "link"
	OpQueues   Op = "queue-get"
	OpNAPIs    Op = "napi-get dump"
	OpNAPI     Op = "napi-get"
	OpSet      Op = "napi-set"
	OpSetDone  Op = "napi-set done"
	OpDefaults Op = "sysfs"
)

// System is a machine. Make it with [New].
type System struct {
	// Fault is called before each operation, and may return the error that it
	// fails with, or change the machine; nil never fails. It must not be set
	// while the machine is in use.
	Fault func(Op) error
	// Shuffle puts dumps into random order; nil leaves the kernel's order,
	// which is descending by ID.
	Shuffle *rand.Rand
	// Era is how old the kernel is. It must not be set while the machine is in
	// use.
	Era Era
	// Applications are the running processes.
	Applications Processes

	mu         sync.Mutex
	boots      int
	namespaces []*Namespace
	nextInode  uint64
	nextNAPI   uint32
	placements *Placements
}

// New returns a machine without namespaces.
func New() *System {
	s := &System{nextInode: 4026532000, nextNAPI: 8193, boots: 1}
	s.placements = &Placements{system: s, cpus: map[placement.Item]string{}}
	return s
}

// AddNamespace makes a named namespace.
func (s *System) AddNamespace(name string) *Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextInode++
	n := &Namespace{system: s, name: name, inode: s.nextInode, cookie: s.nextInode, nextIndex: 1}
	s.namespaces = append(s.namespaces, n)
	return n
}

// DeleteNamespace removes a namespace's name and, unlike a real one that
// sockets can keep alive, its devices.
func (s *System) DeleteNamespace(n *Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.namespaces {
		if other == n {
			s.namespaces = append(s.namespaces[:i:i], s.namespaces[i+1:]...)
		}
	}
	n.deleted, n.devices = true, nil
}

// ReplaceNamespace puts another namespace, with devices of the same names and
// addresses, in a deleted one's place: only its cookie differs.
func (s *System) ReplaceNamespace(n *Namespace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextInode++
	n.cookie = s.nextInode
}

// Reboot gives the machine another boot ID and every NAPI its device's
// defaults.
func (s *System) Reboot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boots++
	for _, n := range s.namespaces {
		for _, d := range n.devices {
			for _, i := range d.instances {
				i.settings = d.fresh()
			}
		}
	}
}

// BootID implements [actuate.System].
func (s *System) BootID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("boot-%d", s.boots), nil
}

// Open implements [actuate.System]; namespaces are known by name.
func (s *System) Open(ref actuate.NamespaceRef) (actuate.Kernel, error) {
	if err := s.fault(OpOpen); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.namespaces {
		if n.name == ref.Name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("network namespace %v: %w", ref, model.ErrGone)
}

// Find implements [actuate.System].
func (s *System) Find(inode uint64, ref actuate.NamespaceRef) (actuate.Kernel, error) {
	if err := s.fault(OpOpen); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.namespaces {
		if n.inode == inode {
			return n, nil
		}
	}
	return nil, fmt.Errorf("network namespace %v: %w", ref, model.ErrGone)
}

func (s *System) fault(op Op) error {
	if s.Fault == nil {
		return nil
	}
	return s.Fault(op)
}
