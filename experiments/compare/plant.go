package compare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"autotune/model"
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
	// Noise multiplies the measurement noise that policies see: of Noise²
	// delays one is seen, and counted Noise² times; CPU times are off by a
	// normal factor with standard deviation 1% x sqrt(Noise² - 1). Zero is 1.
	Noise float64 `json:"noise"`
	// Skew is the share of the load on the first queue; zero spreads it over
	// all.
	Skew float64 `json:"skew"`
	// SampleEvery is one in how many requests the probes follow; zero is 1.
	SampleEvery int `json:"sample_every"`
}

// ParsePlant reads changes of the form key=value: costs and app-costs
// (factors), rtt (a duration that is added), noise (a factor of at least 1),
// skew (a share) and sample-every (a count).
func ParsePlant(changes []string) (Plant, error) {
	var p Plant
	seen := map[string]bool{}
	for _, change := range changes {
		key, value, ok := strings.Cut(change, "=")
		if !ok {
			return p, fmt.Errorf("plant %q is not key=value", change)
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
		factor("skew", p.Skew, 0.001, 1),
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
func (p Plant) preset(from *sim.Preset, queues int) *sim.Preset {
	out := *from
	out.Host.Connections = max(queues, from.Host.Connections*queues/from.Host.Queues)
	// The share of bumps follows the host's load, of which this is a part.
	out.Client.BumpShareLoad *= float64(from.Host.Queues) / float64(queues)
	out.Host.Queues = queues
	if p.Costs != 0 {
		cost := reflect.ValueOf(&out.Cost).Elem()
		for i := range cost.NumField() {
			field := cost.Field(i)
			// The time constant of deepening idle is no CPU time.
			if d, ok := field.Interface().(time.Duration); ok && cost.Type().Field(i).Name != "IdleDeepTime" {
				field.SetInt(int64(math.Round(float64(d) * p.Costs)))
			}
		}
	}
	if p.AppCosts != 0 {
		scale := func(d *time.Duration) { *d = time.Duration(math.Round(float64(*d) * p.AppCosts)) }
		scale(&out.Cost.RequestUser)
		scale(&out.Cost.RequestSystem)
	}
	out.Client.RoundTrip += p.RoundTrip
	return &out
}

// load returns the load with the plant's skew.
func (p Plant) load(l sim.Load, queues int) sim.Load {
	if p.Skew == 0 || queues < 2 {
		return l
	}
	return skewed{l, p.Skew, queues}
}

// skewed gives the first queue a share of the load, and spreads the rest.
type skewed struct {
	load   sim.Load
	first  float64
	queues int
}

// Path implements [sim.Load].
func (s skewed) Path(q sim.QueueShare) sim.Path {
	if q.Index == 0 {
		q.Fraction = s.first
	} else {
		q.Fraction = (1 - s.first) / float64(s.queues-1)
	}
	return s.load.Path(q)
}

// lens is what stands between the host and the policy.
type lens struct {
	random *rand.Rand
	// keep is the share of delays that are seen, each as weight.
	keep     float64
	weight   uint64
	every    uint32
	cpuNoise float64
}

// lens returns nil where policies see everything.
func (p Plant) lens(seed uint64) *lens {
	noise, every := max(p.Noise, 1), max(p.SampleEvery, 1)
	if noise == 1 && every == 1 {
		return nil
	}
	square := math.Round(noise * noise)
	return &lens{
		random: rand.New(rand.NewPCG(seed, 0x6c656e73)),
		keep:   1 / square / float64(every), weight: uint64(square), every: uint32(every),
		cpuNoise: 0.01 * math.Sqrt(noise*noise-1),
	}
}

// see returns what the policy is shown of a sample.
func (l *lens) see(s model.Sample) model.Sample {
	if l == nil {
		return s
	}
	factor := max(0.1, 1+l.cpuNoise*l.random.NormFloat64())
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	for i := range s.Queues {
		q := &s.Queues[i]
		q.SampleEvery = l.every
		for _, h := range []**model.Histogram{&q.Delay, &q.RingWait, &q.SocketWait, &q.Service} {
			*h = l.thin(*h)
		}
	}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		c.Busy = min(scale(c.Busy), s.Span)
		for _, d := range []**time.Duration{&c.NetRX, &c.NetRXIdle} {
			if *d != nil {
				v := scale(**d)
				*d = &v
			}
		}
	}
	for i := range s.Apps {
		s.Apps[i].CPU = scale(s.Apps[i].CPU)
	}
	if s.Latency != nil {
		latency := *s.Latency
		latency.Histogram = *l.thin(&latency.Histogram)
		s.Latency = &latency
	}
	return s
}

func (l *lens) thin(h *model.Histogram) *model.Histogram {
	if h == nil {
		return nil
	}
	out := new(model.Histogram)
	for i, n := range h.Counts {
		if n > 0 {
			out.Counts[i] = l.weight * uint64(distuv.Binomial{N: float64(n), P: l.keep, Src: l.random}.Rand())
		}
	}
	return out
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
