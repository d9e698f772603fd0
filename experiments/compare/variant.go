package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"autotune/model/sim"
)

// Variant is a comparison in which one thing is other than in the rest: the
// target, the length of a window, the machine, or what is seen of it.
type Variant struct {
	// Name is what tables and directories call it.
	Name string
	Plan Plan
}

// variation is one thing that is varied. What is zero stays.
type variation struct {
	name     string
	slo      time.Duration
	interval time.Duration
	// span is the simulated time as a multiple of the base's; zero is 1. Long
	// windows have more of it, so that there are enough to learn from.
	span  float64
	plant string
	// load multiplies the base's, so that what is asked of the machine can be
	// done.
	load float64
	// whole simulates all queues of the machine.
	whole bool
	// unlike tells that the machine is not that which a prior describes.
	unlike bool
}

// variations are those of the robustness table. One queue with half the load is
// one core with it: at a fifth of the host's load that is what a core can do.
func variations() []variation {
	return []variation{
		{name: "nominal"},
		{name: "slo-150us", slo: 150 * time.Microsecond},
		{name: "slo-400us", slo: 400 * time.Microsecond},
		{name: "slo-1ms", slo: time.Millisecond},
		{name: "window-100ms", interval: 100 * time.Millisecond},
		{name: "window-1s", interval: time.Second, span: 2},
		{name: "window-5s", interval: 5 * time.Second, span: 5},
		{name: "noise-4", plant: "noise-4"},
		{name: "skew-half", plant: "skew-half", load: 0.2, whole: true},
		{name: "sampled-16", plant: "sampled-16"},
		{name: "costs-2", plant: "costs-2", load: 0.5, unlike: true},
		{name: "costs-half", plant: "costs-half", unlike: true},
		{name: "rtt-20us", plant: "rtt-20us", unlike: true},
	}
}

// VariantNames returns the names of all variants, in the order of the table.
func VariantNames() []string {
	var out []string
	for _, v := range variations() {
		out = append(out, v.name)
	}
	return out
}

// Variants returns the variants of a plan that are named, or all. Those whose
// machine is not what a prior describes have the policies of misled too.
func Variants(base Plan, names, misled []string) ([]Variant, error) {
	known := VariantNames()
	for i, name := range names {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%w: variant %s; there are %s", ErrPlan, name, strings.Join(known, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%w: variant %s is given twice", ErrPlan, name)
		}
	}
	preset, err := sim.LoadPreset(base.Preset)
	if err != nil {
		return nil, err
	}
	var out []Variant
	for _, v := range variations() {
		if len(names) > 0 && !slices.Contains(names, v.name) {
			continue
		}
		p := base
		p.Policies = slices.Clone(base.Policies)
		if v.slo > 0 {
			p.SLO = v.slo
		}
		span := max(v.span, 1) * float64(base.Windows) * float64(base.Interval)
		if v.interval > 0 {
			p.Interval = v.interval
			p.Windows = max(1, int(span/float64(v.interval)+0.5))
		}
		if v.load > 0 {
			p.LoadScale *= v.load
		}
		if v.whole {
			p.Queues = preset.Host.Queues
		}
		if v.plant != "" {
			if p.Plant, err = ParsePlant([]string{v.plant}); err != nil {
				return nil, err
			}
		}
		for _, spec := range misled {
			if v.unlike && !slices.Contains(p.Policies, spec) {
				p.Policies = append(p.Policies, spec)
			}
		}
		if err := p.Prepare(); err != nil {
			return nil, fmt.Errorf("variant %s: %w", v.name, err)
		}
		out = append(out, Variant{v.name, p})
	}
	return out, nil
}
