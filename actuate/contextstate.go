package actuate

import (
	"fmt"
	"slices"

	"autotune/actuate/busypoll"
)

// baselineContext is what an epoll context or a socket was set to before it was
// first written.
type baselineContext struct {
	// Handles are the descriptors that lead to it: several where processes
	// share it.
	Handles []busypoll.Handle `json:"handles"`
	Comm    string            `json:"comm"`
	// Original is a pointer so that a missing one is noticed.
	Original *busypoll.Params `json:"original"`
}

func (c *baselineContext) key() busypoll.Handle { return c.Handles[0].Key() }

// intentContext is as [intentQueue]. Key is that of its baseline record.
type intentContext struct {
	Key       busypoll.Handle  `json:"key"`
	Confirmed *busypoll.Params `json:"confirmed"`
	Intended  *busypoll.Params `json:"intended"`
}

// wrote reports whether a parameter's value is one that autotune left.
func (c *intentContext) wrote(n busypoll.Parameter, value uint32) bool {
	return value == n.Of(*c.Confirmed) || value == n.Of(*c.Intended)
}

func (in *intent) context(key busypoll.Handle) *intentContext {
	if in == nil {
		return nil
	}
	for i := range in.Contexts {
		if in.Contexts[i].Key == key {
			return &in.Contexts[i]
		}
	}
	return nil
}

// processes returns one handle of each process that the baseline has contexts
// of, in order.
func (b *baseline) processes() []busypoll.Handle {
	var out []busypoll.Handle
	for _, c := range b.Contexts {
		for _, h := range c.Handles {
			out = append(out, busypoll.Handle{PID: h.PID, Start: h.Start})
		}
	}
	slices.SortFunc(out, busypoll.Handle.Compare)
	return slices.Compact(out)
}

func checkContexts(contexts []baselineContext) error {
	seen := map[busypoll.Handle]bool{}
	for i := range contexts {
		c := &contexts[i]
		if len(c.Handles) == 0 || c.Original == nil || seen[c.key()] {
			return fmt.Errorf("%w: a context is incomplete or repeated", errStateContents)
		}
		for _, h := range c.Handles {
			if h.PID <= 0 || h.FD < 0 || h.Kind != busypoll.KindEpoll && h.Kind != busypoll.KindSocket || h.Key() != c.key() && h.Object != 0 {
				return fmt.Errorf("%w: %v cannot be", errStateContents, h)
			}
		}
		seen[c.key()] = true
	}
	return nil
}

func (in *intent) checkContexts(b *baseline) error {
	known := map[busypoll.Handle]bool{}
	for i := range b.Contexts {
		known[b.Contexts[i].key()] = true
	}
	for _, c := range in.Contexts {
		if c.Confirmed == nil || c.Intended == nil || !known[c.Key] {
			return fmt.Errorf("%w: %v is incomplete, repeated, or not in %s", errStateContents, c.Key, baselineFile)
		}
		delete(known, c.Key)
	}
	return nil
}
