package sim

// packetKind is the type of an event on the wire towards the host.
type packetKind uint8

const (
	// packetRequest carries a request.
	packetRequest packetKind = iota
	// packetACK acknowledges a response and carries no data.
	packetACK
)

// packet is a frame on its way to the host, or in a receive ring.
type packet struct {
	at   int64 // arrival at the NIC, ns
	conn int32
	kind packetKind
}

// flight is the queue of packets on the wire, ordered by arrival; packets
// that arrive at the same instant leave in no particular but repeatable order.
// It is a binary heap: a round trip holds few packets, so it stays shallow.
type flight struct{ heap []packet }

func (f *flight) push(p packet) {
	h := append(f.heap, p)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= p.at {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = p
	f.heap = h
}

// first returns the arrival time of the next packet, or never.
func (f *flight) first() int64 {
	if len(f.heap) == 0 {
		return never
	}
	return f.heap[0].at
}

func (f *flight) pop() packet {
	h := f.heap
	top := h[0]
	n := len(h) - 1
	last := h[n]
	h = h[:n]
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h[child+1].at < h[child].at {
			child++
		}
		if h[child].at >= last.at {
			break
		}
		h[i] = h[child]
		i = child
	}
	if n > 0 {
		h[i] = last
	}
	f.heap = h
	return top
}
