package netdev

import "fmt"

// QueueType tells receive and transmit queues apart.
type QueueType uint32

// The types of include/uapi/linux/netdev.h.
const (
	QueueRx QueueType = 0
	QueueTx QueueType = 1
)

func (t QueueType) String() string {
	switch t {
	case QueueRx:
		return "rx"
	case QueueTx:
		return "tx"
	default:
		return fmt.Sprintf("type %d", uint32(t))
	}
}

// Queue is one reply of queue-get.
type Queue struct {
	// ID is the queue's position among those of its type, from 0.
	ID      int
	Ifindex int
	Type    QueueType
	// NAPIID is nil where the driver does not tell (veth), and for queues
	// whose NAPI has no ID (transmit only).
	NAPIID *uint32
}

func parseQueue(data []byte) (Queue, error) {
	var q Queue
	seen := 0
	err := decodeAttributes(data, "queue", queueAttrName, func(attr uint16, value []byte) error {
		v, err := fixed32(value)
		if err != nil {
			return err
		}
		switch attr {
		case attrQueueID:
			q.ID = int(v)
			seen |= 1
		case attrQueueIfindex:
			q.Ifindex = int(v)
			seen |= 2
		case attrQueueType:
			q.Type = QueueType(v)
			seen |= 4
		case attrQueueNAPIID:
			q.NAPIID = &v
		}
		return nil
	})
	if err != nil {
		return Queue{}, err
	}
	if seen != 7 {
		return Queue{}, fmt.Errorf("queue reply without id, ifindex or type (%d bytes)", len(data))
	}
	return q, nil
}
