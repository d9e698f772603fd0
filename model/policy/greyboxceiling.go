package policy

import (
	"math"
	"slices"
	"time"

	"autotune/model"
)

// greyboxLately is the last values of what the host spoils now and then.
type greyboxLately struct {
	values [9]float64
	seen   int
	middle float64
}

func (l *greyboxLately) see(x float64) {
	l.values[l.seen%len(l.values)] = x
	l.seen++
	known := l.values
	sorted := known[:min(l.seen, len(known))]
	slices.Sort(sorted)
	l.middle = sorted[(len(sorted)-1)/2]
}

// median returns the middle one, of two the lesser; zero before the first.
func (l *greyboxLately) median() float64 { return l.middle }

// greyboxCeilings are the delays in microseconds that plain interrupts showed of
// late, by half octaves of load. Deferral adds its flush timeout to them at most,
// as long as the CPU has room: a packet waits for the timer no longer than that.
// It needs no model, so what is entered by it is not left for what a model says
// after a few windows that the host spoilt.
type greyboxCeilings map[int]*greyboxLately

func (c greyboxCeilings) see(f *model.Features) {
	if f.Active.Mode() != model.ModeInterrupts || math.Abs(f.RateChange) > greyboxJump {
		return
	}
	// Half octaves overlap, so that a load at the border of two is within one.
	below := int(math.Floor(2 * math.Log2(f.PacketRate)))
	for at := below; at <= below+1; at++ {
		if c[at] == nil {
			c[at] = &greyboxLately{}
		}
		c[at].see(micros(f.Quantile))
	}
}

// of returns what the delay comes to at most, in microseconds; ok is false where
// interrupts were not seen at this load.
func (c greyboxCeilings) of(flush time.Duration, packetRate float64) (delay float64, ok bool) {
	l := c[halfOctave(packetRate)]
	if l == nil {
		return 0, false
	}
	return l.median() + micros(flush), true
}

// halfOctave numbers the half octaves of packets per second.
func halfOctave(packetRate float64) int { return int(math.Round(2 * math.Log2(packetRate))) }
