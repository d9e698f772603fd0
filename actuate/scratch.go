package actuate

import (
	"errors"
	"fmt"
	"os"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

const (
	scratchName = "scratch0"
	scratchPeer = "scratch1"
)

// newScratch makes a network namespace without a name, and in it a veth pair
// whose one end is a NAPI device. All of it ends with the last descriptor, so
// that a killed process leaves nothing behind.
func newScratch() (*Namespace, error) {
	ns := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace to try things in: %w", err)
		}
		var err error
		if ns.f, err = os.Open(NamespaceRef{}.file()); err != nil {
			return fmt.Errorf("open the network namespace to try things in: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(ns.f.Fd()), &st); err != nil {
			return errors.Join(err, ns.Close())
		}
		ns.inode = st.Ino
		if err := makeScratchLink(); err != nil {
			return errors.Join(err, ns.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ns, nil
}

func makeScratchLink() (err error) {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("open a route netlink socket: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = conn.Link.New(&rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: scratchName,
		Info: &rtnetlink.LinkInfo{Kind: "veth", Data: &driver.Veth{
			PeerInfo: &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{Name: scratchPeer}},
		}},
	}})
	if err != nil {
		return fmt.Errorf("make a veth pair to try things on: %w", err)
	}
	features, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("open an ethtool socket: %w", err)
	}
	defer features.Close()
	// A veth has NAPI instances only with GRO on (veth_open in
	// drivers/net/veth.c).
	if err := features.Change(scratchName, map[string]bool{groFeature: true}); err != nil {
		return fmt.Errorf("turn GRO on for a veth: %w", err)
	}
	links, err := conn.Link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.Attributes == nil || l.Attributes.Name != scratchName {
			continue
		}
		err := conn.Link.Set(&rtnetlink.LinkMessage{Index: l.Index, Flags: unix.IFF_UP, Change: unix.IFF_UP})
		if err != nil {
			return fmt.Errorf("bring a veth up: %w", err)
		}
		return nil
	}
	return fmt.Errorf("the veth pair that was just made is not listed")
}
