package counterfactual

import (
	"maps"
	"slices"
	"time"

	"autotune/model"
)

// Choices pairs what a recorded run drew with what followed, queue by queue.
// The zero value is ready to use.
type Choices struct {
	Objective model.Objective

	open map[model.Queue]*openChoice
	done []Choice
}

type openChoice struct {
	choice             Choice
	windows            int
	cost               time.Duration
	packets            float64
	delay              float64
	judged, violations int
}

// Decide notes that settings were applied to a queue at the end of a window
// that had the packet rate given, and what the policy in question proposed then.
func (c *Choices) Decide(q model.Queue, rate float64, taken model.Settings, propensity float64, target model.Settings) {
	c.end(q)
	if c.open == nil {
		c.open = make(map[model.Queue]*openChoice)
	}
	c.open[q] = &openChoice{choice: Choice{PacketRate: rate, Taken: taken, Propensity: propensity, Target: target}}
}

// Add takes the next sample. A queue whose settings are no longer those that
// were applied ends its choice.
func (c *Choices) Add(s *model.Sample) {
	spoilt := disturbed(s)
	costs := model.Costs(s)
	for i := range s.Queues {
		q := &s.Queues[i]
		o := c.open[q.Queue]
		if o == nil {
			continue
		}
		// Of how applications poll the kernel reads nothing back.
		active, taken := s.Active[q.Queue], o.choice.Taken
		active.BusyPoll, taken.BusyPoll = model.BusyPoll{}, model.BusyPoll{}
		if active != taken {
			c.end(q.Queue)
			continue
		}
		if o.windows++; o.windows == 1 || spoilt {
			continue // the settings before had a part in the first
		}
		if cost, ok := costs[q.Queue]; ok {
			o.cost += cost
			o.packets += float64(q.Polls().Packets)
		}
		if q.Delay != nil && q.Delay.Count() > 0 {
			d := q.Delay.Quantile(c.Objective.Quantile)
			o.delay += float64(d) / 1e3
			o.judged++
			if d > c.Objective.SLO {
				o.violations++
			}
		}
	}
}

func (c *Choices) end(q model.Queue) {
	o := c.open[q]
	delete(c.open, q)
	if o == nil || o.packets == 0 || o.judged == 0 {
		return
	}
	o.choice.Result = Result{
		CPUPerPacketUs: float64(o.cost) / 1e3 / o.packets,
		DelayUs:        o.delay / float64(o.judged),
		Violating:      float64(o.violations) / float64(o.judged),
	}
	c.done = append(c.done, o.choice)
}

// List ends all choices and returns them.
func (c *Choices) List() []Choice {
	for _, q := range slices.SortedFunc(maps.Keys(c.open), model.Queue.Compare) {
		c.end(q)
	}
	return c.done
}
