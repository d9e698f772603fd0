package sim

import (
	"fmt"
	"time"
)

// Variation is a machine that differs from a preset in ways that a policy
// should survive. The zero value changes nothing.
type Variation struct {
	// Costs multiplies every cost; zero is 1.
	Costs float64
	// RoundTrip is added to the client's.
	RoundTrip time.Duration
	// HeaviestShare, above zero, is the share of the connections that one
	// queue has, below 1; the others share the rest as they did.
	HeaviestShare float64
}

// Vary returns the preset with the variation, or an error that names what
// cannot be. p is not changed.
func (p *Preset) Vary(v Variation) (*Preset, error) {
	out := *p
	switch {
	case v.Costs < 0:
		return nil, fmt.Errorf("vary preset %s: costs times %v: must be positive", p.Name, v.Costs)
	case v.HeaviestShare < 0 || v.HeaviestShare >= 1:
		return nil, fmt.Errorf("vary preset %s: heaviest share %v: must be in 0 to 1", p.Name, v.HeaviestShare)
	}
	if v.Costs > 0 {
		for _, d := range out.Cost.durations() {
			*d = time.Duration(float64(*d) * v.Costs)
		}
	}
	out.Client.RoundTrip += v.RoundTrip
	if v.HeaviestShare > 0 {
		out.Host.HeaviestShare = v.HeaviestShare
	}
	return &out, out.Check()
}
