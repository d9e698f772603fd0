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
	// greyboxTailed is the utilisation from which on, under deferral, single
	// windows are late by far at settings that hold in others: no change of the
	// law, which drops nothing.
	greyboxTailed = greyboxFullDeferring
	// The caution is what it is worth, in CPUs, that no window breaks the SLO
	// when load jumps to the highest of late: greyboxCaution at first, and less
	// by one part in greyboxQuiet with each quiet window. A violation in a window
	// whose load rose by more than greyboxJump adds greyboxCautionStep, up to
	// greyboxCautionMost. The highest load of late sinks to the present one
	// within some greyboxPeakWindows.
	greyboxJump        = 0.1
	greyboxCaution     = 0.035
	greyboxCautionStep = 0.01
	greyboxCautionMost = 0.035
	// greyboxCautionReady is the share of it where interrupts may be suspended:
	// there a shorter timeout mends in the next window what a jump broke.
	greyboxCautionReady = 0.3
	// Below greyboxCautionLeast it is not worth to be reckoned with.
	greyboxCautionLeast = 0.001
	greyboxQuiet        = 150
	greyboxPeakWindows  = 160
	// A quantile that is greyboxOdd errors and greyboxOddFactor above what was
	// predicted, where load did not rise by more than greyboxJump, is taken for
	// a disturbance of the host until the next window says the same.
	greyboxOdd       = 6
	greyboxOddFactor = 1.5
	// Of a host that did so in greyboxStalling of the last greyboxStallWindows,
	// less is taken for that, up to greyboxOddMost windows in a row, and where
	// load jumped, too.
	greyboxStalling       = 2
	greyboxStallWindows   = 200
	greyboxOddAgain       = 3
	greyboxOddFactorAgain = 1.25
	greyboxOddMost        = 2
	// greyboxOddSpent windows are taken for disturbances at once, and one more
	// for each greyboxOddRest others: what is so more often is what the queue
	// has to live with, or what its setting does.
	greyboxOddSpent = 4
	greyboxOddRest  = 4
	// A queue that was just met is prepared for the load that makes its CPU
	// greyboxAhead busy, or for greyboxAheadMost times its own.
	greyboxAhead     = 0.75
	greyboxAheadMost = 4
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
	// One window says no more of the noise than that: what is further off is the
	// host's doing, or a law that does not fit. Of normal errors, censored so is
	// the share of the variance.
	const longest, most, censored = 25, 3, 0.858
	n.windows = min(n.windows+1, longest)
	n.variance += (max(0, min(square-expected, most*n.variance))/censored - n.variance) / n.windows
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
	// peak is the highest load of late, in packets per second, and caution what
	// it is worth to be prepared for it, in CPUs.
	peak, caution float64
	// gust is how load changes all the time, and jumped tells that it rose by more
	// than that in the last window.
	gust   greyboxGust
	jumped bool
	// prepared is the load that the last decision was made for.
	prepared float64
	// change is the relative change of load of the last window, and changed that
	// of the one before.
	change, changed float64
	// full is the utilisation per CPU time of the queue's own packets: above 1
	// where its CPU serves others too; filled is what windows showed.
	full   float64
	filled greyboxLately

	// windows counts the decisions, moved is that of the last move, and shared
	// that of the last exchange with the device.
	windows, moved, shared int
	// proven counts the windows in a row that the models predicted within
	// their error.
	proven int
	// bad counts the windows in a row above the SLO; odd the last ones that were
	// taken for a disturbance. stalls is how many were of late, and ended by
	// themselves; spent is of greyboxOddSpent.
	bad, odd      int
	stalls, spent float64
	lateness      greyboxLateness
	// forced tells that what is in place was not expected to hold, for want of
	// better.
	forced bool
	// held is the largest flush timeout, by mode, at which the SLO held.
	held     [greyboxModes]time.Duration
	ceilings greyboxCeilings
	bursts   greyboxBursts
	// kept counts the windows in which the SLO held, by setting and load.
	kept map[greyboxKept]int
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

// greyboxKept is a setting at a half octave of load.
type greyboxKept struct {
	mode       greyboxMode
	flush      time.Duration
	halfOctave int
}

// near reports whether that is the load, within half an octave.
func (k greyboxKept) near(packetRate float64) bool {
	away := halfOctave(packetRate) - k.halfOctave
	return -1 <= away && away <= 1
}

// keeps reports whether a setting held at a load for long enough to be gone back
// to at once.
func (q *greyboxQueue) keeps(mode greyboxMode, flush time.Duration, packetRate float64) bool {
	for at := halfOctave(packetRate) - 1; at <= halfOctave(packetRate)+1; at++ {
		if q.kept[greyboxKept{mode, flush, at}] >= greyboxKeptWindows {
			return true
		}
	}
	return false
}

// keep counts a window in which the SLO held.
func (q *greyboxQueue) keep(k greyboxKept) {
	const most = 1024
	if _, ok := q.kept[k]; ok || len(q.kept) < most {
		q.kept[k]++
	}
}

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
		caution:    greyboxCaution,
		full:       1,
		ceilings:   make(greyboxCeilings),
		kept:       make(map[greyboxKept]int),
		rests:      make(map[greyboxMove]*greyboxRest),
	}
}

// learn takes what the window shows.
func (q *greyboxQueue) learn(f *model.Features) {
	q.windows++
	q.note = ""
	q.expect(f)
	mode, flush := greyboxModeOf(f.Active), current(f.Active)
	inside := true
	if f.CostPerPacket > 0 {
		inside = q.learnCost(f, mode, flush)
	}
	if f.Quantile > 0 {
		inside = q.learnDelay(f, mode, flush) && inside
		q.learnFloor(f, mode)
	}
	q.outcome(f)
	if q.odd > 0 {
		return
	}
	if inside {
		q.proven++
	} else {
		q.proven = 0
	}
	q.judge(f, mode, flush)
}

// blur returns by how much more a window across a change of load varies: it
// describes neither load.
func blur(f *model.Features) float64 { return 1 + 25*f.RateChange*f.RateChange }

// learnCost takes what the window cost, and reports whether it was as predicted.
func (q *greyboxQueue) learnCost(f *model.Features, mode greyboxMode, flush time.Duration) (inside bool) {
	c := float64(f.CostPerPacket)
	x := costRow(mode, flush, f.PacketRate)
	mean, variance := q.cost.Predict(&x)
	noise := q.costNoise.variance * blur(f)
	miss := math.Log(c) - mean
	total := math.Sqrt(variance + noise)
	z := miss / total
	shifted := q.costShift.add(z)
	if shifted {
		q.cost.Keep(int(mode), greyboxKeep)
		q.note = "its cost changed"
	}
	q.cost.Observe(int(mode), &x, math.Log(c), doubted(noise, total, z, shifted))
	miss = max(-greyboxClip*total, min(greyboxClip*total, miss))
	q.costNoise.observe(miss*miss/blur(f), variance/blur(f))
	if u := f.Utilisation; u > 0 {
		q.filled.see(min(20, u/(f.PacketRate*c*1e-9)))
		q.full = q.filled.median()
	}
	return math.Abs(z) <= greyboxClip
}

// learnDelay takes the window's delay, and reports whether it was as predicted.
// A disturbed window teaches nothing.
func (q *greyboxQueue) learnDelay(f *model.Features, mode greyboxMode, flush time.Duration) (inside bool) {
	// How far beyond the SLO an overload goes follows no law.
	l := min(micros(f.Quantile), greyboxLate*micros(f.Objective.SLO))
	x := delayRow(mode, flush, f.PacketRate, q.utilisation(f))
	mean, variance := q.delay.Predict(&x)
	scale := max(mean, 10)
	relative := q.delayNoise.variance
	if mode == interrupting {
		relative = max(relative, greyboxModeration*greyboxModeration)
	}
	noise := relative * scale * scale * blur(f)
	miss := l - mean
	total := math.Sqrt(variance + noise)
	z := miss / total
	factor := l / scale
	if ceiling, ok := q.ceilings.of(flush, f.PacketRate); ok && mode == deferring && l > greyboxOddFactor*ceiling && q.utilisation(f) < greyboxFullDeferring {
		// Deferral cannot be it, whatever is not known of it.
		z, factor = max(z, 2*greyboxOdd), max(factor, l/ceiling)
	}
	if q.disturbed(f, z, factor) {
		return false
	}
	q.ceilings.see(f)
	tailed := mode == deferring && q.utilisation(f) >= greyboxTailed
	if mode == deferring && !f.Suspension.Ready && q.utilisation(f) >= greyboxBurstFrom {
		q.bursts.see(f)
		if rest, ok := q.bursts.rest(f.PacketRate); ok {
			l = min(l, rest+micros(flush))
			miss = l - mean
			z = miss / total
		}
	}
	shifted := !tailed && q.delayShift.add(z)
	if shifted {
		q.delay.Keep(int(mode), greyboxKeep)
		q.note = "its delay changed"
	}
	q.delay.Observe(int(mode), &x, l, doubted(noise, total, z, shifted))
	miss = max(-greyboxClip*total, min(greyboxClip*total, miss))
	if mode != interrupting {
		q.delayNoise.observe(miss*miss/(scale*scale*blur(f)), variance/(scale*scale*blur(f)))
	}
	return math.Abs(z) <= greyboxClip
}

// expect keeps the load to be prepared for.
func (q *greyboxQueue) expect(f *model.Features) {
	if q.peak == 0 {
		q.peak = f.PacketRate
		if u := q.utilisation(f); u > 0 {
			q.peak *= max(1, min(greyboxAheadMost, greyboxAhead/u))
		}
	}
	q.changed, q.change = q.change, f.RateChange
	q.jumped = q.gust.observe(f)
	q.peak = max(f.PacketRate, q.peak+(f.PacketRate-q.peak)/greyboxPeakWindows)
}

// disturbed reports whether a delay that is off by z errors, and by a factor, is
// the host's doing: a virtual machine that was held up shows such windows at
// every setting. Of what the setting does, the next window says the same.
func (q *greyboxQueue) disturbed(f *model.Features, z, factor float64) bool {
	least, by, most := float64(greyboxOdd), greyboxOddFactor, 1
	stalls := q.stalls >= greyboxStalling
	if stalls {
		least, by, most = greyboxOddAgain, greyboxOddFactorAgain, greyboxOddMost
	}
	was := q.odd
	if was < most && q.spent+1 <= greyboxOddSpent && (was > 0 || q.bad == 0) && z > least && factor > by && (stalls || f.RateChange <= greyboxJump) {
		q.odd++
		q.spent++
		return true
	}
	q.odd = 0
	q.spent = max(0, q.spent-1.0/greyboxOddRest)
	q.stalls -= q.stalls / greyboxStallWindows
	switch {
	case was > 0 && z > greyboxClip:
		// So those before count, too.
		q.bad += was
	case was > 0:
		q.stalls += float64(was)
	}
	return false
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
			q.keep(greyboxKept{mode, flush, halfOctave(f.PacketRate)})
		}
	}
	if q.bad >= 2 {
		q.held[mode] = min(q.held[mode], flush)
		delete(q.kept, greyboxKept{mode, flush, halfOctave(f.PacketRate)})
	}
	if q.forced || mode == interrupting && violated > 0 {
		// Nothing that the margin governs was chosen.
		return
	}
	if f.RateChange > greyboxJump || f.Suspension.Ready && q.prepared > 0 && f.PacketRate > (1+greyboxJump)*q.prepared {
		// The load did it, not the noise.
		q.caution = max(q.caution, min(greyboxCautionMost, q.caution+violated*greyboxCautionStep))
		return
	}
	q.caution -= q.caution / greyboxQuiet
	q.margin = max(greyboxMarginLow, min(greyboxMarginHigh, q.margin+greyboxMarginStep*(violated-greyboxViolations)))
}

// utilisation returns that of the window. It is counted in ticks of 10 ms, a
// twelfth of a short window, so where the packets' own cost is known the share
// of the CPU that went with it of late says more.
func (q *greyboxQueue) utilisation(f *model.Features) float64 {
	if f.CostPerPacket <= 0 && f.Utilisation >= 0 {
		return f.Utilisation
	}
	return min(1, q.full*f.PacketRate*float64(f.CostPerPacket)*1e-9)
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
		if q.odd > 0 && f.Outcome.CostChange <= 0 {
			// It was the host, not the move.
			break
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
