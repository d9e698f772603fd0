package sim

import "math"

// dim is the kernel's dynamic interrupt moderation (lib/dim/net_dim.c and
// dim.c): a hill climber over five moderation profiles, which compares each
// 64 interrupts' worth of traffic with the 64 before, by bytes, then packets,
// then interrupts per time, and counts a difference above 10%.
type dim struct {
	state    dimState
	profile  int
	left     int
	right    int
	tired    int
	previous dimStats
	// measuring is false between a decision and its profile taking effect.
	measuring bool
	applying  bool
	start     dimSample
}

type dimState uint8

const (
	dimGoingRight dimState = iota
	dimGoingLeft
	dimParkingOnTop
	dimParkingTired
)

const (
	dimEvents       = 64 // DIM_NEVENTS
	dimProfiles     = 5
	dimTired        = 2 * dimProfiles
	dimStartProfile = 1 // NET_DIM_DEF_PROFILE_CQE
)

type dimSample struct {
	at      int64
	packets uint64
	bytes   uint64
	events  uint64
}

// dimStats are rates per millisecond.
type dimStats struct{ bytes, packets, events int64 }

type dimComparison int8

const (
	dimWorse dimComparison = iota - 1
	dimSame
	dimBetter
)

// dimProfile is one level of moderation: a time in nanoseconds and a number of
// packets.
type dimProfile struct {
	time    int64
	packets int
}

// rxCQEProfiles are NET_DIM_RX_CQE_PROFILES.
var rxCQEProfiles = [dimProfiles]dimProfile{
	{2000, 256}, {8000, 128}, {16000, 64}, {32000, 64}, {64000, 64},
}

// update is net_dim(): it is told of the counters at the end of each poll that
// re-arms the interrupt, and returns true when a new profile is to be applied.
// The caller calls applied once it took effect.
func (d *dim) update(s dimSample, noise float64, r *random) bool {
	if d.applying {
		return false
	}
	if d.measuring {
		if s.events-d.start.events < dimEvents {
			return false
		}
		micros := (s.at - d.start.at) / 1000
		if micros <= 0 {
			return false
		}
		current := dimStats{
			bytes:   ceilDiv(int64(s.bytes-d.start.bytes)*1000, micros),
			packets: ceilDiv(int64(s.packets-d.start.packets)*1000, micros),
			events:  ceilDiv(dimEvents*1000, micros),
		}
		if packets := float64(s.packets - d.start.packets); noise > 0 && packets > 0 {
			factor := max(0, 1+noise/math.Sqrt(packets)*r.normal())
			current.bytes = int64(float64(current.bytes) * factor)
			current.packets = int64(float64(current.packets) * factor)
		}
		if d.decide(current) {
			d.applying = true
			d.measuring = false
			return true
		}
	}
	d.start = s
	d.measuring = true
	return false
}

// applied ends the application of a new profile: the next update starts a
// measurement.
func (d *dim) applied() { d.applying = false }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func (d *dim) decide(current dimStats) bool {
	before, profile := d.state, d.profile
	switch d.state {
	case dimParkingOnTop:
		if compareDIM(current, d.previous) != dimSame {
			d.exitParking()
		}
	case dimParkingTired:
		d.tired--
		if d.tired == 0 {
			d.exitParking()
		}
	case dimGoingLeft, dimGoingRight:
		if compareDIM(current, d.previous) != dimBetter {
			d.turn()
		}
		if d.onTop() {
			d.parkOnTop()
			break
		}
		switch d.step() {
		case dimOnEdge:
			d.parkOnTop()
		case dimTooTired:
			d.left, d.right = 0, 0
			d.state = dimParkingTired
		case dimStepped:
		}
	}
	if before != dimParkingOnTop || d.state != dimParkingOnTop {
		d.previous = current
	}
	return d.profile != profile
}

type dimStep uint8

const (
	dimStepped dimStep = iota
	dimOnEdge
	dimTooTired
)

func (d *dim) step() dimStep {
	if d.tired == dimTired {
		return dimTooTired
	}
	switch d.state {
	case dimGoingRight:
		if d.profile == dimProfiles-1 {
			return dimOnEdge
		}
		d.profile++
		d.right++
	case dimGoingLeft:
		if d.profile == 0 {
			return dimOnEdge
		}
		d.profile--
		d.left++
	default: // parked: exitParking has chosen a direction before
	}
	d.tired++
	return dimStepped
}

func (d *dim) exitParking() {
	d.state = dimGoingLeft
	if d.profile == 0 {
		d.state = dimGoingRight
	}
	d.step()
}

func (d *dim) turn() {
	switch d.state {
	case dimGoingRight:
		d.state = dimGoingLeft
		d.left = 0
	case dimGoingLeft:
		d.state = dimGoingRight
		d.right = 0
	default: // parked: no direction to turn from
	}
}

func (d *dim) onTop() bool {
	switch d.state {
	case dimGoingRight:
		return d.left > 1 && d.right == 1
	case dimGoingLeft:
		return d.right > 1 && d.left == 1
	default:
		return true
	}
}

func (d *dim) parkOnTop() {
	d.left, d.right, d.tired = 0, 0, 0
	d.state = dimParkingOnTop
}

func compareDIM(current, previous dimStats) dimComparison {
	if previous.bytes == 0 {
		if current.bytes != 0 {
			return dimBetter
		}
		return dimSame
	}
	if significant(current.bytes, previous.bytes) {
		return better(current.bytes > previous.bytes)
	}
	if previous.packets == 0 {
		if current.packets != 0 {
			return dimBetter
		}
		return dimSame
	}
	if significant(current.packets, previous.packets) {
		return better(current.packets > previous.packets)
	}
	if previous.events == 0 {
		return dimSame
	}
	if significant(current.events, previous.events) {
		return better(current.events < previous.events)
	}
	return dimSame
}

func better(yes bool) dimComparison {
	if yes {
		return dimBetter
	}
	return dimWorse
}

// significant is IS_SIGNIFICANT_DIFF: more than 10% away.
func significant(value, reference int64) bool {
	if reference == 0 {
		return false
	}
	difference := value - reference
	if difference < 0 {
		difference = -difference
	}
	return 100*difference/reference > 10
}

// txEQEProfiles are NET_DIM_TX_EQE_PROFILES.
var txEQEProfiles = [dimProfiles]dimProfile{
	{1000, 128}, {8000, 128}, {32000, 128}, {64000, 128}, {128000, 128},
}
