package policy

import (
	"math"
	"time"

	"autotune/model"
	"autotune/model/bayes"
)

// greyboxMode is a delivery loop, and the group of what was observed there.
type greyboxMode int

const (
	suspending greyboxMode = iota
	deferring
	interrupting
	greyboxModes
)

func greyboxModeOf(s model.Settings) greyboxMode {
	switch s.Mode() {
	case model.ModeSuspension:
		return suspending
	case model.ModeDeferral:
		return deferring
	case model.ModeInterrupts:
	}
	return interrupting
}

func (m greyboxMode) String() string {
	return [...]string{"suspension", "deferral", "interrupts"}[m]
}

// The coefficients of the logarithm of the CPU time per packet in nanoseconds.
// The first is the scale, which all modes share: an application that costs
// twice as much moves it alone. In suspension and deferral four follow for each
// mode: a constant, w and sqrt(w) with w = 1/(1 + lambda (g + 25 us)), the
// share of packets that arrive alone, and log(1 + r) with r = 1/(lambda (g +
// 4 us)), the timer polls per packet. With interrupts g is zero and there is no
// timer. The last is for lambda in 100,000 packets per second.
const (
	costScale      = 0
	costSuspending = 1
	costDeferring  = 5
	costInterrupts = 9
	costLoad       = 12
	costLen        = 13
)

// The coefficients of the delay's quantile in microseconds. The first is what
// all modes share, the way to the host and back. In suspension and deferral
// five follow for each mode: a constant, g in 100 us, u/(1-u) and u g, with u
// the utilisation, and lambda in 100,000 packets per second: what is in the way
// gets fuller with load, too. With interrupts there is no g.
const (
	delayScale      = 0
	delaySuspending = 1
	delayDeferring  = 6
	delayInterrupts = 11
	delayLen        = 14
)

// longestFlush bounds what other writers' timeouts count for.
const longestFlush = 10 * time.Millisecond

const (
	batchTime = 25e-6 // s; the work during which packets gather
	pollTime  = 4e-6  // s; the shortest time between two timer polls
	// maxQueueing bounds u/(1-u): near capacity a window measures how long
	// overload lasted, and no linear law holds. An application that polls by
	// itself does not queue for the softirqs, and busy polling fills the CPU
	// before packets do.
	maxQueueing           = 20
	maxQueueingSuspending = 6
)

// costRow returns the regressors of cost at a load in packets per second.
func costRow(mode greyboxMode, flush time.Duration, packetRate float64) (r bayes.Row) {
	g := min(flush, longestFlush).Seconds()
	if mode == interrupting {
		g = 0
	}
	alone := 1 / (1 + packetRate*(g+batchTime))
	at := costInterrupts
	switch mode {
	case suspending:
		at = costSuspending
	case deferring:
		at = costDeferring
	case interrupting, greyboxModes:
	}
	r.Set(costScale, 1)
	r.Set(at, 1)
	r.Set(at+1, alone)
	r.Set(at+2, math.Sqrt(alone))
	if mode != interrupting {
		r.Set(at+3, math.Log1p(1/(packetRate*(g+pollTime))))
	}
	r.Set(costLoad, packetRate/1e5)
	return r
}

// delayRow returns the regressors of the delay at a load and utilisation.
func delayRow(mode greyboxMode, flush time.Duration, packetRate, utilisation float64) (r bayes.Row) {
	u := min(max(utilisation, 0), 1)
	queueing := float64(maxQueueing)
	if mode == suspending {
		queueing = maxQueueingSuspending
	}
	if u < 1 {
		queueing = min(queueing, u/(1-u))
	}
	g := min(flush, longestFlush).Seconds() * 1e4
	r.Set(delayScale, 1)
	if mode == interrupting {
		r.Set(delayInterrupts, 1)
		r.Set(delayInterrupts+1, queueing)
		r.Set(delayInterrupts+2, packetRate/1e5)
		return r
	}
	at := delaySuspending
	if mode == deferring {
		at = delayDeferring
	}
	r.Set(at, 1)
	r.Set(at+1, g)
	r.Set(at+2, queueing)
	r.Set(at+3, u*g)
	r.Set(at+4, packetRate/1e5)
	return r
}
