package policy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/model"
)

// SpecError is a policy spec that cannot be used. Its message is one line that
// says what is wrong and what is possible.
type SpecError struct {
	Spec   string
	Reason string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("policy %q: %s", e.Spec, e.Reason)
}

// Parse makes the policy that spec describes: NAME[:key=value,...]. Durations
// need a unit. Every error is a [*SpecError].
func Parse(spec string) (model.Policy, error) {
	name, rest, has := strings.Cut(spec, ":")
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return nil, &SpecError{spec, fmt.Sprintf("there is no such policy; possible are %s", strings.Join(names(kinds), ", "))}
	}
	kind := kinds[i]
	args := &arguments{values: make(map[string]string)}
	if has {
		if err := args.split(rest, kind); err != nil {
			return nil, &SpecError{spec, err.Error()}
		}
	}
	p, err := kind.make(args)
	if err == nil {
		err = args.err
	}
	if err != nil {
		return nil, &SpecError{spec, err.Error()}
	}
	return p, nil
}

// arguments are the key=value pairs of a spec. The getters keep the first
// error, so that a policy reads all its parameters before it looks.
type arguments struct {
	values map[string]string
	err    error
}

func (a *arguments) split(list string, kind Kind) error {
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case len(kind.keys) == 0:
			return fmt.Errorf("%s takes no parameters, not %q", kind.Name, pair)
		case !ok || key == "":
			return fmt.Errorf("%q is not key=value; write %s", pair, kind.Usage)
		case !slices.Contains(kind.keys, key):
			return fmt.Errorf("unknown key %q; possible are %s", key, strings.Join(kind.keys, ", "))
		case value == "":
			return fmt.Errorf("%s has no value; write %s", key, kind.Usage)
		}
		if _, dup := a.values[key]; dup {
			return fmt.Errorf("%s is given twice", key)
		}
		a.values[key] = value
	}
	return nil
}

func (a *arguments) has(key string) bool {
	_, ok := a.values[key]
	return ok
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// duration returns the value of key within low and high, or fallback where it
// is not given.
func (a *arguments) duration(key string, fallback, low, high time.Duration) time.Duration {
	text, ok := a.values[key]
	if !ok {
		return fallback
	}
	d, err := time.ParseDuration(text)
	if plainNumber(text) {
		a.fail("%s=%s has no unit; write %sus for microseconds", key, text, text)
		return fallback
	}
	if err != nil {
		a.fail("%s=%s is not a duration; write for example %s=50us", key, text, key)
		return fallback
	}
	if d < low || d > high {
		a.fail("%s=%s is out of range; possible are %v to %v", key, text, low, high)
		return fallback
	}
	return d
}

// startWithin returns the start of a policy, whose default may lie outside of low to
// high and then moves there; one that is given must lie within. It fails where
// low is above high.
func (a *arguments) startWithin(start, low, high time.Duration) time.Duration {
	switch {
	case low > high:
		a.fail("min=%v is above max=%v", low, high)
	case a.has("start") && start > high:
		a.fail("start=%v is above max=%v", start, high)
	case a.has("start") && start < low:
		a.fail("start=%v is below min=%v", start, low)
	}
	return max(low, min(start, high))
}

func plainNumber(text string) bool {
	return regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?$`).MatchString(text)
}

func (a *arguments) uint(key string, fallback, high uint64) uint64 {
	text, ok := a.values[key]
	if !ok {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > high {
		a.fail("%s=%s is not a whole number from 0 to %d", key, text, high)
		return fallback
	}
	return n
}

// maxSeed is the largest seed: any larger would not survive a reader that
// knows only signed numbers.
const maxSeed = math.MaxInt64

func (a *arguments) seed() uint64 { return a.uint("seed", 1, maxSeed) }

// count returns a whole number of at least low.
func (a *arguments) count(key string, fallback, low, high int) int {
	text, ok := a.values[key]
	if !ok {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		a.fail("%s=%s is not a whole number from %d to %d", key, text, low, high)
		return fallback
	}
	return n
}

// number returns a number from low to high, both included.
func (a *arguments) number(key string, fallback, low, high float64) float64 {
	text, ok := a.values[key]
	if !ok {
		return fallback
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= low && x <= high) {
		a.fail("%s=%s is not a number from %v to %v", key, text, low, high)
		return fallback
	}
	return x
}

// onOff returns whether the value of key is on.
func (a *arguments) onOff(key string) bool {
	text, ok := a.values[key]
	if ok && text != "on" && text != "off" {
		a.fail("%s=%s is neither on nor off", key, text)
	}
	return text == "on"
}

// share returns a number strictly between 0 and 1.
func (a *arguments) share(key string, fallback float64) float64 {
	text, ok := a.values[key]
	if !ok {
		return fallback
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || x <= 0 || x >= 1 {
		a.fail("%s=%s is not a number between 0 and 1, both excluded", key, text)
		return fallback
	}
	return x
}

// text returns the value of key as it is.
func (a *arguments) text(key, fallback string) string {
	if text, ok := a.values[key]; ok {
		return text
	}
	return fallback
}
