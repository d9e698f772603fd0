package foreign

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// instant is what all tables say of one window.
type instant struct {
	span time.Duration
	// packets are those received, by device.
	packets map[string]uint64
	cpus    map[int]*model.CPUSample
	// processed are the packets of softnet, by CPU.
	processed map[int]uint64
}

// sadfReader gathers tables by time.
type sadfReader struct {
	host     string
	instants map[time.Time]*instant
	columns  map[string]int
	line     int
}

// ReadSadf reads what `sadf -d` prints: tables of values between semicolons,
// each after a line "# hostname;interval;timestamp;..." that names its columns.
// Several tables may follow each other. Used are
//
//	-n DEV        IFACE, rxpck/s: a queue for each device
//	-P ALL -u ALL CPU, %idle, %iowait, %steal: non-idle and stolen time
//	-n SOFT       CPU, squeezd/s, and total/s where there is no table of devices
//
// and any other is passed over. Times are as sadf prints them by default (in
// UTC), or with -U in seconds since 1970. The packets of a window are the rate
// that sadf rounded to two digits times its interval of whole seconds.
func ReadSadf(in io.Reader) (Series, error) {
	s := sadfReader{instants: map[time.Time]*instant{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		s.line++
		if err := s.read(strings.TrimSpace(lines.Text())); err != nil {
			return Series{}, err
		}
	}
	if err := lines.Err(); err != nil {
		return Series{}, fmt.Errorf("read sadf -d: %w", err)
	}
	return s.series()
}

func (s *sadfReader) read(text string) error {
	if text == "" {
		return nil
	}
	fields := strings.Split(text, ";")
	if strings.HasPrefix(text, "#") {
		s.columns = make(map[string]int, len(fields))
		for i, name := range fields {
			name = strings.TrimSpace(strings.TrimPrefix(name, "#"))
			if _, ok := s.columns[name]; ok {
				return formatError(s.line, "the table has two columns %q", name)
			}
			s.columns[name] = i
		}
		for _, name := range []string{"hostname", "interval", "timestamp"} {
			if _, ok := s.columns[name]; !ok {
				return formatError(s.line, "the table has no column %q", name)
			}
		}
		return nil
	}
	switch {
	case s.columns == nil:
		return formatError(s.line, "a table begins with a line # hostname;interval;timestamp;...")
	case len(fields) >= 4 && strings.HasPrefix(fields[3], "LINUX-RESTART"):
		return nil
	case len(fields) != len(s.columns):
		return formatError(s.line, "%d values in a table of %d columns", len(fields), len(s.columns))
	}
	return s.row(fields)
}

func (s *sadfReader) row(fields []string) error {
	at, err := sadfTime(fields[s.columns["timestamp"]])
	if err != nil {
		return formatError(s.line, "%v", err)
	}
	seconds, err := strconv.ParseInt(fields[s.columns["interval"]], 10, 32)
	if err != nil || seconds < 1 {
		return formatError(s.line, "interval %q is not a number of seconds", fields[s.columns["interval"]])
	}
	host := fields[s.columns["hostname"]]
	if s.host == "" {
		s.host = host
	}
	if host != s.host {
		return formatError(s.line, "host %s, and %s before", host, s.host)
	}
	w := s.instants[at]
	if w == nil {
		w = &instant{packets: map[string]uint64{}, cpus: map[int]*model.CPUSample{}, processed: map[int]uint64{}}
		s.instants[at] = w
	}
	w.span = max(w.span, time.Duration(seconds)*time.Second)
	if i, ok := s.columns["IFACE"]; ok {
		rate, known, err := s.number(fields, "rxpck/s")
		if err != nil || !known {
			return err
		}
		if w.packets[fields[i]], err = s.count(rate, seconds); err != nil {
			return err
		}
		return nil
	}
	return s.cpu(fields, w, seconds)
}

// cpu reads a row of a table with a column CPU; -1 is all of them.
func (s *sadfReader) cpu(fields []string, w *instant, seconds int64) error {
	i, ok := s.columns["CPU"]
	if !ok {
		return nil
	}
	number, err := strconv.Atoi(fields[i])
	if err != nil || number < -1 || number >= maxCPUs {
		return formatError(s.line, "CPU %q", fields[i])
	}
	if number == -1 {
		return nil
	}
	c := w.cpus[number]
	if c == nil {
		c = &model.CPUSample{CPU: number}
		w.cpus[number] = c
	}
	idle, knowsIdle, err := s.number(fields, "%idle")
	if err != nil {
		return err
	}
	if knowsIdle {
		waiting, _, err := s.number(fields, "%iowait")
		if err != nil {
			return err
		}
		stolen, _, err := s.number(fields, "%steal")
		if err != nil {
			return err
		}
		span := float64(seconds) * 1e9
		c.Steal = time.Duration(span * stolen / 100)
		c.Busy = max(0, time.Duration(span*(100-idle-waiting-stolen)/100))
	}
	squeezed, knowsSqueezed, err := s.number(fields, "squeezd/s")
	if err != nil {
		return err
	}
	if knowsSqueezed {
		if c.Squeezed, err = s.count(squeezed, seconds); err != nil {
			return err
		}
	}
	total, knowsTotal, err := s.number(fields, "total/s")
	if err == nil && knowsTotal {
		w.processed[number], err = s.count(total, seconds)
	}
	return err
}

// number reads a column that not every table has.
func (s *sadfReader) number(fields []string, column string) (v float64, known bool, err error) {
	i, ok := s.columns[column]
	if !ok {
		return 0, false, nil
	}
	// Some locales have a comma.
	v, err = strconv.ParseFloat(strings.Replace(fields[i], ",", ".", 1), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, false, formatError(s.line, "%s %q is not a number of 0 or more", column, fields[i])
	}
	return v, true, nil
}

func (s *sadfReader) count(rate float64, seconds int64) (uint64, error) {
	n := math.Round(rate * float64(seconds))
	if n > 1<<53 {
		return 0, formatError(s.line, "%g per second for %d seconds is more than a count can be", rate, seconds)
	}
	return uint64(n), nil
}

func sadfTime(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02 15:04:05 MST", time.DateTime} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	if at, err := parseStamp(text); err == nil {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("timestamp %q is neither 2026-03-01 12:00:00 UTC nor seconds since 1970", text)
}

func (s *sadfReader) series() (Series, error) {
	times := slices.SortedFunc(maps.Keys(s.instants), time.Time.Compare)
	devices := map[string]bool{}
	useful := false
	for _, w := range s.instants {
		for name := range w.packets {
			devices[name] = true
		}
		useful = useful || len(w.packets)+len(w.processed) > 0
	}
	if !useful {
		return Series{}, fmt.Errorf("%w: no table has packets: sadf -d -- -n DEV, or -n SOFT", ErrFormat)
	}
	out := Series{Host: s.host, Begin: times[0].Add(-s.instants[times[0]].span), Ifnames: map[int]string{}}
	ifindex := map[string]int{}
	for i, name := range slices.Sorted(maps.Keys(devices)) {
		ifindex[name], out.Ifnames[i+1] = i+1, name
	}
	var spans []time.Duration
	for _, at := range times {
		w := s.instants[at]
		sample := model.Sample{At: at.Sub(out.Begin), Span: w.span, Queues: []model.QueueSample{}}
		for name, packets := range w.packets {
			sample.Queues = append(sample.Queues, queueOf(model.Queue{Ifindex: ifindex[name]}, packets))
		}
		if len(devices) == 0 {
			for cpu, packets := range w.processed {
				sample.Queues = append(sample.Queues, queueOf(model.Queue{Index: cpu}, packets))
			}
		}
		for _, c := range w.cpus {
			sample.CPUs = append(sample.CPUs, *c)
		}
		slices.SortFunc(sample.Queues, func(x, y model.QueueSample) int { return x.Queue.Compare(y.Queue) })
		slices.SortFunc(sample.CPUs, func(x, y model.CPUSample) int { return cmp.Compare(x.CPU, y.CPU) })
		out.Samples = append(out.Samples, sample)
		spans = append(spans, w.span)
	}
	out.Interval = median(spans)
	return out, nil
}

func queueOf(q model.Queue, packets uint64) model.QueueSample {
	return model.QueueSample{Queue: q, Softirq: model.PollCounts{Packets: packets}}
}
