//go:build linux

package testbed

import (
	"fmt"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// RxPackets returns the packets that the server's end received since the bed
// was made, as the interface's rx_packets.
func (b *Bed) RxPackets() (packets uint64, err error) {
	err = b.server.withLink(func(_ *netlink.Handle, link netlink.Link) error {
		stats := link.Attrs().Statistics
		if stats == nil {
			return fmt.Errorf("%s reports no statistics", b.server.Ifname)
		}
		packets = stats.RxPackets
		return nil
	})
	return packets, err
}

// RxPacketsByQueue returns the packets that each receive queue of the server's
// end took off its ring, from veth's own counters (rx_queue_N_xdp_packets,
// which counts all packets that a NAPI received, by XDP or not).
func (b *Bed) RxPacketsByQueue() (packets []uint64, err error) {
	err = b.server.Do(func() error {
		client, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("open ethtool in namespace %s: %w", b.server.Name, err)
		}
		defer client.Close()
		stats, err := client.Stats(b.server.Ifname)
		if err != nil {
			return fmt.Errorf("read the statistics of %s: %w", b.server.Ifname, err)
		}
		packets = make([]uint64, b.options.Queues)
		for i := range packets {
			key := fmt.Sprintf("rx_queue_%d_xdp_packets", i)
			n, ok := stats[key]
			if !ok {
				return fmt.Errorf("%s has no statistic %s", b.server.Ifname, key)
			}
			packets[i] = n
		}
		return nil
	})
	return packets, err
}
