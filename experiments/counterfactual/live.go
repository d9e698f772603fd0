package counterfactual

import (
	"errors"
	"fmt"
)

// ErrMeasured says that what was measured, which may come from a file, does not
// belong to the recording, or together.
var ErrMeasured = errors.New("what was measured does not fit the recording")

// check returns an error that wraps [ErrMeasured] where a cell or a block names
// what is not there, in a recording of so many windows.
func (l *Live) check(windows int) error {
	if len(l.Blocks) != len(l.Loads) {
		return fmt.Errorf("%w: blocks of %d loads, and there are %d", ErrMeasured, len(l.Blocks), len(l.Loads))
	}
	for _, blocks := range l.Blocks {
		for _, b := range blocks {
			if b[0] < 0 || b[1] <= b[0] || b[1] > windows {
				return fmt.Errorf("%w: windows %d to %d of %d", ErrMeasured, b[0], b[1], windows)
			}
		}
	}
	for _, c := range l.Cells {
		if c.Load < 0 || c.Load >= len(l.Loads) {
			return fmt.Errorf("%w: cell %s is of load %d of %d", ErrMeasured, c.Setting, c.Load, len(l.Loads))
		}
	}
	return nil
}
