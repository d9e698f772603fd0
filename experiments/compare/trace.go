package compare

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"autotune/model/sim"
)

// Trace is the load of one recording, a scenario of a plan. Its digest stands
// for the load in a manifest: shards are joined without the recordings.
type Trace struct {
	// Name is what results call it.
	Name string `json:"scenario"`
	// About says in a sentence what of the recording it is.
	About string `json:"about"`
	// Duration is its length.
	Duration time.Duration `json:"duration_ns"`
	// Digest identifies the load.
	Digest string `json:"load_sha256"`
	// Load is what each simulated queue is offered; without queues in a plan
	// that was read from a manifest, which cannot be run.
	Load sim.Windows `json:"-"`
}

// NewTrace returns the scenario of a recorded load, all of it.
func NewTrace(name, about string, duration time.Duration, load sim.Windows) Trace {
	return Trace{Name: name, About: about, Duration: duration, Digest: loadDigest(load), Load: load}
}

// loadDigest identifies a load by its rates and, where it has them, its single
// arrivals.
func loadDigest(load sim.Windows) string {
	rates := digest(load)
	if load.Singles == nil {
		return rates
	}
	h := sha256.New()
	h.Write([]byte(rates))
	var number [8]byte
	write := func(n int64) {
		binary.LittleEndian.PutUint64(number[:], uint64(n))
		h.Write(number[:])
	}
	for queue, windows := range load.PerSecond {
		for window := range windows {
			at, known := load.Singles(queue, window)
			if !known {
				continue
			}
			for _, n := range []int{queue, window, len(at)} {
				write(int64(n))
			}
			for _, t := range at {
				write(int64(t))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
