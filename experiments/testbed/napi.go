//go:build linux

package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// NAPI is one NAPI instance of the bed as napi-get reports it.
type NAPI struct {
	ID uint32
	// Thread is the process ID of its kernel thread; zero where it runs in
	// softirq.
	Thread int
}

// Command and attributes of the netdev family, from
// include/uapi/linux/netdev.h.
const (
	netdevCmdNAPIGet  = 11
	netdevANAPIIfindx = 1
	netdevANAPIID     = 2
	netdevANAPIPID    = 4
)

// NAPIs returns the NAPI instances of the server's end in ascending order of
// ID, which on veth is the order of its receive queues.
func (b *Bed) NAPIs() ([]NAPI, error) { return b.server.napis() }

// NAPIThreads returns the process IDs of the kernel threads of the server's
// NAPI instances, in the same order; none where they are not threaded.
func (b *Bed) NAPIThreads() ([]int, error) {
	napis, err := b.server.napis()
	if err != nil {
		return nil, err
	}
	var threads []int
	for _, napi := range napis {
		if napi.Thread != 0 {
			threads = append(threads, napi.Thread)
		}
	}
	return threads, nil
}

func (ns *Namespace) napis() (napis []NAPI, err error) {
	conn, err := genetlink.Dial(&netlink.Config{NetNS: int(ns.file.Fd())})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink in namespace %s: %w", ns.Name, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	family, err := conn.GetFamily("netdev")
	if err != nil {
		return nil, fmt.Errorf("find the netdev family of generic netlink: %w", err)
	}
	encoder := netlink.NewAttributeEncoder()
	encoder.Uint32(netdevANAPIIfindx, uint32(ns.Ifindex))
	data, err := encoder.Encode()
	if err != nil {
		return nil, err
	}
	replies, err := conn.Execute(genetlink.Message{
		Header: genetlink.Header{Command: netdevCmdNAPIGet, Version: family.Version},
		Data:   data,
	}, family.ID, netlink.Request|netlink.Dump)
	if err != nil {
		return nil, fmt.Errorf("napi-get of %s: %w", ns.Ifname, err)
	}
	for _, reply := range replies {
		napi, err := parseNAPI(reply.Data)
		if err != nil {
			return nil, fmt.Errorf("napi-get of %s: %w", ns.Ifname, err)
		}
		napis = append(napis, napi)
	}
	slices.SortFunc(napis, func(a, b NAPI) int { return cmp.Compare(a.ID, b.ID) })
	return napis, nil
}

func parseNAPI(data []byte) (NAPI, error) {
	decoder, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return NAPI{}, err
	}
	var napi NAPI
	for decoder.Next() {
		switch decoder.Type() {
		case netdevANAPIID:
			napi.ID = decoder.Uint32()
		case netdevANAPIPID:
			napi.Thread = int(decoder.Uint32())
		}
	}
	return napi, decoder.Err()
}

// setThreaded asks for NAPI threads through sysfs and not through netlink:
// the device's setting outlives the NAPI instances, which a link flap of veth
// replaces. The link must be up: a device without NAPI instances refuses it.
func (b *Bed) setThreaded() error {
	if b.options.Threaded {
		if err := b.server.setThreaded(); err != nil {
			return err
		}
	}
	if b.options.ClientReceive == ClientReceiveThread {
		return b.client.setThreaded()
	}
	return nil
}

func (ns *Namespace) setThreaded() error {
	if err := ns.writeSysfs("class/net/"+ns.Ifname+"/threaded", "1"); err != nil {
		return fmt.Errorf("give the NAPI instances of %s threads: %w", ns.Ifname, err)
	}
	return nil
}

// pinThreads waits for the NAPI instances that the bed must have, and pins
// their threads.
func (b *Bed) pinThreads(ctx context.Context) error {
	if err := b.server.pinThreads(ctx, b.options.Queues, b.options.Threaded, b.options.ServerCPU); err != nil {
		return err
	}
	if b.options.Realtime {
		threads, err := b.NAPIThreads()
		if err != nil {
			return err
		}
		for _, pid := range threads {
			if err := makeRealtime(pid); err != nil {
				return err
			}
		}
	}
	if b.options.ClientReceive != ClientReceiveThread {
		return nil
	}
	return b.client.pinThreads(ctx, 1, true, b.options.ClientCPU)
}

func (ns *Namespace) pinThreads(ctx context.Context, count int, threaded bool, cpu int) error {
	return poll(ctx, fmt.Sprintf("%d NAPI instances of %s", count, ns.Ifname), func() (bool, error) {
		napis, err := ns.napis()
		if errors.Is(err, unix.EINTR) { // a dump interrupted by a change
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if len(napis) != count {
			return false, nil
		}
		if !threaded {
			return true, nil
		}
		for _, napi := range napis {
			if napi.Thread == 0 {
				return false, nil
			}
			if err := pin(napi.Thread, cpu); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}
