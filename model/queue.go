package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Queue is the stable identity of a tuned receive queue.
//
// NAPI IDs are not stable: drivers without persistent NAPI config renumber
// their instances on a link flap, so nothing outside the actuator and the
// probes keys by NAPI ID.
type Queue struct {
	// Netns is the inode number of the network namespace.
	Netns uint64
	// Ifindex is the interface index inside that namespace.
	Ifindex int
	// Index is the receive queue's position on the device, from 0.
	Index int
}

// String returns the queue as netns:ifindex:index.
func (q Queue) String() string {
	return fmt.Sprintf("%d:%d:%d", q.Netns, q.Ifindex, q.Index)
}

// MarshalText implements [encoding.TextMarshaler], so that a queue can be the
// key of a JSON object.
func (q Queue) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (q *Queue) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ":")
	if len(parts) != 3 {
		return fmt.Errorf("queue %q is not netns:ifindex:index", text)
	}
	netns, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return fmt.Errorf("queue %q: netns: %w", text, err)
	}
	ifindex, err := strconv.Atoi(parts[1])
	if err != nil {
		return fmt.Errorf("queue %q: ifindex: %w", text, err)
	}
	index, err := strconv.Atoi(parts[2])
	if err != nil {
		return fmt.Errorf("queue %q: index: %w", text, err)
	}
	*q = Queue{Netns: netns, Ifindex: ifindex, Index: index}
	return nil
}

// Compare orders queues by namespace, interface and position; it returns a
// negative number, zero or a positive number as [cmp.Compare] does.
func (q Queue) Compare(other Queue) int {
	switch {
	case q.Netns != other.Netns:
		return order(q.Netns < other.Netns)
	case q.Ifindex != other.Ifindex:
		return order(q.Ifindex < other.Ifindex)
	case q.Index != other.Index:
		return order(q.Index < other.Index)
	}
	return 0
}

func order(less bool) int {
	if less {
		return -1
	}
	return 1
}
