package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"autotune/bpf"
	"autotune/model"
	"autotune/probe/phc"
)

// ReceiveClocks tells which hardware clock stamps the packets that a device
// receives.
type ReceiveClocks interface {
	// ReceiveClocks returns N of /dev/ptpN by interface index, of the devices
	// that stamp packets now.
	ReceiveClocks(context.Context) (map[int]int, error)
}

const stampsLost = "hardware receive time stamps: ring wait is worked out from polls"

// slotClock is the clock of the packets that are counted in a slot, and until
// when (CLOCK_MONOTONIC) it is to be used.
type slotClock struct {
	clock phc.Clock
	until time.Duration
}

// clockDevice is a [phc.Device].
type clockDevice interface {
	Read() (phc.Reading, error)
	Close() error
}

// followedClock is a hardware clock that is compared with the host's once per
// window.
type followedClock struct {
	device  clockDevice
	tracker phc.Tracker
	last    phc.Reading
}

// stamper follows the clocks of all devices that stamp packets.
type stamper struct {
	lister ReceiveClocks
	open   func(index int) (clockDevice, error)
	// validity is for how long after a reading a clock is used: longer than a
	// window, since the next may end late.
	validity time.Duration

	// byIfindex names clocks, which are by N.
	byIfindex map[int]int
	clocks    map[int]*followedClock
	// err is why some clock cannot be used.
	err error
}

func newStamper(lister ReceiveClocks, interval time.Duration) *stamper {
	return &stamper{
		lister:   lister,
		open:     func(index int) (clockDevice, error) { return phc.Open(index) },
		validity: 2*interval + time.Second,
		clocks:   make(map[int]*followedClock),
	}
}

// compare takes a reading of each clock. Clocks that cannot be read are left
// out, and s.err says why.
func (s *stamper) compare(ctx context.Context) {
	s.byIfindex, s.err = s.lister.ReceiveClocks(ctx)
	used := make(map[int]bool)
	for _, index := range s.byIfindex {
		if used[index] {
			continue
		}
		used[index] = true
		if err := s.read(index); err != nil {
			s.err = errors.Join(s.err, err)
		}
	}
	for index := range s.clocks {
		if !used[index] {
			s.drop(index)
		}
	}
}

func (s *stamper) read(index int) error {
	c := s.clocks[index]
	if c == nil {
		device, err := s.open(index)
		if err != nil {
			return err
		}
		c = &followedClock{device: device}
		s.clocks[index] = c
	}
	r, err := c.device.Read()
	switch {
	case errors.Is(err, phc.ErrClockSet):
		// The last reading holds for as long as it is valid.
		return nil
	case err != nil:
		s.drop(index)
		return err
	}
	c.tracker.Add(r)
	c.last = r
	return nil
}

// drop forgets a clock. Nothing was written to it that closing could lose.
func (s *stamper) drop(index int) {
	_ = s.clocks[index].device.Close()
	delete(s.clocks, index)
}

// clock returns the clock of a device's packets; false where there is none, or
// not yet.
func (s *stamper) clock(ifindex int) (slotClock, bool) {
	index, ok := s.byIfindex[ifindex]
	if !ok || s.clocks[index] == nil {
		return slotClock{}, false
	}
	c := s.clocks[index]
	clock, ok := c.tracker.Clock(s.validity)
	return slotClock{clock, c.last.Monotonic + s.validity}, ok
}

func (s *stamper) close() {
	for index := range s.clocks {
		s.drop(index)
	}
}

// compareClocks makes the programs use the clocks of the devices in the next
// window.
func (s *Source) compareClocks(ctx context.Context) error {
	if s.stamps == nil {
		return nil
	}
	s.stamps.compare(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	clocks := make(map[int]slotClock)
	clocked := false
	for key, q := range s.queues {
		clocked = clocked || q.clocked
		c, ok := s.stamps.clock(key.Ifindex)
		if ok {
			clocks[q.slot] = c
		}
		q.clocked = ok
	}
	if len(clocks) == 0 && !clocked {
		return nil
	}
	return s.kernel.setClocks(clocks)
}

// setClocks implements [kernel].
func (p *programs) setClocks(clocks map[int]slotClock) error {
	if len(clocks) == 0 {
		p.clocksInUse = 0
		return p.set(bpf.ReceiveVarClocksInUse, 0)
	}
	// The programs may be using those of the other half.
	half := uint32(1)
	if p.clocksInUse == 1 {
		half = 2
	}
	for slot := range p.used {
		value := bpf.ReceiveDeviceClock{}
		if c, ok := clocks[slot]; ok {
			value = bpf.ReceiveDeviceClock{
				Phc:        c.clock.PHC,
				Monotonic:  uint64(c.clock.Monotonic),
				Rate:       c.clock.Rate,
				Error:      uint64(c.clock.Error),
				ValidUntil: uint64(c.until),
			}
		}
		if err := p.collection.Maps[bpf.ReceiveMapClocks].Put(uint32(slot)*2+half-1, value); err != nil {
			return fmt.Errorf("set the clock of slot %d: %w", slot, err)
		}
	}
	p.clocksInUse = half
	return p.set(bpf.ReceiveVarClocksInUse, half)
}

// addStamps adds what the device's time stamps told since the baseline. Where
// most packets had one, ring wait is by them.
func (q *queue) addStamps(s *model.QueueSample, delays *bpf.ReceiveNapiDelays) {
	if !q.clocked {
		return
	}
	waits := histogramGrowth(&q.delays.StampedWait, &delays.StampedWait)
	s.Stamps = &model.Stamps{
		Used:    waits.Count(),
		Absent:  grown(q.delays.Unstamped, delays.Unstamped),
		Refused: grown(q.delays.Refused, delays.Refused),
	}
	if s.Stamps.Usual() {
		s.RingWait = waits
	}
}
