package scenarios

import (
	"fmt"
	"strings"
	"time"

	"autotune/model/sim"
)

// givenLoad is a load that is there already, the same for every seed.
type givenLoad struct{ sim.Load }

func (l givenLoad) make(time.Duration, uint64) (sim.Load, error) { return l.Load, nil }

// Given returns the scenario of a load that no TOML file describes. It lasts
// for duration, which is above zero; digest identifies the load.
func Given(name, about string, duration time.Duration, digest string, l sim.Load) (File, error) {
	switch {
	case name == "":
		return File{}, fmt.Errorf("a scenario of %v has no name", duration)
	case strings.ContainsFunc(name, notInName):
		return File{}, fmt.Errorf("scenario %q: its name must have no space, comma, quote or slash", name)
	case duration <= 0 || duration > maxDuration:
		return File{}, fmt.Errorf("scenario %s: duration %v is not in 0 to %v", name, duration, maxDuration)
	}
	return File{Name: name, About: about, Duration: duration, Digest: digest, load: givenLoad{l}}, nil
}

// Name makes a scenario's name of a text, with underscores for what no name may
// have.
func Name(text string) string {
	return strings.Map(func(r rune) rune {
		if notInName(r) {
			return '_'
		}
		return r
	}, text)
}
