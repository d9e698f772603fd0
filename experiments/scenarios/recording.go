package scenarios

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"autotune/model/sim"
)

// recording is a load that was written down: each rate holds until the time of
// the next, the last for ever.
type recording struct {
	at   []time.Duration
	rate []float64
}

// parseRecording reads a CSV file with the columns t_s, ascending from 0, and
// load_kqps.
func parseRecording(path string, text []byte) (*recording, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	r.TrimLeadingSpace = true
	out := &recording{}
	header := true
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		line, _ := r.FieldPos(0)
		if header {
			if len(row) != 2 || row[0] != "t_s" || row[1] != "load_kqps" {
				return nil, fmt.Errorf("%s:%d: the header is not t_s,load_kqps", path, line)
			}
			header = false
			continue
		}
		if len(row) != 2 {
			return nil, fmt.Errorf("%s:%d: %d columns, want 2", path, line, len(row))
		}
		t, err := strconv.ParseFloat(row[0], 64)
		if err != nil || !(t >= 0) || t > maxDuration.Seconds() {
			return nil, fmt.Errorf("%s:%d: t_s %q is not a number of seconds up to a week", path, line, row[0])
		}
		kqps, err := strconv.ParseFloat(row[1], 64)
		if err != nil || !(kqps >= 0) || kqps > maxKQPS {
			return nil, fmt.Errorf("%s:%d: load_kqps %q is not a number from 0 to %v", path, line, row[1], maxKQPS)
		}
		at := time.Duration(math.Round(t * 1e9))
		switch n := len(out.at); {
		case n == 0 && at != 0:
			return nil, fmt.Errorf("%s:%d: the first t_s is %v, not 0", path, line, row[0])
		case n > 0 && at <= out.at[n-1]:
			return nil, fmt.Errorf("%s:%d: t_s %v is not later than the one before", path, line, row[0])
		}
		out.at, out.rate = append(out.at, at), append(out.rate, kqps*1e3)
	}
	if len(out.at) == 0 {
		return nil, fmt.Errorf("%s: no rows", path)
	}
	return out, nil
}

func (l *recording) make(time.Duration, uint64) (sim.Load, error) { return l, nil }

// Path implements [sim.Load].
func (l *recording) Path(q sim.QueueShare) sim.Path {
	i := 0
	return func(at time.Duration) (float64, time.Duration) {
		for i+1 < len(l.at) && l.at[i+1] <= at {
			i++
		}
		until := time.Duration(math.MaxInt64 / 4)
		if i+1 < len(l.at) {
			until = l.at[i+1]
		}
		return l.rate[i] * q.Fraction, until
	}
}
