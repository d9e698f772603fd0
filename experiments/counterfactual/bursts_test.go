package counterfactual

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"autotune/model/sim"
)

func TestBurstsHaveSoManyArrivalsWithinTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bursts{
			Requests:  rapid.Float64Range(0, 500).Draw(t, "requests"),
			PerSecond: rapid.Float64Range(1, 1e9).Draw(t, "per second"),
			Alone:     rapid.Float64Range(0, 2).Draw(t, "alone"),
		}
		n := rapid.IntRange(0, 3000).Draw(t, "n")
		span := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "span"))
		seed := rapid.Uint64().Draw(t, "seed")
		got := b.arrivals(n, span, seed)
		if len(got) != n || !slices.IsSorted(got) {
			t.Fatalf("%d arrivals, ascending %v, want %d", len(got), slices.IsSorted(got), n)
		}
		if n > 0 && (got[0] < 0 || got[n-1] >= span) {
			t.Fatalf("from %v to %v in a window of %v", got[0], got[n-1], span)
		}
		if !slices.Equal(got, b.arrivals(n, span, seed)) {
			t.Fatal("an equal seed gives other arrivals")
		}
	})
}

// The number of requests in pieces of a window that are long against bursts has the
// dispersion that is claimed; gaps within bursts are those of their rate.
func TestBurstsAreAsLongAndAsFastAsTheySay(t *testing.T) {
	for name, b := range map[string]Bursts{
		"at random":     {Requests: 1, PerSecond: 1e6},
		"of three":      {Requests: 3, PerSecond: 400e3},
		"of twenty":     {Requests: 20, PerSecond: 120e3},
		"half of them":  {Requests: 20, PerSecond: 120e3, Alone: 0.5},
		"all by itself": {Requests: 20, PerSecond: 120e3, Alone: 1},
	} {
		t.Run(name, func(t *testing.T) {
			const pieces, rate = 4000, 2000
			piece := 50 * time.Millisecond
			at := b.arrivals(rate*pieces/20, pieces*piece, 3)
			counts := make([]float64, pieces)
			close := 0.0
			for i, a := range at {
				counts[a/piece]++
				if i > 0 && a-at[i-1] < 20*time.Microsecond {
					close++
				}
			}
			mean, square := float64(len(at))/pieces, 0.0
			for _, n := range counts {
				square += (n - mean) * (n - mean) / pieces
			}
			if ratio := square / mean; math.Abs(math.Log(ratio/b.dispersion())) > 0.25 {
				t.Errorf("dispersion %.2f, want %.2f", ratio, b.dispersion())
			}
			// Of gaps within bursts so many are shorter, and of the others few.
			alone := min(b.Alone, 1)
			within := (1 - alone) * (1 - 1/b.Requests)
			want := within*(1-math.Exp(-b.PerSecond*20e-6)) + (1-within)*rate*20e-6
			if got := close / float64(len(at)); math.Abs(got-want) > 0.03 {
				t.Errorf("%.3f of the gaps are shorter than 20us, want %.3f", got, want)
			}
		})
	}
}

func TestBurstsThatDoNotFitAreFaster(t *testing.T) {
	at := Bursts{Requests: 50, PerSecond: 1000}.arrivals(5000, time.Second, 1)
	if first, last := at[0], at[len(at)-1]; first < 0 || last < 900*time.Millisecond || last >= time.Second {
		t.Errorf("5,000 requests at 1,000 per second within bursts come from %v to %v of a second", first, last)
	}
}

func TestMeanNumberOfRequestsIsThatOfTheRate(t *testing.T) {
	total := 0
	for window := range uint64(4000) {
		total += whole(2.3, window)
	}
	if mean := float64(total) / 4000; math.Abs(mean-2.3) > 0.03 {
		t.Errorf("%.3f requests per window, want 2.3", mean)
	}
}

func TestDispersionIsThatOfSteadyLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, b := range map[string]Bursts{"at random": {}, "in bursts": {Requests: 20, PerSecond: 1e6}} {
		t.Run(name, func(t *testing.T) {
			var d dispersions
			if d.requests(1) != nil {
				t.Error("the dispersion is known of nothing")
			}
			b.PerSecond = max(b.PerSecond, 1)
			at := b.arrivals(400_000, 200*time.Second, 4)
			counts := make([]float64, 400)
			for _, a := range at {
				counts[a/(500*time.Millisecond)] += 2 // packets
			}
			for i := 1; i < len(counts); i++ {
				d.add(counts[i-1], counts[i], random)
				if i%10 == 0 {
					d.add(counts[i], 4*counts[i], random) // another load
				}
			}
			got := d.requests(2)
			if want := b.dispersion(); math.Abs(math.Log(got.atMost/want)) > 3*got.deviation {
				t.Errorf("dispersion %.2f x/÷ %.2f, want %.2f", got.atMost, math.Exp(got.deviation), want)
			}
			if fits := got.residual(b); fits > 3 {
				t.Errorf("the bursts themselves are %.1f standard errors off", fits)
			}
			if more := got.residual(Bursts{Requests: 200, PerSecond: 1e6}); more < 3 {
				t.Errorf("bursts that are much longer are %.1f standard errors off", more)
			}
		})
	}
}

func TestDispersionIsOfNeighbouringWindowsOfEqualLength(t *testing.T) {
	for name, c := range map[string]struct {
		gap, longer time.Duration
		lost        uint64
		want        int
	}{
		"neighbours":        {0, 0, 0, 2},
		"a gap":             {time.Second, 0, 0, 0},
		"one is longer":     {0, 200 * time.Millisecond, 0, 0},
		"one was disturbed": {0, 0, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var r Recording
			at := time.Duration(0)
			for i := range 3 {
				s := arrived(1000)
				if i == 1 {
					at += c.gap
					s.Span += c.longer
					s.Lost = c.lost
				}
				if i == 2 {
					at += c.gap
				}
				at += s.Span
				s.At = at
				r.Add(s)
			}
			if got := len(r.dispersed.kept); got != c.want {
				t.Errorf("%d pairs, want %d", got, c.want)
			}
		})
	}
}

// fitBursts fits a host like the recorded one, without single events.
func fitBursts(t *testing.T, load sim.Load) *Fitted {
	t.Helper()
	r := recordEvents(t, vethPreset(t), load, 8, 0)
	fitted, err := Fit(context.Background(), r, FitOptions{Start: vethPreset(t), Doubt: KnownKind, Seed: 7, Rounds: 3})
	if err != nil {
		t.Fatal(err)
	}
	return fitted
}

func TestBurstsAreFoundFromPacketsPerPoll(t *testing.T) {
	for name, c := range map[string]struct {
		load sim.Load
		want Bursts
	}{
		"short and fast": {
			sim.OnOff{High: 400e3, On: 20 * time.Microsecond, Off: 400 * time.Microsecond, Seed: 5},
			// A burst of an exponential length has a geometric number, none
			// included.
			Bursts{Requests: 9, PerSecond: 400e3},
		},
		"long and slow": {
			sim.OnOff{High: 100e3, On: 250 * time.Microsecond, Off: 5 * time.Millisecond, Seed: 5},
			Bursts{Requests: 26, PerSecond: 100e3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fitted := fitBursts(t, c.load)
			got := fitted.Bursts()
			t.Logf("%+v", got)
			for value, off := range map[string]float64{"requests": got.Requests / c.want.Requests, "rate": got.PerSecond / c.want.PerSecond} {
				if math.Abs(math.Log(off)) > math.Log(2.5) {
					t.Errorf("bursts are %+v, want %+v: %s off by a factor of %.2f", got.Bursts, c.want, value, off)
				}
			}
			draws := fitted.Draws(3, 1)
			if draws[0].Bursts != got.Bursts {
				t.Errorf("the first draw has bursts %+v, the most likely %+v", draws[0].Bursts, got.Bursts)
			}
			if draws[1].Bursts == got.Bursts || draws[1].Bursts == draws[2].Bursts {
				t.Errorf("draws do not vary bursts: %+v, %+v", draws[1].Bursts, draws[2].Bursts)
			}
		})
	}
}

func TestRequestsAtRandomStayAtRandom(t *testing.T) {
	for _, load := range []sim.Load{
		sim.Constant(5000), sim.Constant(20000),
		// A load that changes from window to window is no burst.
		sim.Steps{PerSecond: []float64{6000, 15000, 9000}, Each: 500 * time.Millisecond},
	} {
		if got := fitBursts(t, load).Bursts(); !got.AtRandom() {
			t.Errorf("requests of %v come in bursts: %+v", load, got)
		}
	}
}
