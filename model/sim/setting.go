package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// ErrBadSetting is wrapped by [ParseSetting] for text that is neither a case
// nor a list of knobs.
var ErrBadSetting = errors.New("not a setting")

// ParseSetting reads a case by name, or knobs as key=value separated by
// commas: defer (a count), flush, suspend, busypoll and timeout (durations
// with unit), budget and events (counts), prefer (true or false). Knobs that
// are not named are off.
func ParseSetting(text string) (Case, error) {
	if !strings.Contains(text, "=") {
		c, err := CaseByName(text)
		if err != nil {
			return c, fmt.Errorf("%w, or key=value,... such as defer=100,flush=20us", err)
		}
		return c, nil
	}
	c := Case{Name: text}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return Case{}, fmt.Errorf("setting %q: %q is not key=value: %w", text, part, ErrBadSetting)
		}
		if seen[key] {
			return Case{}, fmt.Errorf("setting %q: %s is given twice: %w", text, key, ErrBadSetting)
		}
		seen[key] = true
		var err error
		switch key {
		case "defer":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 32)
			c.NAPI.DeferHardIRQs = uint32(n)
		case "flush":
			c.NAPI.GROFlushTimeout, err = parseDuration(value)
		case "suspend":
			c.NAPI.IRQSuspendTimeout, err = parseDuration(value)
		case "busypoll":
			c.Wait.BusyPoll, err = parseDuration(value)
		case "timeout":
			c.Wait.Timeout, err = parseDuration(value)
		case "budget":
			c.Wait.Budget, err = parseCount(value)
		case "events":
			c.Wait.MaxEvents, err = parseCount(value)
		case "prefer":
			c.Wait.Prefer, err = strconv.ParseBool(value)
		default:
			err = errors.New("there is no such knob (there are defer, flush, suspend, busypoll, timeout, budget, events, prefer)")
		}
		if err != nil {
			return Case{}, fmt.Errorf("setting %q: %s=%s: %w: %w", text, key, value, err, ErrBadSetting)
		}
	}
	bounds := model.DefaultBounds()
	if err := bounds.Check(c.NAPI); err != nil {
		return Case{}, fmt.Errorf("setting %q: %w", text, err)
	}
	return c, nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("want a duration with its unit, such as 20us")
	}
	if d < 0 {
		return 0, errors.New("must not be negative")
	}
	return d, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, errors.New("want a whole number of at least 1")
	}
	return n, nil
}
