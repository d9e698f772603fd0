package foreign

import (
	"errors"
	"fmt"
	"time"

	"autotune/model"
)

// ErrFormat says that a text is not in the format that it should be in.
var ErrFormat = errors.New("not in the expected format")

// Series are samples and when they were recorded.
type Series struct {
	// Host is the host's name, empty where the series does not say.
	Host string
	// Begin is when the first window began. Times of samples are since then.
	Begin time.Time
	// Samples ascend by time.
	Samples []model.Sample
	// Interval is the median length of a window.
	Interval time.Duration
	// Ifnames are the names of the devices by the ifindex that stands for them
	// in the samples: 1 and so on, in the order of their names. In a series
	// without devices a queue stands for a CPU, and its ifindex is 0.
	Ifnames map[int]string
	// Resets counts the windows that were left out because counters went
	// backwards or stood still in time: the host was booted.
	Resets int
}

// maxLine bounds a line of input.
const maxLine = 1 << 20

func formatError(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %w: %s", line, ErrFormat, fmt.Sprintf(format, args...))
}
