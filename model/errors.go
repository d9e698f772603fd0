package model

import (
	"errors"
	"fmt"
)

// The ways in which a queue can drop out of a run. Actuators wrap them in a
// [QueueError]; the loop goes on while other queues remain.
var (
	// ErrGone: the NAPI instance, interface or namespace no longer exists.
	ErrGone = errors.New("gone")
	// ErrLinkDown: the interface exists but has no NAPI instance now.
	ErrLinkDown = errors.New("link is down")
	// ErrForeignWrite: the read-back differs from what was written; another
	// writer owns the knob.
	ErrForeignWrite = errors.New("changed by another writer")
	// ErrReadOnly: this kernel or these privileges allow no write.
	ErrReadOnly = errors.New("cannot be written here")
	// ErrBusy: the kernel refused for now.
	ErrBusy = errors.New("busy")
)

// QueueError is a failed operation on one queue.
type QueueError struct {
	Queue Queue
	// Op is the attempted operation, for example "napi-set".
	Op  string
	Err error
}

func (e *QueueError) Error() string { return fmt.Sprintf("%s queue %v: %v", e.Op, e.Queue, e.Err) }

func (e *QueueError) Unwrap() error { return e.Err }
