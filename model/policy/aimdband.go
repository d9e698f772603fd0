package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// aimdBand is what is known of one load regime.
type aimdBand struct {
	age       int
	best      model.Settings
	confirmed bool
	steady    int
	costs     map[model.Settings]*aimdCost
	up, down  aimdRest
	// suspension is the rest of going from interrupts or deferral to suspension.
	suspension aimdRest
	// perPoll is the number of packets that a poll found under plain
	// interrupts; zero when not seen.
	perPoll float64
	// ceiling is the flush timeout at which the SLO broke; zero when none.
	ceiling  time.Duration
	ceilRest aimdRest
}

type aimdCost struct {
	mean float64
	n    int
	age  int
}

// aimdRest keeps a failed direction alone until the band's age passes until.
type aimdRest struct {
	until    int
	failures int
}

func (r *aimdRest) fail(age int, loss float64) {
	pause := max(aimdPause, int(loss/aimdBudget))
	for range r.failures {
		pause *= 2
		if pause > aimdMaxPause {
			break
		}
	}
	r.failures++
	r.until = age + min(pause, aimdMaxPause)
}

// locate returns the band of a load, with hysteresis of a quarter band, and
// whether it was known. An unknown band is made only while load is steady;
// otherwise it is nil.
func (q *aimdQueue) locate(packetRate float64, steady bool) (band *aimdBand, known bool) {
	position := 2 * math.Log2(packetRate)
	index := q.band
	if !q.hasBand || math.Abs(position-float64(q.band)) > 0.75 {
		index = int(math.Round(position))
	}
	band, known = q.bands[index]
	if !known {
		if !steady {
			return nil, false
		}
		band = &aimdBand{costs: make(map[model.Settings]*aimdCost)}
		q.bands[index] = band
	}
	if !q.hasBand || index != q.band {
		q.breaches = 0
	}
	q.band, q.hasBand = index, true
	return band, known
}

// ahead returns the confirmed band that is the nearest to where load arrives
// if it moves on as it did, provided that it moves towards that band; nil when
// there is none. A window in which load changed from one known level to another
// looks like a third, and waiting for the next would cost it.
func (q *aimdQueue) ahead(f model.Features) *aimdBand {
	position := 2 * math.Log2(f.PacketRate)
	arrives := position + 2*math.Log2(max(0.01, 1+f.RateChange))
	var best *aimdBand
	at, nearest := 0, math.Inf(1)
	for index, b := range q.bands {
		distance := math.Abs(float64(index) - arrives)
		// The lower of two equally near bands defers less.
		if b.confirmed && (distance < nearest || distance == nearest && index < at) {
			best, at, nearest = b, index, distance
		}
	}
	if best == nil || (float64(at) > position) != (f.RateChange > 0) {
		return nil
	}
	return best
}

// neighbour returns the setting to begin a new band with, from the nearest
// confirmed one, and what directly adjoins hands on its rests, halved.
func (q *aimdQueue) neighbour(band *aimdBand, active model.Settings) model.Settings {
	best, distance := active, math.MaxInt
	var from *aimdBand
	for index, b := range q.bands {
		d := max(index-q.band, q.band-index)
		// The lower of two equally near bands defers less.
		if !b.confirmed || b == band || d > distance || d == distance && index > q.band {
			continue
		}
		best, distance, from = b.best, d, b
	}
	if from != nil && distance == 1 {
		band.up = aimdRest{until: max(0, from.up.until-from.age) / 2, failures: from.up.failures}
		band.down = aimdRest{until: max(0, from.down.until-from.age) / 2, failures: from.down.failures}
		band.suspension = aimdRest{until: max(0, from.suspension.until-from.age) / 2, failures: from.suspension.failures}
		band.ceiling = from.ceiling
		band.ceilRest = aimdRest{until: max(0, from.ceilRest.until-from.age) / 2, failures: from.ceilRest.failures}
	}
	return best
}

// note keeps the cost of the active setting, when the window is of one load.
func (b *aimdBand) note(f model.Features, steady bool) {
	b.age++
	if !steady {
		return
	}
	if f.Active.Mode() == model.ModeInterrupts {
		b.perPoll = packetsPerPoll(f)
	}
	if f.Active == b.best {
		b.steady++
		if b.steady >= aimdSettled {
			b.confirmed = true
		}
	}
	if f.CostPerPacket <= 0 {
		return
	}
	c, ok := b.costs[f.Active]
	if !ok {
		if len(b.costs) >= aimdCosts {
			b.forget()
		}
		c = &aimdCost{}
		b.costs[f.Active] = c
	}
	c.n++
	c.age = b.age
	// A mean over the first windows, then a slow average that follows drift.
	weight := max(1/float64(c.n), 0.1)
	c.mean += weight * (float64(f.CostPerPacket) - c.mean)
}

// fruitful is [fruitful] with what the band knows of plain interrupts. Under
// suspension timers fire only where the application has gone to sleep, however
// few packets come.
func (b *aimdBand) fruitful(f model.Features) time.Duration {
	if f.Suspension.Ready {
		return gridStart
	}
	return fruitful(f.PacketRate, max(b.perPoll, packetsPerPoll(f)))
}

// forget drops the cost that was noted the longest ago, but neither that of the
// best setting nor that of plain interrupts, which trying again costs the most.
// Each window notes one, so that no two are of the same age.
func (b *aimdBand) forget() {
	var oldest model.Settings
	age := math.MaxInt
	for s, c := range b.costs {
		if c.age < age && s != b.best && s != (model.Settings{}) {
			oldest, age = s, c.age
		}
	}
	delete(b.costs, oldest)
}

func (b *aimdBand) costWhy(s model.Settings) string {
	c, ok := b.costs[s]
	if !ok {
		return ""
	}
	return fmt.Sprintf(", at %v per packet", time.Duration(c.mean).Round(10*time.Nanosecond))
}
