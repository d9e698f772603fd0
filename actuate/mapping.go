package actuate

import (
	"cmp"
	"slices"

	"autotune/actuate/netdev"
	"autotune/model"
)

// mapped is the NAPI instance of one receive queue.
type mapped struct {
	index   int
	napi    netdev.NAPI
	mapping model.Mapping
}

// counts are the queues of a device: those that receive, and those whose NAPI
// has no ID.
type counts struct {
	receive, untunable int
}

// mapQueues matches NAPI instances to receive queues: by what the driver
// reports (virtio_net), else by position in ascending order of ID (veth, which
// makes them in the order of its queues). Queues for transmission only, whose
// NAPI has no ID, are counted as untunable.
//
// The kernel may list either in any order.
func mapQueues(queues []netdev.Queue, napis []netdev.NAPI) (out []mapped, n counts) {
	byID := make(map[uint32]netdev.NAPI, len(napis))
	for _, instance := range napis {
		byID[instance.ID] = instance
	}
	reported := false
	for _, q := range queues {
		if q.Type == netdev.QueueRx {
			n.receive++
		}
		reported = reported || q.NAPIID != nil
	}
	if !reported {
		sorted := slices.SortedFunc(slices.Values(napis), func(a, b netdev.NAPI) int { return cmp.Compare(a.ID, b.ID) })
		for i, instance := range sorted {
			if n.receive > 0 && i >= n.receive {
				n.untunable++
				continue
			}
			out = append(out, mapped{index: i, napi: instance, mapping: model.MappingPosition})
		}
		return out, n
	}
	ordered := slices.SortedFunc(slices.Values(queues), func(a, b netdev.Queue) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
	taken := map[uint32]bool{}
	for _, q := range ordered {
		if q.NAPIID == nil {
			n.untunable++
			continue
		}
		instance, listed := byID[*q.NAPIID]
		// One instance can serve several queues; it is tuned once, as the
		// first receive queue that it serves.
		if q.Type != netdev.QueueRx || !listed || taken[instance.ID] {
			continue
		}
		taken[instance.ID] = true
		out = append(out, mapped{index: q.ID, napi: instance, mapping: model.MappingDriver})
	}
	return out, n
}

// listQueues reads a device with two dumps. Where they contradict each other,
// because the instances were made anew in between, it reads them once more.
func listQueues(k Kernel, ifindex int) (out []mapped, n counts, err error) {
	for range 2 {
		queues, err := k.Queues(ifindex)
		if err != nil {
			return nil, counts{}, err
		}
		napis, err := k.NAPIs(ifindex)
		if err != nil {
			return nil, counts{}, err
		}
		out, n = mapQueues(queues, napis)
		if consistent(queues, napis) {
			break
		}
	}
	return out, n, nil
}

func consistent(queues []netdev.Queue, napis []netdev.NAPI) bool {
	for _, q := range queues {
		if q.NAPIID != nil && !slices.ContainsFunc(napis, func(n netdev.NAPI) bool { return n.ID == *q.NAPIID }) {
			return false
		}
	}
	return true
}
