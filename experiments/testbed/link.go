//go:build linux

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// with calls fn, inside the namespace, with a route netlink handle.
func (ns *Namespace) with(fn func(*netlink.Handle) error) error {
	return ns.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open route netlink in namespace %s: %w", ns.Name, err)
		}
		defer handle.Close()
		return fn(handle)
	})
}

// addLinks makes the pair directly inside the two namespaces, so that it is
// never visible elsewhere, and gives both ends their addresses.
func (b *Bed) addLinks() error {
	queues := b.options.Queues
	attrs := netlink.NewLinkAttrs()
	attrs.Name = b.server.Ifname
	attrs.MTU = b.options.MTU
	attrs.NumRxQueues = queues
	// One transmit queue suffices for one server thread; the receiver's queue
	// is chosen by the sender's transmit queue, so the client needs as many
	// as the server has to receive.
	attrs.NumTxQueues = 1
	pair := &netlink.Veth{
		LinkAttrs:       attrs,
		PeerName:        b.client.Ifname,
		PeerNamespace:   netlink.NsFd(b.client.file.Fd()),
		PeerMTU:         uint32(b.options.MTU),
		PeerNumRxQueues: 1,
		PeerNumTxQueues: uint32(queues),
	}
	err := b.server.with(func(h *netlink.Handle) error { return h.LinkAdd(pair) })
	if err != nil {
		return fmt.Errorf("add veth pair with %d queues: %w", queues, err)
	}
	for _, ns := range []*Namespace{b.server, b.client} {
		if err := ns.configure(); err != nil {
			return err
		}
	}
	if err := b.server.addNeighbour(b.client); err != nil {
		return err
	}
	return b.client.addNeighbour(b.server)
}

func (ns *Namespace) configure() error {
	return ns.with(func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo in namespace %s: %w", ns.Name, err)
		}
		if err := h.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set lo up in namespace %s: %w", ns.Name, err)
		}
		link, err := h.LinkByName(ns.Ifname)
		if err != nil {
			return fmt.Errorf("find %s in namespace %s: %w", ns.Ifname, ns.Name, err)
		}
		ns.Ifindex = link.Attrs().Index
		ns.HardwareAddr = link.Attrs().HardwareAddr
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: ns.Addr.AsSlice(), Mask: net.CIDRMask(24, 32)}}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("give %s the address %v: %w", ns.Ifname, addr, err)
		}
		return nil
	})
}

// addNeighbour makes the peer known for good, so that no resolution ever
// mixes with the traffic. Permanent entries survive while the interface is
// down as well.
func (ns *Namespace) addNeighbour(peer *Namespace) error {
	return ns.with(func(h *netlink.Handle) error {
		err := h.NeighSet(&netlink.Neigh{
			LinkIndex:    ns.Ifindex,
			Family:       netlink.FAMILY_V4,
			State:        netlink.NUD_PERMANENT,
			IP:           peer.Addr.AsSlice(),
			HardwareAddr: peer.HardwareAddr,
		})
		if err != nil {
			return fmt.Errorf("make %v known on %s: %w", peer.Addr, ns.Ifname, err)
		}
		return nil
	})
}

// setFeatures makes veth use a NAPI: the receiver has GRO on, and the sender
// no TSO (veth_xmit and veth_skb_is_eligible_for_gro in drivers/net/veth.c).
// GSO off as well keeps a packet on the wire a packet at the NAPI.
func (b *Bed) setFeatures() error {
	sender := map[string]bool{
		"tx-generic-segmentation":      false,
		"tx-tcp-segmentation":          false,
		"tx-tcp-ecn-segmentation":      false,
		"tx-tcp-mangleid-segmentation": false,
		"tx-tcp6-segmentation":         false,
	}
	receiver := map[string]bool{"rx-gro": true}
	if err := b.client.changeFeatures(sender); err != nil {
		return err
	}
	if err := b.server.changeFeatures(receiver); err != nil {
		return err
	}
	if b.options.ClientReceive != ClientReceiveThread {
		return nil
	}
	if err := b.server.changeFeatures(sender); err != nil {
		return err
	}
	return b.client.changeFeatures(receiver)
}

// changeFeatures sets the features and checks that they took, as the kernel
// may ignore one that it considers fixed.
func (ns *Namespace) changeFeatures(want map[string]bool) error {
	return ns.Do(func() error {
		client, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("open ethtool in namespace %s: %w", ns.Name, err)
		}
		defer client.Close()
		if err := client.Change(ns.Ifname, want); err != nil {
			return fmt.Errorf("change the features of %s: %w", ns.Ifname, err)
		}
		got, err := client.Features(ns.Ifname)
		if err != nil {
			return fmt.Errorf("read the features of %s: %w", ns.Ifname, err)
		}
		for feature, on := range want {
			if got[feature] != on {
				return fmt.Errorf("feature %s of %s is %t after setting it to %t", feature, ns.Ifname, got[feature], on)
			}
		}
		return nil
	})
}

// bringUp sets both ends up and waits until both have a carrier.
func (b *Bed) bringUp(ctx context.Context) error {
	for _, ns := range []*Namespace{b.server, b.client} {
		err := ns.withLink(func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetUp(link) })
		if err != nil {
			return fmt.Errorf("set %s up: %w", ns.Ifname, err)
		}
	}
	for _, ns := range []*Namespace{b.server, b.client} {
		err := poll(ctx, "link "+ns.Ifname, func() (up bool, err error) {
			err = ns.withLink(func(_ *netlink.Handle, link netlink.Link) error {
				up = link.Attrs().OperState == netlink.OperUp
				return nil
			})
			return up, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bed) linkDown() error {
	err := b.server.withLink(func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetDown(link) })
	if err != nil {
		return fmt.Errorf("set %s down: %w", b.server.Ifname, err)
	}
	return nil
}

// removeLinks removes the pair. A test may have removed it already.
func (b *Bed) removeLinks() error {
	err := b.server.withLink(func(h *netlink.Handle, link netlink.Link) error { return h.LinkDel(link) })
	var notFound netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &notFound) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", b.server.Ifname, err)
	}
	return nil
}

func (ns *Namespace) withLink(fn func(*netlink.Handle, netlink.Link) error) error {
	return ns.with(func(h *netlink.Handle) error {
		link, err := h.LinkByName(ns.Ifname)
		if err != nil {
			return fmt.Errorf("find %s in namespace %s: %w", ns.Ifname, ns.Name, err)
		}
		return fn(h, link)
	})
}
