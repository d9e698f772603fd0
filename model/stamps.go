package model

// Stamps counts hardware receive time stamps. A packet that data became ready
// with either carried one that was used, or none, or one that was refused since
// it lay in the future or more than a second ago.
type Stamps struct {
	Used    uint64 `json:"used"`
	Absent  uint64 `json:"absent"`
	Refused uint64 `json:"refused"`
}

// Usual reports whether at least 15 in 16 packets had a stamp that was used.
// Devices that stamp some packets only (PTP) would tell of those only.
func (s *Stamps) Usual() bool {
	return s != nil && s.Used > 0 && s.Used >= 15*(s.Absent+s.Refused)
}

// RingWaitSource says what a ring wait was measured by.
type RingWaitSource string

// The sources. By polls it is worked out from the time between polls, or since
// the interrupt, for every packet; by hardware it is exact, for what became ready
// on followed sockets.
const (
	RingWaitByPolls    RingWaitSource = "polls"
	RingWaitByHardware RingWaitSource = "hardware"
)

// RingWaitSource says what RingWait was measured by; empty where that is nil.
func (q *QueueSample) RingWaitSource() RingWaitSource {
	switch {
	case q.RingWait == nil:
		return ""
	case q.Stamps.Usual():
		return RingWaitByHardware
	default:
		return RingWaitByPolls
	}
}
