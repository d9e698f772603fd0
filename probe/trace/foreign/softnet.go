package foreign

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// softnetCPU are the counters of one line of /proc/net/softnet_stat
// (softnet_seq_show in net/core/net-procfs.c): hexadecimal, 32 bits, cumulative.
type softnetCPU struct {
	processed, squeezed uint32
}

// snapshot is the whole file at one time.
type snapshot struct {
	at   time.Time
	cpus map[int]softnetCPU
	line int
}

// ReadSoftnet reads snapshots of /proc/net/softnet_stat, each after a line
// "# TIME" with the seconds since 1970 (with or without a fraction) or an
// RFC 3339 time. A window lies between two of them, and every CPU is a queue.
// Of the columns the first, packets processed, and the third, time_squeeze, are
// used, and the 13th, the CPU's number (Linux 5.10); where that is missing lines
// count.
func ReadSoftnet(r io.Reader) (Series, error) {
	snapshots, err := readSnapshots(r)
	if err != nil {
		return Series{}, err
	}
	if len(snapshots) < 2 {
		return Series{}, fmt.Errorf("%w: %d snapshots, and a window lies between two", ErrFormat, len(snapshots))
	}
	out := Series{Begin: snapshots[0].at, Ifnames: map[int]string{}}
	var spans []time.Duration
	for i := 1; i < len(snapshots); i++ {
		a, b := snapshots[i-1], snapshots[i]
		span := b.at.Sub(a.at)
		if span <= 0 {
			return Series{}, formatError(b.line, "its time is not after that of the snapshot before")
		}
		sample, ok := softnetWindow(a, b)
		if !ok {
			out.Resets++
			continue
		}
		sample.At, sample.Span = b.at.Sub(out.Begin), span
		out.Samples = append(out.Samples, sample)
		spans = append(spans, span)
	}
	out.Interval = median(spans)
	return out, nil
}

// maxWrapped is the largest growth taken for one, and not for a counter that
// began again: a CPU does not process 2^31 packets in a window.
const maxWrapped = 1 << 31

// softnetWindow is what happened between two snapshots, false where the
// counters began again.
func softnetWindow(a, b snapshot) (model.Sample, bool) {
	sample := model.Sample{Queues: []model.QueueSample{}, CPUs: []model.CPUSample{}}
	for cpu, now := range b.cpus {
		before, known := a.cpus[cpu]
		if !known {
			continue
		}
		processed, squeezed := now.processed-before.processed, now.squeezed-before.squeezed
		if processed >= maxWrapped || squeezed >= maxWrapped {
			return model.Sample{}, false
		}
		sample.Queues = append(sample.Queues, model.QueueSample{
			Queue: model.Queue{Index: cpu}, Softirq: model.PollCounts{Packets: uint64(processed)},
		})
		sample.CPUs = append(sample.CPUs, model.CPUSample{CPU: cpu, Squeezed: uint64(squeezed)})
	}
	slices.SortFunc(sample.Queues, func(x, y model.QueueSample) int { return x.Queue.Compare(y.Queue) })
	slices.SortFunc(sample.CPUs, func(x, y model.CPUSample) int { return x.CPU - y.CPU })
	return sample, true
}

func readSnapshots(r io.Reader) ([]snapshot, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var out []snapshot
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		if stamp, ok := strings.CutPrefix(text, "#"); ok {
			at, err := parseStamp(strings.TrimSpace(stamp))
			if err != nil {
				return nil, formatError(n, "%v", err)
			}
			out = append(out, snapshot{at: at, cpus: map[int]softnetCPU{}, line: n})
			continue
		}
		if len(out) == 0 {
			return nil, formatError(n, "a snapshot begins with a line # TIME")
		}
		s := &out[len(out)-1]
		fields := strings.Fields(text)
		if len(fields) < 9 {
			return nil, formatError(n, "%d columns, and softnet_stat has 9 or more", len(fields))
		}
		var c softnetCPU
		cpu := uint32(len(s.cpus))
		for column, into := range map[int]*uint32{0: &c.processed, 2: &c.squeezed, 12: &cpu} {
			if column >= len(fields) {
				continue
			}
			v, err := strconv.ParseUint(fields[column], 16, 32)
			if err != nil {
				return nil, formatError(n, "column %d, %q, is not 32 bits in hexadecimal", column+1, fields[column])
			}
			*into = uint32(v)
		}
		if cpu >= maxCPUs {
			return nil, formatError(n, "CPU %d", cpu)
		}
		if _, twice := s.cpus[int(cpu)]; twice {
			return nil, formatError(n, "CPU %d is there twice", cpu)
		}
		s.cpus[int(cpu)] = c
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	return out, nil
}

// maxCPUs is the kernel's own limit (NR_CPUS of x86 is 8192 at most).
const maxCPUs = 1 << 13

// parseStamp reads seconds since 1970, or an RFC 3339 time.
func parseStamp(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC(), nil
	}
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<33 || len(fraction) > 9 {
		return time.Time{}, fmt.Errorf("%q is neither seconds since 1970 nor a time like 2026-03-01T12:00:00Z", text)
	}
	ns := int64(0)
	if fraction != "" {
		if ns, err = strconv.ParseInt(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64); err != nil || ns < 0 {
			return time.Time{}, fmt.Errorf("%q: the fraction of a second is not a number", text)
		}
	}
	return time.Unix(seconds, ns).UTC(), nil
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}
