package tuner

import (
	"fmt"
	"time"

	"autotune/model"
)

// breakerGuard freezes a direction in which moves keep being reverted.
type breakerGuard struct{}

// fuseKind is what counts as the same kind of move.
type fuseKind struct {
	direction int
	octave    int
	safety    bool
}

// fuse counts the reverts of one kind.
type fuse struct {
	reverts []int
	until   time.Duration
	freeze  time.Duration
}

func (breakerGuard) rule(t *turn, next func() ruling) ruling {
	r := next()
	if !r.moves() || !t.loop.tried(r.purpose) {
		return r
	}
	k := kindOf(t.active, r.settings, r.purpose, t.merged.PacketRate)
	if f, ok := t.q.fuses[k]; ok && t.sample.At < f.until {
		return t.deny(r, model.VerdictRefused, "breaker", fmt.Sprintf("such moves were reverted %s in %s; frozen for %v more",
			model.Count(t.loop.options.Breaker.Reverts, "time"), model.Count(t.loop.options.Breaker.Windows, "window"), (f.until-t.sample.At).Round(time.Second)))
	}
	return r
}

// tried reports whether moves of this purpose are put on trial.
func (*Loop) tried(p model.Purpose) bool {
	return p == model.PurposeCost || p == model.PurposeExploration || p == model.PurposeSafety
}

func kindOf(from, to model.Settings, purpose model.Purpose, rate float64) fuseKind {
	return fuseKind{direction: direction(from, to), octave: loadIndex(rate) / 2, safety: purpose == model.PurposeSafety}
}

// blow counts a revert.
func (t *turn) blow(k fuseKind) {
	o := t.loop.options.Breaker
	f, ok := t.q.fuses[k]
	if !ok {
		f = &fuse{}
		t.q.fuses[k] = f
	}
	recent := f.reverts[:0]
	for _, at := range f.reverts {
		if t.q.turns-at < o.Windows {
			recent = append(recent, at)
		}
	}
	f.reverts = append(recent, t.q.turns)
	if len(f.reverts) < o.Reverts {
		return
	}
	f.reverts = f.reverts[:0]
	if f.freeze == 0 {
		f.freeze = o.Freeze
	} else if f.freeze < 1000*time.Hour {
		f.freeze *= 2
	}
	f.until = t.sample.At + f.freeze
}
