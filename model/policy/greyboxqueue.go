package policy

import (
	"math"
	"time"

	"autotune/model"
	"autotune/model/bayes"
)

const (
	// greyboxForget is what a window's weight is multiplied with per window
	// seen in the same mode: half of it is gone after 34.
	greyboxForget = 0.98
	// greyboxClip bounds the standardised error of an observation (Huber): a
	// window beyond it pulls that much and no more.
	greyboxClip = 2.5
	// greyboxDrift and greyboxShift are those of the cumulative sums of
	// standardised errors that tell a change of the law from noise.
	greyboxDrift = 0.75
	greyboxShift = 9
	// greyboxKeep is the share of what was learned that outlives a change.
	greyboxKeep = 0.4
	// A violation in a window whose load rose by more than greyboxJump adds to
	// the caution, and quiet takes off, as with the margin. The load that
	// caution looks at sinks to the present one within some
	// greyboxPeakWindows.
	greyboxJump        = 0.1
	greyboxCautionStep = 0.35
	greyboxPeakWindows = 40
	// greyboxLate is the multiple of the SLO at which delays are censored.
	greyboxLate = 8
	// greyboxModeration is the relative error of a delay under the device's
	// interrupt moderation, which wanders.
	greyboxModeration = 0.2
	// greyboxMargin is the margin for noise at the start, in standard deviations
	// of a window's delay; violations add and quiet windows take off, so that
	// in the long run a share of greyboxViolations remains of noise alone.
	greyboxMargin     = 2.3
	greyboxMarginLow  = 0.5
	greyboxMarginHigh = 6.0
	greyboxViolations = 0.005
	greyboxMarginStep = 0.6
)

// greyboxNoise is the error of single windows, relative to what they measure.
type greyboxNoise struct {
	variance float64
	windows  float64
}

// observe adds a squared relative error; expected is the part of it that is not
// noise.
func (n *greyboxNoise) observe(square, expected float64) {
	const longest = 25
	n.windows = min(n.windows+1, longest)
	n.variance += (max(0, square-expected) - n.variance) / n.windows
	n.variance = max(n.variance, 1e-4)
}

// greyboxShiftSum tells a change of the law from noise: cumulative sums of
// standardised errors to either side.
type greyboxShiftSum struct{ up, down float64 }

func (s *greyboxShiftSum) add(z float64) (shifted bool) {
	z = max(-6, min(6, z))
	s.up = max(0, s.up+z-greyboxDrift)
	s.down = max(0, s.down-z-greyboxDrift)
	if s.up < greyboxShift && s.down < greyboxShift {
		return false
	}
	*s = greyboxShiftSum{}
	return true
}

// greyboxQueue is what is known of one queue.
type greyboxQueue struct {
	queue       model.Queue
	cost, delay *bayes.Regression
	costNoise   greyboxNoise
	delayNoise  greyboxNoise
	costShift   greyboxShiftSum
	delayShift  greyboxShiftSum
	// margin is the number of standard deviations of a window's noise that are
	// kept free below the SLO.
	margin float64
	// peak is the highest load of late, in packets per second, and caution how
	// much of the way there is prepared for, 0 to 1.
	peak, caution float64
	// full is the utilisation per CPU time of the queue's own packets: above 1
	// where its CPU serves others too.
	full float64

	// windows counts the decisions, moved is that of the last move, and shared
	// that of the last exchange with the device.
	windows, moved, shared int
	// proven counts the windows in a row that the models predicted within
	// their error.
	proven int
	// bad counts the windows in a row above the SLO.
	bad int
	// held is the largest flush timeout, by mode, at which the SLO held.
	held [greyboxModes]time.Duration
	// rests are the moves that were refused or taken back.
	rests map[greyboxMove]*greyboxRest
	// last is the proposal of which the outcome is awaited.
	last *greyboxProposal
	// note is said with the next decision.
	note string
}

// greyboxMove is a kind of move at a load.
type greyboxMove struct {
	to     greyboxMode
	up     bool
	octave int
}

// octave numbers the octaves of packets per second.
func octave(packetRate float64) int { return int(math.Round(math.Log2(packetRate))) }

type greyboxRest struct{ until, failures int }

type greyboxProposal struct {
	move greyboxMove
	to   model.Settings
	from model.Settings
	// rate is the load and cost the CPU time per packet before it.
	rate, cost float64
}

func newGreyboxQueue(id model.Queue, priors greyboxPriors) *greyboxQueue {
	return &greyboxQueue{
		queue:      id,
		cost:       bayes.NewRegression(priors.cost, greyboxForget, int(greyboxModes)),
		delay:      bayes.NewRegression(priors.delay, greyboxForget, int(greyboxModes)),
		costNoise:  greyboxNoise{variance: 0.03 * 0.03, windows: 4},
		delayNoise: greyboxNoise{variance: 0.03 * 0.03, windows: 4},
		margin:     greyboxMargin,
		full:       1,
		rests:      make(map[greyboxMove]*greyboxRest),
	}
}

// learn takes what the window shows.
func (q *greyboxQueue) learn(f *model.Features) {
	q.windows++
	q.note = ""
	q.peak = max(f.PacketRate, q.peak+(f.PacketRate-q.peak)/greyboxPeakWindows)
	q.outcome(f)
	mode, flush := greyboxModeOf(f.Active), current(f.Active)
	// A window across a change of load describes neither load.
	blur := 1 + 25*f.RateChange*f.RateChange
	inside := true
	if c := float64(f.CostPerPacket); c > 0 {
		x := costRow(mode, flush, f.PacketRate)
		mean, variance := q.cost.Predict(&x)
		noise := q.costNoise.variance * blur
		miss := math.Log(c) - mean
		total := math.Sqrt(variance + noise)
		z := miss / total
		inside = math.Abs(z) <= greyboxClip
		shifted := q.costShift.add(z)
		if shifted {
			q.cost.Keep(int(mode), greyboxKeep)
			q.note = "its cost changed"
		}
		q.cost.Observe(int(mode), &x, math.Log(c), doubted(noise, total, z, shifted))
		miss = max(-greyboxClip*total, min(greyboxClip*total, miss))
		q.costNoise.observe(miss*miss/blur, variance/blur)
		if u := f.Utilisation; u > 0 {
			q.full += 0.2 * (min(20, u/(f.PacketRate*c*1e-9)) - q.full)
		}
	}
	if f.Quantile > 0 {
		// How far beyond the SLO an overload goes follows no law.
		l := min(micros(f.Quantile), greyboxLate*micros(f.Objective.SLO))
		x := delayRow(mode, flush, f.PacketRate, q.utilisation(f))
		mean, variance := q.delay.Predict(&x)
		scale := max(mean, 10)
		relative := q.delayNoise.variance
		if mode == interrupting {
			relative = max(relative, greyboxModeration*greyboxModeration)
		}
		noise := relative * scale * scale * blur
		miss := l - mean
		total := math.Sqrt(variance + noise)
		z := miss / total
		inside = inside && math.Abs(z) <= greyboxClip
		shifted := q.delayShift.add(z)
		if shifted {
			q.delay.Keep(int(mode), greyboxKeep)
			q.note = "its delay changed"
		}
		q.delay.Observe(int(mode), &x, l, doubted(noise, total, z, shifted))
		miss = max(-greyboxClip*total, min(greyboxClip*total, miss))
		if mode != interrupting {
			q.delayNoise.observe(miss*miss/(scale*scale*blur), variance/(scale*scale*blur))
		}
	}
	if inside {
		q.proven++
	} else {
		q.proven = 0
	}
	q.judge(f, mode, flush)
}

// doubted returns the variance of an observation that is off by z standard
// deviations in total: beyond greyboxClip its pull grows no more, as Huber's.
// What a change of the law explains is believed.
func doubted(noise, total, z float64, shifted bool) float64 {
	if off := math.Abs(z); off > greyboxClip && !shifted {
		return noise + (off/greyboxClip-1)*total*total
	}
	return noise
}

// judge holds the window against the SLO.
func (q *greyboxQueue) judge(f *model.Features, mode greyboxMode, flush time.Duration) {
	violated := 0.0
	if f.Objective.SLO > 0 && f.Quantile > f.Objective.SLO {
		violated = 1
		q.bad++
	} else {
		q.bad = 0
		if f.Quantile > 0 {
			q.held[mode] = max(q.held[mode], flush)
		}
	}
	if q.bad >= 2 {
		q.held[mode] = min(q.held[mode], flush)
	}
	if mode == interrupting && violated > 0 {
		// Nothing that the margin governs was chosen.
		return
	}
	if jumped := f.RateChange > greyboxJump; jumped || violated == 0 {
		q.caution = max(0, min(1, q.caution+greyboxCautionStep*(violated-greyboxViolations)))
		if jumped {
			// The load did it, not the noise.
			return
		}
	}
	q.margin = max(greyboxMarginLow, min(greyboxMarginHigh, q.margin+greyboxMarginStep*(violated-greyboxViolations)))
}

// utilisation returns that of the window.
func (q *greyboxQueue) utilisation(f *model.Features) float64 {
	if u := f.Utilisation; u >= 0 {
		return u
	}
	return q.full * f.PacketRate * float64(f.CostPerPacket) * 1e-9
}

// outcome takes the fate of the last proposal.
func (q *greyboxQueue) outcome(f *model.Features) {
	p := q.last
	if p == nil {
		return
	}
	switch f.Outcome.Verdict {
	case model.VerdictApplied, model.VerdictAdvised:
		// Under way, with or without a trial.
		return
	case model.VerdictKept:
		delete(q.rests, p.move)
	case model.VerdictReverted:
		if c := f.Outcome.CostChange; c != 0 && p.cost > 0 && f.Active == f.Outcome.From {
			// What a trial measured and ended at once no window shows.
			const trialError = 0.1
			x := costRow(greyboxModeOf(f.Outcome.To), current(f.Outcome.To), p.rate)
			q.cost.Observe(int(greyboxModeOf(f.Outcome.To)), &x, math.Log(p.cost*max(0.1, 1+c)), trialError*trialError)
		}
		// What cost half a window more is not tried again for fifty.
		q.rest(p.move, max(8, int(100*f.Outcome.CostChange)))
	case model.VerdictRefused, model.VerdictFailed:
		q.rest(p.move, 8)
	case model.VerdictHeld, model.VerdictAborted:
	default:
		if f.Active == p.to {
			return
		}
	}
	q.last = nil
}

// rest leaves a kind of move alone, for longer each time in a row.
func (q *greyboxQueue) rest(m greyboxMove, windows int) {
	const longest = 1024
	r, ok := q.rests[m]
	if !ok {
		r = &greyboxRest{}
		q.rests[m] = r
	}
	r.until = q.windows + min(longest, windows<<min(r.failures, 10))
	r.failures++
}

// decided notes what was proposed.
func (q *greyboxQueue) decided(f *model.Features, d *model.Decision) {
	if d.Purpose == model.PurposeHold || d.Settings == f.Active {
		return
	}
	q.moved = q.windows
	q.last = &greyboxProposal{
		move: greyboxMove{to: greyboxModeOf(d.Settings), up: current(d.Settings) > current(f.Active), octave: octave(f.PacketRate)},
		from: f.Active, to: d.Settings, rate: f.PacketRate, cost: float64(f.CostPerPacket),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
