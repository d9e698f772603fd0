package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"autotune/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// eventRing is where the programs put single events.
type eventRing interface {
	// want says whether events are to come.
	want(bool) error
	// drain hands over what is there, in the order of the programs. A record
	// is valid during the call only.
	drain(take func(record []byte)) error
	// lost is how many events found no room since the programs were loaded.
	lost() (uint64, error)
	// clockOffset is what the time since boot is ahead of the clock of events.
	clockOffset() (time.Duration, error)
}

// ringReader is the ring of the loaded programs.
type ringReader struct {
	reader       *ringbuf.Reader
	wanted, full *ebpf.Variable
	record       ringbuf.Record
}

func newRingReader(c *ebpf.Collection) (*ringReader, error) {
	reader, err := ringbuf.NewReader(c.Maps[bpf.ReceiveEventsMapRing])
	if err != nil {
		return nil, fmt.Errorf("map the ring of events: %w", honest(err))
	}
	return &ringReader{
		reader: reader,
		wanted: c.Variables[bpf.ReceiveEventsVarEventsWanted],
		full:   c.Variables[bpf.ReceiveEventsVarEventsLost],
	}, nil
}

func (r *ringReader) want(on bool) error {
	var value uint32
	if on {
		value = 1
	}
	if err := r.wanted.Set(value); err != nil {
		return fmt.Errorf("switch events to %t: %w", on, err)
	}
	return nil
}

func (r *ringReader) drain(take func([]byte)) error {
	// The programs wake nobody: a deadline that has passed only looks.
	r.reader.SetDeadline(time.Unix(1, 0))
	for {
		err := r.reader.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring of events: %w", err)
		}
		take(r.record.RawSample)
	}
}

func (r *ringReader) lost() (n uint64, err error) {
	if err := r.full.Get(&n); err != nil {
		return 0, fmt.Errorf("read how many events were lost: %w", err)
	}
	return n, nil
}

func (r *ringReader) clockOffset() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	now, err := boottime()
	return now - time.Duration(ts.Nano()), err
}

func (r *ringReader) close() error { return r.reader.Close() }

// The kinds of records: enum event_kind in bpf/events.h.
const (
	eventPoll = iota
	eventWait
	eventRequest
)

// rawPoll, rawWait and rawRequest are records, with times of the clock of
// events. The polls of a NAPI on a CPU are numbered, modulo 2^32.
type rawPoll struct {
	at                      time.Duration
	slot, packets, sequence uint32
	cpu                     uint16
	loop                    uint8
}

type rawWait struct {
	at            time.Duration
	pid, returned uint32
}

// rawRequest has 0 in send where the application read again without sending.
type rawRequest struct {
	at, ready, receive, send time.Duration
	slot                     uint32
}

// rawEvent is a record, of which that of its kind is set.
type rawEvent struct {
	kind    uint32
	poll    rawPoll
	wait    rawWait
	request rawRequest
}

// errRecord is a record that the programs do not make.
var errRecord = errors.New("a record of the ring of events has an unknown form")

// decodeEvent reads a record; the error wraps errRecord.
func decodeEvent(b []byte) (rawEvent, error) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	ns := func(at int) time.Duration { return time.Duration(binary.NativeEndian.Uint64(b[at:])) }
	if len(b) < 24 {
		return rawEvent{}, fmt.Errorf("%d bytes: %w", len(b), errRecord)
	}
	e := rawEvent{kind: u32(0)}
	slot, at := u32(4), ns(8)
	switch {
	case e.kind == eventPoll && len(b) >= 32 && b[26] < loops:
		e.poll = rawPoll{
			at: at, slot: slot, packets: u32(16), sequence: u32(20), cpu: binary.NativeEndian.Uint16(b[24:]), loop: b[26],
		}
	case e.kind == eventWait:
		e.wait = rawWait{at: at, pid: slot, returned: u32(16)}
	case e.kind == eventRequest && len(b) >= 40:
		e.request = rawRequest{at: at, slot: slot, ready: ns(16), receive: ns(24), send: ns(32)}
	default:
		return rawEvent{}, fmt.Errorf("kind %d in %d bytes: %w", e.kind, len(b), errRecord)
	}
	return e, nil
}
