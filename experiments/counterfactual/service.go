package counterfactual

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"autotune/model"
	"autotune/model/sim"
)

const (
	// mostServices is how many service times are kept, leastServices how many
	// it takes to tell their distribution.
	mostServices  = 4096
	leastServices = 200
	// shapeQuantiles is the number of equally likely values that stand for the
	// distribution.
	shapeQuantiles = 64
	// varied is the ratio of the p90 to the median from which on service times
	// differ by more than caches and interrupts make of equal work, which are
	// simulated.
	varied = 2
	// mostServiceWeight bounds the say of one long request.
	mostServiceWeight = 20
)

// services is a uniform sample of the service times that no poll lengthened.
type services struct {
	kept   []service
	seen   int
	random *rand.Rand
}

// service is one service time. Weight makes up for those of its length that a
// poll did lengthen.
type service struct{ time, weight float64 }

// add takes the requests of a queue in a window of the length span. Requests that
// one of the queue's polls interrupted took longer than their work. The longer a
// request, the likelier that; polls that come at random spare exp(-rate x time)
// of them.
func (s *services) add(e *queueEvents, span time.Duration) {
	var interrupting []time.Duration
	for _, p := range e.polls {
		if p.Loop != model.LoopApplication {
			interrupting = append(interrupting, p.At)
		}
	}
	perNanosecond := float64(len(interrupting)) / float64(span)
	for i := range e.requests {
		q := &e.requests[i]
		if q.Receive == nil || q.Send == nil || *q.Send <= *q.Receive {
			continue
		}
		// A poll that ended right after the send had begun before it.
		k, _ := slices.BinarySearch(interrupting, *q.Receive)
		if k < len(interrupting) && interrupting[k] <= *q.Send {
			continue
		}
		took := float64(*q.Send - *q.Receive)
		s.keep(service{took, min(math.Exp(perNanosecond*took), mostServiceWeight)})
	}
}

func (s *services) keep(v service) {
	if s.random == nil {
		s.random = rand.New(rand.NewPCG(1, 0x5e4))
	}
	s.seen++
	if len(s.kept) < mostServices {
		s.kept = append(s.kept, v)
	} else if i := s.random.IntN(s.seen); i < mostServices {
		s.kept[i] = v
	}
}

// shape returns equally likely factors of the mean service time, ascending; nil
// where too few were seen, or where they vary no more than those of equal work.
func (s *services) shape() []float64 {
	if len(s.kept) < leastServices {
		return nil
	}
	sorted := slices.Clone(s.kept)
	slices.SortFunc(sorted, func(a, b service) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.weight, b.weight)) })
	total := 0.0
	for _, v := range sorted {
		total += v.weight
	}
	out := make([]float64, 0, shapeQuantiles)
	below, sum := 0.0, 0.0
	for _, v := range sorted {
		below += v.weight
		for len(out) < shapeQuantiles && below >= (float64(len(out))+0.5)/shapeQuantiles*total {
			out = append(out, v.time)
			sum += v.time
		}
	}
	if median := out[shapeQuantiles/2]; out[shapeQuantiles*9/10] < varied*median {
		return nil
	}
	for i := range out {
		out[i] *= shapeQuantiles / sum
	}
	return out
}

// vary gives the requests of a cost model, which are the median, the distribution
// of those that were seen, if that is known. What was seen takes the place of a
// distribution that the model had.
func (s *services) vary(c *sim.CostModel) {
	shape := s.shape()
	if shape == nil {
		return
	}
	// The costs are of the mean request.
	mean := 1 / shape[len(shape)/2]
	c.ServiceShape, c.ExponentialService = shape, false
	c.RequestUser = time.Duration(float64(c.RequestUser) * mean)
	c.RequestSystem = time.Duration(float64(c.RequestSystem) * mean)
}

// Services returns how many service times the distribution of service times is
// from; zero where requests are taken to be equal work.
func (r *Recording) Services() int {
	r.settle()
	if r.services.shape() == nil {
		return 0
	}
	return r.services.seen
}
