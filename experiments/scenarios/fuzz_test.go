package scenarios

import (
	"math"
	"testing"
	"time"

	"autotune/model/sim"
)

// FuzzParse checks that whatever is taken is a load: rates that are numbers, and
// pieces that end.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		text, err := shipped.ReadFile(name + ".toml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "")
	}
	f.Add("name = \"x\"\nload = \"x.csv\"\n", "t_s,load_kqps\n0,1\n2.5,3\n")
	f.Add("name = \"x\"\n[steps]\nkqps = [1]\neach = \"1ns\"\n", "")
	f.Fuzz(func(t *testing.T, text, recording string) {
		file, err := parse("x.toml", []byte(text), func(string) ([]byte, error) { return []byte(recording), nil })
		if err != nil {
			return
		}
		s, err := file.Scenario(time.Minute, 1, 1)
		if err != nil {
			return
		}
		path := s.Load.Path(sim.QueueShare{Fraction: 1})
		at := time.Duration(0)
		for range 100 {
			rate, until := path(at)
			if math.IsNaN(rate) || math.IsInf(rate, 0) || rate < 0 || until <= at {
				t.Fatalf("at %v: %v requests/s until %v", at, rate, until)
			}
			if at = until; at > s.Duration {
				break
			}
		}
	})
}
