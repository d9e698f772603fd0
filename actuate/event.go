package actuate

import (
	"fmt"

	"autotune/model"
)

// maxEvents bounds what is kept for a caller that does not ask.
const maxEvents = 64

// Rebind is a queue whose NAPI instance was made anew, with another ID and not
// with the values that were written to the old one.
type Rebind struct {
	Queue        model.Queue
	Ifname       string
	OldID, NewID uint32
	// Found is what the new instance is set to.
	Found model.Settings
}

func (r Rebind) String() string {
	return fmt.Sprintf("%s queue %d: NAPI %d was made anew as %d, with %v", r.Ifname, r.Queue.Index, r.OldID, r.NewID, r.Found)
}

// events keeps the latest rebinds and counts those that it had to drop.
type events struct {
	list    []Rebind
	dropped int
}

func (e *events) add(r Rebind) {
	if len(e.list) == maxEvents {
		e.list = append(e.list[:0], e.list[1:]...)
		e.dropped++
	}
	e.list = append(e.list, r)
}

func (e *events) drain() ([]Rebind, int) {
	list, dropped := e.list, e.dropped
	e.list, e.dropped = nil, 0
	return list, dropped
}
