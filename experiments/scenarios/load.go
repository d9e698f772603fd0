package scenarios

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"autotune/model/sim"
)

// load is one way to say what is offered.
type load interface {
	make(duration time.Duration, seed uint64) (sim.Load, error)
}

// span is a time of a scenario: fixed, or a share of its length.
type span struct {
	fixed time.Duration
	share float64
}

func parseSpan(text string) (span, error) {
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(v > 0) || v > 100 {
			return span{}, fmt.Errorf("%q is not a share above 0%% and up to 100%%", text)
		}
		return span{share: v / 100}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < leastSpan || d > maxDuration {
		return span{}, fmt.Errorf("%q is neither a duration with its unit, such as 10s, from %v on, nor a share, such as 20%%", text, leastSpan)
	}
	return span{fixed: d}, nil
}

// leastSpan is the shortest time that a load can be given in: simulating a load
// that changes faster than packets come would take for ever.
const leastSpan = time.Millisecond

// of returns the time in a scenario of that length.
func (s span) of(duration time.Duration) time.Duration {
	if s.share > 0 {
		return max(leastSpan, time.Duration(math.Round(s.share*float64(duration))))
	}
	return s.fixed
}

// fields reads the values of a table and keeps the first error.
type fields struct {
	duration time.Duration
	err      error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) span(key, text string) time.Duration {
	if text == "" {
		f.fail("needs %s", key)
		return 1
	}
	s, err := parseSpan(text)
	if err != nil {
		f.fail("%s = %w", key, err)
		return 1
	}
	return s.of(f.duration)
}

const maxKQPS = 1e6

// rate returns requests per second.
func (f *fields) rate(key string, kqps *float64) float64 {
	switch {
	case kqps == nil:
		f.fail("needs %s", key)
		return 0
	case math.IsNaN(*kqps) || *kqps < 0 || *kqps > maxKQPS:
		f.fail("%s = %v is not in 0 to %v thousand requests per second", key, *kqps, maxKQPS)
		return 0
	}
	return *kqps * 1e3
}

func (f *fields) rates(key string, kqps []float64) []float64 {
	if len(kqps) == 0 {
		f.fail("needs %s", key)
	}
	var out []float64
	for _, v := range kqps {
		out = append(out, f.rate(key, &v))
	}
	return out
}

type constantLoad struct {
	KQPS *float64 `toml:"kqps"`
}

func (l *constantLoad) make(d time.Duration, _ uint64) (sim.Load, error) {
	f := fields{duration: d}
	return sim.Constant(f.rate("kqps", l.KQPS)), f.err
}

type stepsLoad struct {
	KQPS []float64 `toml:"kqps"`
	Each string    `toml:"each"`
}

func (l *stepsLoad) make(d time.Duration, _ uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := sim.Steps{PerSecond: f.rates("kqps", l.KQPS), Each: f.span("each", l.Each)}
	return out, f.err
}

type diurnalLoad struct {
	Mean      *float64 `toml:"mean_kqps"`
	Amplitude *float64 `toml:"amplitude_kqps"`
	Period    string   `toml:"period"`
}

func (l *diurnalLoad) make(d time.Duration, _ uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := l.diurnal(&f)
	return out, f.err
}

func (l *diurnalLoad) diurnal(f *fields) sim.Diurnal {
	return sim.Diurnal{Mean: f.rate("mean_kqps", l.Mean), Amplitude: f.rate("amplitude_kqps", l.Amplitude), Period: f.span("period", l.Period)}
}

type mmppLoad struct {
	KQPS []float64 `toml:"kqps"`
	Mean string    `toml:"mean"`
}

func (l *mmppLoad) make(d time.Duration, seed uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := sim.MMPP{PerSecond: f.rates("kqps", l.KQPS), Mean: f.span("mean", l.Mean), Seed: seed}
	return out, f.err
}

type flashLoad struct {
	Base  *float64 `toml:"base_kqps"`
	Peak  *float64 `toml:"peak_kqps"`
	Start string   `toml:"start"`
	Ramp  string   `toml:"ramp"`
	Hold  string   `toml:"hold"`
}

func (l *flashLoad) make(d time.Duration, _ uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := sim.Flash{
		Base: f.rate("base_kqps", l.Base), Peak: f.rate("peak_kqps", l.Peak),
		Start: f.span("start", l.Start), Ramp: f.span("ramp", l.Ramp), Hold: f.span("hold", l.Hold),
	}
	return out, f.err
}

type onOffLoad struct {
	Low  *float64 `toml:"low_kqps"`
	High *float64 `toml:"high_kqps"`
	On   string   `toml:"on"`
	Off  string   `toml:"off"`
}

func (l *onOffLoad) make(d time.Duration, seed uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := sim.OnOff{
		Low: f.rate("low_kqps", l.Low), High: f.rate("high_kqps", l.High),
		On: f.span("on", l.On), Off: f.span("off", l.Off), Seed: seed,
	}
	return out, f.err
}

type mixedLoad struct {
	diurnalLoad
	Noise  *float64 `toml:"noise_kqps"`
	Floor  *float64 `toml:"floor_kqps"`
	Burst  *float64 `toml:"burst_kqps"`
	From   *float64 `toml:"burst_from"`
	To     *float64 `toml:"burst_to"`
	Pieces int      `toml:"pieces"`
}

const maxPieces = 1e6

func (l *mixedLoad) make(d time.Duration, seed uint64) (sim.Load, error) {
	f := fields{duration: d}
	out := sim.Mixed{
		Day: l.diurnal(&f), Noise: f.rate("noise_kqps", l.Noise), Floor: f.rate("floor_kqps", l.Floor),
		Burst: f.rate("burst_kqps", l.Burst), Pieces: l.Pieces, Seed: seed,
	}
	if l.Pieces < 1 || l.Pieces > maxPieces {
		return nil, fmt.Errorf("pieces = %d is not in 1 to %d", l.Pieces, int(maxPieces))
	}
	out.Each = max(d/time.Duration(l.Pieces), 1)
	if l.From == nil || l.To == nil {
		return nil, errors.New("needs burst_from and burst_to, shares of the length from 0 to 1")
	}
	if !(*l.From >= 0 && *l.From <= *l.To && *l.To <= 1) {
		return nil, fmt.Errorf("burst_from = %v and burst_to = %v are not ascending shares from 0 to 1", *l.From, *l.To)
	}
	out.BurstFrom = int(math.Round(*l.From * float64(l.Pieces)))
	out.BurstTo = int(math.Round(*l.To * float64(l.Pieces)))
	return out, f.err
}
