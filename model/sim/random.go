package sim

import "math"

// random is a stream of pseudo-random numbers (SplitMix64: Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014). It is used
// instead of math/rand/v2 because its state lives inside the lane and every
// draw is inlined.
type random struct{ state uint64 }

const goldenGamma = 0x9e3779b97f4a7c15

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// newRandom returns the stream named by seed and the numbers in path, so that
// streams of different runs, cells and queues are independent.
func newRandom(seed uint64, path ...uint64) random {
	state := mix64(seed + goldenGamma)
	for _, p := range path {
		state = mix64(state ^ mix64(p+goldenGamma))
	}
	return random{state: state}
}

func (r *random) uint64() uint64 {
	r.state += goldenGamma
	return mix64(r.state)
}

// float returns a number in (0, 1].
func (r *random) float() float64 {
	return float64(r.uint64()>>11+1) * 0x1p-53
}

// exponential returns a draw with mean 1.
func (r *random) exponential() float64 { return -math.Log(r.float()) }

// below returns a uniform integer in [0, n).
func (r *random) below(n uint32) uint32 {
	return uint32((r.uint64() >> 32) * uint64(n) >> 32)
}

// normal returns a draw with mean 0 and variance 1 (Box and Muller).
func (r *random) normal() float64 {
	return math.Sqrt(2*r.exponential()) * math.Cos(2*math.Pi*r.float())
}
