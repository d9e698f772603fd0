package scenarios

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"autotune/model/sim"
)

//go:embed *.toml
var shipped embed.FS

// ErrUnknown is wrapped by [Load] for a name that is neither shipped nor a
// file.
var ErrUnknown = errors.New("unknown scenario")

// maxDuration is the longest scenario: a week.
const maxDuration = 7 * 24 * time.Hour

// File is one scenario as its file describes it.
type File struct {
	// Name is what results call it.
	Name string
	// About says in a sentence what it stands for.
	About string
	// Duration is its length; zero leaves that to the comparison.
	Duration time.Duration
	// Digest identifies the contents, those of a recording included.
	Digest string

	load load
}

// Names returns the names of the shipped scenarios, in order.
func Names() []string {
	entries, err := fs.ReadDir(shipped, ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Load returns the shipped scenario of that name, or reads the file of that
// path, which must end in .toml. Every error names the file, and the line
// where there is one.
func Load(name string) (File, error) {
	if strings.HasSuffix(name, ".toml") {
		data, err := os.ReadFile(name)
		if err != nil {
			return File{}, fmt.Errorf("read scenario: %w", err)
		}
		return parse(name, data, func(path string) ([]byte, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(name), path)
			}
			return os.ReadFile(path)
		})
	}
	data, err := shipped.ReadFile(name + ".toml")
	if err != nil {
		return File{}, fmt.Errorf("scenario %q (shipped are %s; a file's name ends in .toml): %w", name, strings.Join(Names(), ", "), ErrUnknown)
	}
	return parse(name+".toml", data, func(path string) ([]byte, error) { return nil, fs.ErrNotExist })
}

// document is the file's form: one of its tables, or load, says what is
// offered.
type document struct {
	Name     string `toml:"name"`
	About    string `toml:"about"`
	Duration string `toml:"duration"`

	Recording string        `toml:"load"`
	Constant  *constantLoad `toml:"constant"`
	Steps     *stepsLoad    `toml:"steps"`
	Diurnal   *diurnalLoad  `toml:"diurnal"`
	MMPP      *mmppLoad     `toml:"mmpp"`
	Flash     *flashLoad    `toml:"flash"`
	OnOff     *onOffLoad    `toml:"onoff"`
	Mixed     *mixedLoad    `toml:"mixed"`
}

func parse(path string, data []byte, read func(string) ([]byte, error)) (File, error) {
	var d document
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&d); err != nil {
		return File{}, located(path, err)
	}
	f := File{Name: d.Name, About: d.About}
	sum := sha256.New()
	sum.Write(data)
	fail := func(format string, args ...any) (File, error) {
		return File{}, fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
	}
	if f.Name == "" {
		return fail("name is missing")
	}
	if strings.ContainsFunc(f.Name, notInName) {
		return fail("name %q: it must have no space, comma, quote or slash", f.Name)
	}
	if d.Duration != "" {
		t, err := parseSpan(d.Duration)
		if err != nil || t.share > 0 {
			return fail("duration %q: want a duration with its unit, such as 60s", d.Duration)
		}
		f.Duration = t.fixed
	}
	var given []string
	add := func(name string, l load, present bool) {
		if present {
			given = append(given, name)
			f.load = l
		}
	}
	add("constant", d.Constant, d.Constant != nil)
	add("steps", d.Steps, d.Steps != nil)
	add("diurnal", d.Diurnal, d.Diurnal != nil)
	add("mmpp", d.MMPP, d.MMPP != nil)
	add("flash", d.Flash, d.Flash != nil)
	add("onoff", d.OnOff, d.OnOff != nil)
	add("mixed", d.Mixed, d.Mixed != nil)
	if d.Recording != "" {
		text, err := read(d.Recording)
		if err != nil {
			return fail("load %q: %w", d.Recording, err)
		}
		sum.Write(text)
		r, err := parseRecording(d.Recording, text)
		if err != nil {
			return fail("load: %w", err)
		}
		add("load", r, true)
	}
	switch len(given) {
	case 0:
		return fail("it offers nothing: it needs load = \"FILE.csv\" or one of the tables constant, steps, diurnal, mmpp, flash, onoff, mixed")
	case 1:
	default:
		return fail("%s are given, and only one can be", strings.Join(given, " and "))
	}
	if _, err := f.load.make(time.Minute, 0); err != nil {
		return fail("[%s] %w", given[0], err)
	}
	f.Digest = hex.EncodeToString(sum.Sum(nil))
	return f, nil
}

// notInName tells what a scenario's name must not have: it goes into lists and
// names of files.
func notInName(r rune) bool { return r <= ' ' || r == '/' || r == ',' || r == '"' }

// located puts file and line before an error of the TOML decoder.
func located(path string, err error) error {
	var missing *toml.StrictMissingError
	var at *toml.DecodeError
	switch {
	case errors.As(err, &missing) && len(missing.Errors) > 0:
		first := missing.Errors[0]
		row, _ := first.Position()
		return fmt.Errorf("%s:%d: there is no key %q", path, row, strings.Join(first.Key(), "."))
	case errors.As(err, &at):
		row, _ := at.Position()
		return fmt.Errorf("%s:%d: %w", path, row, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Scenario returns the load over its own duration, or over the one given where
// the file has none. Its random parts follow from seed. Scale multiplies the
// rates; 1 leaves them.
func (f *File) Scenario(duration time.Duration, seed uint64, scale float64) (sim.Scenario, error) {
	if f.Duration > 0 {
		duration = f.Duration
	}
	if duration <= 0 || duration > maxDuration {
		return sim.Scenario{}, fmt.Errorf("scenario %s: duration %v is not in 0 to %v", f.Name, duration, maxDuration)
	}
	l, err := f.load.make(duration, seed)
	if err != nil {
		return sim.Scenario{}, fmt.Errorf("scenario %s: %w", f.Name, err)
	}
	if !(scale > 0) || math.IsInf(scale, 0) {
		return sim.Scenario{}, fmt.Errorf("scenario %s: the load cannot be scaled by %v", f.Name, scale)
	}
	switch w, windows := l.(sim.Windows); {
	case scale == 1:
	case windows:
		// Single arrivals come from no rate.
		l = w.Scaled(scale)
	default:
		l = scaled{l, scale}
	}
	return sim.Scenario{Name: f.Name, Load: l, Duration: duration}, nil
}

// scaled multiplies a load.
type scaled struct {
	load sim.Load
	by   float64
}

// Path implements [sim.Load].
func (s scaled) Path(q sim.QueueShare) sim.Path {
	path := s.load.Path(q)
	return func(at time.Duration) (float64, time.Duration) {
		rate, until := path(at)
		return rate * s.by, until
	}
}
