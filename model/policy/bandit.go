package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"autotune/model"
)

// What linucb and thompson share: the choices, the features, the reward, and a
// Bayesian linear model of it that forgets.

const (
	// banditKnots are the flush timeouts, half an octave apart, between which
	// the reward is taken to be linear in the logarithm: few enough to learn,
	// and close enough together to show the edge where the SLO breaks.
	banditKnots = 11
	// banditMost is the last knot: beyond it the model knows no difference.
	banditMost = gridStart << ((banditKnots - 1) / 2)
	// banditNoise is the standard deviation of a window's reward, banditWeight
	// that of the weights before anything is known.
	banditNoise  = 0.06
	banditWeight = 0.3
	// banditForget is the share of what is known that a window keeps. The rest
	// returns to the prior, so that what is not seen again is tried again.
	banditForget = 0.998
	// banditGain is the gain below which a change is not worth it.
	banditGain = 0.015
	// banditReach is how many steps of the grid a choice goes up or down, and
	// banditEntry the timeout that may always be reached.
	banditReach = 2
	banditEntry = 50 * time.Microsecond
	// banditMargin is the share of the SLO at which the penalty begins,
	// banditPenalty its slope in the logarithm of the delay, and banditWorst
	// its most.
	banditMargin  = 0.93
	banditPenalty = 3
	banditWorst   = 1.5
)

// banditQueue is what is known of one queue in one mode.
type banditQueue struct {
	random *rand.Rand
	// load and cost are the logarithms of the first window's, from which the
	// others are measured.
	load, cost float64
	known      bool
	model      *banditModel
}

func newBanditQueue(seed uint64, q model.Queue) *banditQueue {
	return &banditQueue{random: rand.New(rand.NewPCG(seed, queueStream(q))), model: newBanditModel()}
}

// queueStream keeps a queue's draws the same whatever other queues come and go.
func queueStream(q model.Queue) uint64 {
	return q.Netns ^ uint64(q.Ifindex)<<32 ^ uint64(q.Index)
}

// reward is what a window was worth: less CPU per packet is more, and each step
// above the SLO costs more than any step of the grid saves.
func (b *banditQueue) reward(f model.Features) float64 {
	r := b.cost - math.Log(float64(f.CostPerPacket))
	if f.Objective.SLO > 0 {
		over := math.Log(float64(f.Quantile) / (banditMargin * float64(f.Objective.SLO)))
		r -= min(banditWorst, banditPenalty*max(0, over))
	}
	return max(-4, min(r, 4))
}

// relative returns a load as the model takes it: the logarithm of its ratio to
// the first.
func (b *banditQueue) relative(packetRate float64) float64 {
	return max(-3, min(math.Log(packetRate)-b.load, 3))
}

// learn takes what the active setting showed.
func (b *banditQueue) learn(f model.Features) {
	if !b.known {
		b.load, b.cost = math.Log(f.PacketRate), math.Log(float64(f.CostPerPacket))
		b.known = true
	}
	b.model.learn(featuresAt(current(f.Active), b.relative(f.PacketRate)), b.reward(f))
}

// reachable returns the positions that may be chosen from where the queue is:
// within two steps of the grid, any lower where the SLO is broken, plain
// interrupts, and not below where less timeout adds load. The position of what
// is active, or of what is nearest to it, is among them.
func reachable(choices []time.Duration, f model.Features) []int {
	at := nearest(choices, current(f.Active))
	low, high := at-banditReach, at+banditReach
	for high < len(choices)-1 && choices[high+1] <= banditEntry {
		high++
	}
	interrupts := true
	switch {
	case timersAreTheLoad(f):
		// Interrupts have no timer, but would be less timeout to the guards.
		low, interrupts = at, at == 0
	case broken(f):
		low = 1
	}
	var out []int
	if interrupts || at == 0 {
		out = append(out, 0)
	}
	for i := max(1, low); i <= min(high, len(choices)-1); i++ {
		out = append(out, i)
	}
	return out
}

// ahead returns the load to decide for: a rise is taken to go on by half.
func ahead(f model.Features) float64 {
	change := f.RateChange
	if !(change > 0) {
		return f.PacketRate
	}
	return f.PacketRate * (1 + min(change, 1)/2)
}

// bandit is the part of a bandit policy that knows nothing of how it chooses.
type bandit struct {
	seed    uint64
	choices []time.Duration
	queues  map[banditKey]*banditQueue
	// root is room for a prediction.
	root *banditRoot
}

type banditKey struct {
	queue model.Queue
	mode  model.Mode
}

func newBandit(seed uint64, limit time.Duration) bandit {
	return bandit{seed: seed, choices: choices(limit), queues: make(map[banditKey]*banditQueue), root: new(banditRoot)}
}

// predict returns the mean of the reward of a flush timeout, and its standard
// deviation.
func (p *bandit) predict(b *banditQueue, flush time.Duration, packetRate float64) (mean, deviation float64) {
	return b.model.predict(featuresAt(flush, b.relative(packetRate)), p.root)
}

// Suspends reports that suspension is proposed where applications are ready.
func (p *bandit) Suspends() bool { return true }

// observe learns from a window. The queue is nil when there is nothing to
// decide by, for the reason given.
func (p *bandit) observe(f model.Features) (*banditQueue, string) {
	if why := unobserved(f); why != "" {
		return nil, why
	}
	key := banditKey{f.Queue, modeFor(f)}
	b, ok := p.queues[key]
	if !ok {
		b = newBanditQueue(p.seed, f.Queue)
		p.queues[key] = b
	}
	if m := f.Active.Mode(); m != model.ModeInterrupts && m != key.mode && b.known {
		return b, ""
	}
	b.learn(f)
	return b, ""
}

// chosen is what a bandit settled on.
type chosen struct {
	position   int
	propensity float64
	explores   bool
	how        string
}

// decide turns a choice into a decision.
func (p *bandit) decide(b *banditQueue, f model.Features, c chosen) model.Decision {
	flush := p.choices[c.position]
	was, _ := p.predict(b, current(f.Active), ahead(f))
	will, sd := p.predict(b, flush, ahead(f))
	why := fmt.Sprintf("%s among %s: reward %.3f +- %.3f against %.3f of %v", c.how, describe(flush), will, sd, was, describe(current(f.Active)))
	s := settingsFor(modeFor(f), flush, f)
	if s == f.Active || flush == current(f.Active) && f.Active.Mode() == s.Mode() {
		return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: why, Propensity: c.propensity}
	}
	d := model.Decision{Settings: s, Purpose: model.PurposeCost, Why: why, Propensity: c.propensity}
	switch {
	case broken(f):
		d.Purpose = model.PurposeSafety
		if timersAreTheLoad(f) && flush < current(f.Active) {
			d.Purpose = model.PurposeExploration
		}
	case c.explores:
		d.Purpose = model.PurposeExploration
	}
	return d
}

func describe(flush time.Duration) string {
	if flush <= 0 {
		return "plain interrupts"
	}
	return fmt.Sprintf("flush %v", flush)
}
