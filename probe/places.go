package probe

import (
	"errors"
	"math/bits"
)

// probes is how many places in a row an ID may be at: PROBES in bpf/state.h.
const probes = 4

// errNoPlace: too many IDs with the same low bits are followed already.
var errNoPlace = errors.New("no place is free for this ID")

// places says where in an array the programs look for an ID: at one of a few
// places from its low bits on. IDs are not 0, which stands for none.
type places []uint32

// places returns how many places are made for NAPIs and for their threads: so
// many that few IDs compete for one.
func (s mapSizes) places() int { return 1 << bits.Len(uint(4*s.napis-1)) }

// take returns the place of an ID, a new one if it has none.
func (p places) take(id uint32) (int, error) {
	if at, ok := p.find(id); ok {
		return at, nil
	}
	for i := range probes {
		if at := (int(id) + i) & (len(p) - 1); p[at] == 0 {
			p[at] = id
			return at, nil
		}
	}
	return 0, errNoPlace
}

// find returns the place of an ID that has one.
func (p places) find(id uint32) (int, bool) {
	for i := range probes {
		if at := (int(id) + i) & (len(p) - 1); p[at] == id {
			return at, true
		}
	}
	return 0, false
}
