package compare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"autotune/model/sim"
)

// Plant is how the simulated machine differs from what policies may have been
// told of it, and how well they see it. Its zero value differs in nothing.
type Plant struct {
	// Costs multiplies every CPU time of the machine, AppCosts only the
	// application's; zero is 1.
	Costs    float64 `json:"costs"`
	AppCosts float64 `json:"app_costs"`
	// RoundTrip is added to each request's latency.
	RoundTrip time.Duration `json:"round_trip_ns"`
	// Noise multiplies the error of what policies measure ([sim.Options]);
	// zero is 1. It is not part of what is judged.
	Noise float64 `json:"noise"`
	// Skew is the share of the load on one queue; zero leaves it to the preset.
	Skew float64 `json:"skew"`
	// SampleEvery is one in how many connections has its delays seen; zero is
	// 1. Client latencies are judged of all of them.
	SampleEvery int `json:"sample_every"`
}

// plants are the changes that have a name.
func plants() []struct{ name, change string } {
	return []struct{ name, change string }{
		{"costs-2", "costs=2"}, {"costs-half", "costs=0.5"}, {"rtt-20us", "rtt=20us"},
		{"noise-4", "noise=4"}, {"skew-half", "skew=0.5"}, {"sampled-16", "sample-every=16"},
	}
}

// PlantNames returns the names that [ParsePlant] takes.
func PlantNames() []string {
	var out []string
	for _, p := range plants() {
		out = append(out, p.name)
	}
	return out
}

// ParsePlant reads changes of the form key=value: costs and app-costs
// (factors), rtt (a duration that is added), noise (a factor of at least 1),
// skew (a share) and sample-every (a count); or the name of one.
func ParsePlant(changes []string) (Plant, error) {
	var p Plant
	seen := map[string]bool{}
	for _, change := range changes {
		for _, named := range plants() {
			if change == named.name {
				change = named.change
			}
		}
		key, value, ok := strings.Cut(change, "=")
		if !ok {
			return p, fmt.Errorf("plant %q is not key=value, and no name (there are %s)", change, strings.Join(PlantNames(), ", "))
		}
		if seen[key] {
			return p, fmt.Errorf("plant %s is given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "costs":
			p.Costs, err = strconv.ParseFloat(value, 64)
		case "app-costs":
			p.AppCosts, err = strconv.ParseFloat(value, 64)
		case "rtt":
			p.RoundTrip, err = time.ParseDuration(value)
		case "noise":
			p.Noise, err = strconv.ParseFloat(value, 64)
		case "skew":
			p.Skew, err = strconv.ParseFloat(value, 64)
		case "sample-every":
			p.SampleEvery, err = strconv.Atoi(value)
		default:
			return p, fmt.Errorf("plant %q: there is no %s (there are costs, app-costs, rtt, noise, skew, sample-every)", change, key)
		}
		if err != nil {
			return p, fmt.Errorf("plant %q: %q cannot be read", change, value)
		}
		// A value that is given is not the default in disguise.
		if value == "0" {
			return p, fmt.Errorf("plant %q: 0 is no such value", change)
		}
	}
	return p, p.check()
}

func (p Plant) check() error {
	factor := func(name string, v, low, high float64) error {
		if v != 0 && !(v >= low && v <= high) {
			return fmt.Errorf("plant %s=%v is not in %v to %v", name, v, low, high)
		}
		return nil
	}
	for _, err := range []error{
		factor("costs", p.Costs, 0.01, 100),
		factor("app-costs", p.AppCosts, 0.01, 100),
		factor("noise", p.Noise, 1, 100),
		factor("skew", p.Skew, 0.001, 0.999),
		factor("sample-every", float64(p.SampleEvery), 1, 1e6),
	} {
		if err != nil {
			return err
		}
	}
	if p.RoundTrip < 0 || p.RoundTrip > time.Second {
		return fmt.Errorf("plant rtt=%v is not in 0 to 1s", p.RoundTrip)
	}
	return nil
}

// String returns the changes as [ParsePlant] reads them, separated by spaces.
func (p Plant) String() string {
	var out []string
	add := func(key string, v float64) {
		if v != 0 {
			out = append(out, key+"="+strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	add("costs", p.Costs)
	add("app-costs", p.AppCosts)
	if p.RoundTrip != 0 {
		out = append(out, "rtt="+p.RoundTrip.String())
	}
	add("noise", p.Noise)
	add("skew", p.Skew)
	add("sample-every", float64(p.SampleEvery))
	return strings.Join(out, " ")
}

// preset returns the machine that is simulated: so many queues of the preset,
// with their share of its connections, changed by the plant.
func (p Plant) preset(from *sim.Preset, queues int) (*sim.Preset, error) {
	out := *from
	out.Host.Connections = max(queues, from.Host.Connections*queues/from.Host.Queues)
	// The share of bumps follows the host's load, of which this is a part.
	out.Client.BumpShareLoad *= float64(from.Host.Queues) / float64(queues)
	out.Host.Queues = queues
	if p.AppCosts != 0 {
		scale := func(d *time.Duration) { *d = time.Duration(math.Round(float64(*d) * p.AppCosts)) }
		scale(&out.Cost.RequestUser)
		scale(&out.Cost.RequestSystem)
	}
	return out.Vary(sim.Variation{Costs: p.Costs, RoundTrip: p.RoundTrip, HeaviestShare: p.Skew})
}

// digest identifies a value by its JSON.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
