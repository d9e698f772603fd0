package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var autotuneAgainstBase = Criteria{Base: "base", Contender: "autotune"}

// TestJudgeOverManySeeds holds the judge itself to account: what must not pass
// never does, and what deserves to mostly does.
func TestJudgeOverManySeeds(t *testing.T) {
	const seeds = 400
	tests := []struct {
		name   string
		plant  plant
		policy policy
		// leastMet and mostMet bound the number of seeds with outcome met,
		// mostMissed that of missed.
		leastMet, mostMet, mostMissed int
	}{
		{"doing nothing never passes, quiet", quiet, holdStill, 0, 0, seeds},
		{"doing nothing never passes, noisy", noisy, holdStill, 0, 0, seeds},
		{"random jumps never pass, quiet", quiet, anywhere, 0, 0, seeds},
		{"random jumps never pass, noisy", noisy, anywhere, 0, 0, seeds},
		{"rare random jumps never pass, quiet", quiet, rarely, 0, 0, seeds},
		{"rare random jumps never pass, noisy", noisy, rarely, 0, 0, seeds},
		{"a random setting for each phase never passes, quiet", quiet, perPhase, 0, 0, seeds},
		{"a random setting for each phase never passes, noisy", noisy, perPhase, 0, 0, seeds},
		{"a random choice of the two good settings never passes", usual, coin, 0, 0, seeds},
		{"a random walk never passes, quiet", quiet, wander, 0, 0, seeds},
		{"a random walk never passes, noisy", noisy, wander, 0, 0, seeds},
		{"moving without effect never passes, quiet", quiet, twitch, 0, 0, seeds},
		{"moving without effect never passes, noisy", noisy, twitch, 0, 0, seeds},
		{"one fixed setting never passes", quiet, fixed200, 0, 0, seeds},
		{"adapting too late never passes", quiet, lateSwitching, 0, seeds / 20, seeds},
		{"adapting passes, quiet", quiet, switching, seeds * 90 / 100, seeds, seeds / 100},
		{"adapting passes mostly, with the usual noise", usual, switching, seeds * 65 / 100, seeds, seeds * 2 / 100},
		{"adapting is not called missed for noise that five rounds cannot resolve", noisy, switching, seeds * 35 / 100, seeds, seeds * 5 / 100},
		{"adapting slowly passes or is undecided", quiet, slowSwitching, seeds * 50 / 100, seeds, seeds * 5 / 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			counts := map[Outcome]int{}
			var example Verdict
			for seed := range uint64(seeds) {
				v := Judge(tt.plant.rows(seed, MinRounds, tt.policy), tt.plant.slo(), autotuneAgainstBase)
				counts[v.Outcome]++
				if v.Outcome == Met || example.Criteria == nil {
					example = v
				}
			}
			t.Logf("met %d, undecided %d, missed %d of %d seeds", counts[Met], counts[Undecided], counts[Missed], seeds)
			if met := counts[Met]; met < tt.leastMet || met > tt.mostMet {
				t.Errorf("met %d times, want %d to %d; for example:\n%s", met, tt.leastMet, tt.mostMet, explain(example))
			}
			if missed := counts[Missed]; missed > tt.mostMissed {
				t.Errorf("missed %d times, want at most %d", missed, tt.mostMissed)
			}
		})
	}
}

func explain(v Verdict) string {
	var b strings.Builder
	for _, c := range v.Criteria {
		b.WriteString(string(c.Outcome) + " " + c.Name + ": " + c.Reason + "\n")
	}
	return b.String()
}

// good returns rows that meet every criterion, without noise.
func good(rounds int) []Row { return plant{}.rows(1, rounds, switching) }

func at(rows []Row, contender, phase string, f func(i int, r *Row)) []Row {
	seen := 0
	for i := range rows {
		if rows[i].Contender == contender && (phase == "" || rows[i].Phase == phase) {
			f(seen, &rows[i])
			seen++
		}
	}
	return rows
}

func excluded(share float64) func(int, *Row) {
	return func(_ int, r *Row) { r.Excluded = uint64(share * float64(r.Requests)) }
}

func scaled(v *float64, by float64) *float64 {
	out := *v * by
	return &out
}

func TestJudgeCriteria(t *testing.T) {
	slo := plant{}.slo()
	cpu := func(phase string, ratios ...float64) func([]Row) []Row {
		return func(rows []Row) []Row {
			return at(rows, "autotune", phase, func(i int, r *Row) {
				ofBase := 1000 * plant{}.cost(r.Load, 0)
				r.CPUPerRequest = scaled(&ofBase, ratios[i%len(ratios)])
			})
		}
	}
	p90 := func(contender, phase string, over ...float64) func([]Row) []Row {
		return func(rows []Row) []Row {
			return at(rows, contender, phase, func(i int, r *Row) {
				if i < len(over) {
					d := time.Duration(over[i] * float64(slo))
					r.P90 = &d
				}
			})
		}
	}
	both := func(a, b func([]Row) []Row) func([]Row) []Row {
		return func(rows []Row) []Row { return b(a(rows)) }
	}
	tests := []struct {
		name   string
		change func([]Row) []Row
		// criterion is the one that decides, and want the outcome of it and of
		// the whole.
		criterion string
		want      Outcome
		reason    string
	}{
		{"all is well", func(r []Row) []Row { return r }, CriterionHigh, Met, "30.2% below base"},
		{"p90 above the SLO in one phase of one round", p90("autotune", "low again", 1.02), CriterionSLO, Undecided, `"low again": above it in 1 of 5 rounds, by up to 2%`},
		{"p90 above the SLO in most rounds of one phase", p90("autotune", "low", 1.01, 1.01, 1.01), CriterionSLO, Missed, "in 3 of 5 rounds"},
		{"p90 above the SLO always, but so is the base", both(p90("autotune", "high", 2, 2, 2, 2, 2), p90("base", "high", 2, 2, 2, 2, 2)), CriterionSLO, Undecided, "(the base in 5)"},
		{"p90 not known", func(r []Row) []Row {
			return at(r, "autotune", "high", func(_ int, r *Row) { r.P90 = nil })
		}, CriterionEvidence, Undecided, "p90 is not known"},
		{"5% below under high load", cpu("high", 0.95), CriterionHigh, Missed, "5.0% below base"},
		{"20% below on average, but not surely", cpu("high", 0.6, 0.6, 0.6, 1.3, 1.3), CriterionHigh, Undecided, "excludes 0"},
		{"5% below on average, perhaps 8%", cpu("high", 0.90, 1.0), CriterionHigh, Undecided, "at least 8% below"},
		{"7% above under low load", cpu("low", 1.10, 1.101, 1.102), CriterionLow, Missed, "above base"},
		{"perhaps 5% above under low load", cpu("low", 0.96, 1.14), CriterionLow, Undecided, "at most 5% above"},
		{"one low phase makes up for the other", both(cpu("low", 0.90), cpu("low again", 1.04, 1.07)), CriterionLow, Undecided, `"low again" 5.2% above`},
		{"never goes down", func(r []Row) []Row {
			return at(r, "autotune", "", func(_ int, r *Row) { r.Lowered = 0 })
		}, CriterionChanges, Missed, "1 up, 0 down"},
		{"does not move in one round", func(r []Row) []Row {
			return at(r, "autotune", "", func(_ int, r *Row) {
				if r.Round == 3 {
					r.Raised, r.Lowered = 0, 0
				}
			})
		}, CriterionChanges, Missed, "round 3: 0 up, 0 down"},
		{"answers too few", func(r []Row) []Row {
			return at(r, "autotune", "high", func(_ int, r *Row) { r.Achieved = 0.9 * r.Offered })
		}, CriterionLoad, Missed, "90.0%"},
		{"answers too few, as the base does", func(r []Row) []Row {
			return at(at(r, "autotune", "high", func(_ int, r *Row) { r.Achieved = 0.9 * r.Offered }),
				"base", "high", func(_ int, r *Row) { r.Achieved = 0.9 * r.Offered })
		}, CriterionLoad, Undecided, "the base answered only"},
		{"the base answers too few", func(r []Row) []Row {
			return at(r, "base", "high", func(_ int, r *Row) { r.Achieved = 0.9 * r.Offered })
		}, CriterionLoad, Undecided, "the base answered only"},
		{"interrupted in the fifth round", func(r []Row) []Row { return r[:len(r)-1] }, CriterionEvidence, Undecided, "4 complete rounds"},
		{"half of the requests excluded, and those slow", func(r []Row) []Row {
			return at(r, "autotune", "high", func(_ int, r *Row) {
				r.Excluded, r.RawP90 = r.Requests*49/100, pointer(20*time.Millisecond)
			})
		}, CriterionSLO, Undecided, "49% of requests overlapped"},
		{"more than a p90 leaves out excluded once", func(r []Row) []Row {
			return at(at(r, "autotune", "low", excluded(0.11)), "base", "low", excluded(0.0999))
		}, CriterionSLO, Undecided, "11% of requests overlapped"},
		{"more than a p90 leaves out excluded of the base", func(r []Row) []Row {
			return at(r, "base", "low", excluded(0.11))
		}, CriterionSLO, Undecided, "11% of the base's requests overlapped"},
		{"more excluded than of the base", func(r []Row) []Row {
			return at(at(r, "autotune", "low", excluded(0.04)), "base", "low", excluded(0.01))
		}, CriterionSLO, Undecided, "4.0% of requests overlapped a scheduling gap, but 1.0% of the base's"},
		{"about as much excluded as of the base", func(r []Row) []Row {
			return at(at(r, "autotune", "", excluded(0.099)), "base", "", excluded(0.085))
		}, CriterionSLO, Met, ""},
		{"a raw p90 above the SLO", func(r []Row) []Row {
			return at(r, "autotune", "low", func(i int, r *Row) {
				if i == 2 {
					r.RawP90 = pointer(slo + 1000)
				}
			})
		}, CriterionSLO, Undecided, `round 3, phase "low": the raw p90 is`},
		{"a raw p90 above the SLO, and higher still of the base", func(r []Row) []Row {
			r = at(r, "autotune", "low", func(_ int, r *Row) { r.RawP90 = pointer(2 * slo) })
			return at(r, "base", "low", func(_ int, r *Row) { r.RawP90 = pointer(2 * slo) })
		}, CriterionSLO, Met, ""},
		{"excluded requests do not excuse a miss", both(p90("autotune", "low", 2, 2, 2), func(r []Row) []Row {
			return at(r, "autotune", "low", excluded(0.3))
		}), CriterionSLO, Missed, "in 3 of 5 rounds"},
		{"a raw p90 not known", func(r []Row) []Row { r[4].RawP90 = nil; return r }, CriterionEvidence, Undecided, "the raw p90 is not known"},
		{"lost events", func(r []Row) []Row { r[4].LostEvents = pointer(uint64(7)); return r }, CriterionEvidence, Undecided, "lost 7 events"},
		{"lost events not known", func(r []Row) []Row { r[4].LostEvents = nil; return r }, CriterionEvidence, Undecided, "saw nothing"},
		{"nothing observed", func(r []Row) []Row { r[4].Observed = 0; return r }, CriterionEvidence, Undecided, "saw nothing"},
		{"a busy machine", func(r []Row) []Row { r[4].OtherCPU = pointer(0.4); return r }, CriterionEvidence, Undecided, "40% of the server's CPU went elsewhere"},
		{"what else ran is not known", func(r []Row) []Row { r[4].OtherCPU = nil; return r }, CriterionEvidence, Undecided, "what else used the server's CPU is not known"},
		{"CPU not known once", func(r []Row) []Row { r[7].CPUPerRequest = nil; return r }, CriterionEvidence, Undecided, "CPU per request is not known"},
		{"the same phase twice", func(r []Row) []Row { return append(r, r[3]) }, CriterionEvidence, Undecided, "twice"},
		{"nothing at all", func([]Row) []Row { return nil }, CriterionEvidence, Undecided, "0 complete rounds"},
		{"only the contender", func(r []Row) []Row {
			return slices.DeleteFunc(r, func(r Row) bool { return r.Contender == "base" })
		}, CriterionEvidence, Undecided, "0 complete rounds"},
		{"no phase of high load", func(r []Row) []Row {
			for i := range r {
				r[i].Load = LoadLow
			}
			return r
		}, CriterionEvidence, Undecided, "no phase has high load"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(tt.change(good(MinRounds)), slo, autotuneAgainstBase)
			i := slices.IndexFunc(v.Criteria, func(c Criterion) bool { return c.Name == tt.criterion })
			if i < 0 {
				t.Fatalf("no criterion %q in:\n%s", tt.criterion, explain(v))
			}
			got := []Outcome{v.Criteria[i].Outcome, v.Outcome}
			if diff := cmp.Diff([]Outcome{tt.want, tt.want}, got); diff != "" {
				t.Errorf("outcome of %q and of the whole (-want +got):\n%s\n%s", tt.criterion, diff, explain(v))
			}
			if !strings.Contains(v.Criteria[i].Reason, tt.reason) {
				t.Errorf("reason %q does not say %q", v.Criteria[i].Reason, tt.reason)
			}
		})
	}
}

func TestJudgeDecidesNothingOnTooFewRounds(t *testing.T) {
	for name, choose := range map[string]policy{"still": holdStill, "fixed": fixed200, "switching": switching} {
		for rounds := range MinRounds {
			v := Judge(usual.rows(1, rounds, choose), usual.slo(), autotuneAgainstBase)
			if v.Outcome != Undecided {
				t.Errorf("%s, %d rounds: %s, want undecided:\n%s", name, rounds, v.Outcome, explain(v))
			}
		}
	}
}

// TestJudgeForgetsNoRound takes rows from four of nine rounds: the five that
// are left would do, but what is missing may be what was worst.
func TestJudgeForgetsNoRound(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		lost         func(Row) bool
	}{
		{"the contender's high phase", "round 1 was not finished", func(r Row) bool {
			return r.Round <= 4 && r.Contender == "autotune" && r.Phase == "high"
		}},
		{"the base's last phase", "round 1 was not finished", func(r Row) bool {
			return r.Round <= 4 && r.Contender == "base" && r.Phase == "low again"
		}},
		{"all of the contender", "round 1 was not finished", func(r Row) bool { return r.Round <= 4 && r.Contender == "autotune" }},
		{"whole rounds at the beginning", "nothing is left of round 1", func(r Row) bool { return r.Round <= 4 }},
		{"whole rounds in the middle", "nothing is left of round 3", func(r Row) bool { return r.Round >= 3 && r.Round <= 6 }},
		{"the ninth round's end", "round 9 was not finished", func(r Row) bool { return r.Round == 9 && r.PhaseIndex > 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(slices.DeleteFunc(good(9), tt.lost), plant{}.slo(), autotuneAgainstBase)
			if v.Outcome != Undecided || !strings.Contains(v.Criteria[0].Reason, tt.reason) {
				t.Errorf("got %s, want undecided with %q:\n%s", v.Outcome, tt.reason, explain(v))
			}
		})
	}
	if v := Judge(good(9), plant{}.slo(), autotuneAgainstBase); v.Outcome != Met {
		t.Errorf("nine whole rounds: %s, want met:\n%s", v.Outcome, explain(v))
	}
}

func TestJudgeWithoutSLO(t *testing.T) {
	if v := Judge(good(MinRounds), 0, autotuneAgainstBase); v.Outcome != Undecided {
		t.Errorf("got %s, want undecided:\n%s", v.Outcome, explain(v))
	}
}

func TestJudgeIgnoresOtherContendersAndTheOrderOfRows(t *testing.T) {
	rows := good(MinRounds)
	want := Judge(rows, plant{}.slo(), autotuneAgainstBase)
	shuffled := slices.Clone(rows)
	slices.Reverse(shuffled)
	// Phases must stay in order for the reasons to name them alike.
	slices.SortStableFunc(shuffled, func(a, b Row) int { return a.PhaseIndex - b.PhaseIndex })
	for _, r := range (plant{}).rows(2, MinRounds, anywhere) {
		if r.Contender == "autotune" {
			r.Contender = "third"
			shuffled = append(shuffled, r)
		}
	}
	if diff := cmp.Diff(want, Judge(shuffled, plant{}.slo(), autotuneAgainstBase)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWorseIsNeverJudgedBetter makes single cells of the contender worse and
// compares the outcomes.
func TestWorseIsNeverJudgedBetter(t *testing.T) {
	policies := map[string]policy{
		"still": holdStill, "fixed": fixed200, "anywhere": anywhere, "wander": wander, "switching": switching, "late": lateSwitching,
	}
	names := []string{"still", "fixed", "anywhere", "wander", "switching", "late"}
	rapid.Check(t, func(t *rapid.T) {
		p := plant{
			roundNoise: rapid.Float64Range(0, 0.1).Draw(t, "round noise"),
			phaseNoise: rapid.Float64Range(0, 0.15).Draw(t, "phase noise"),
			outlier:    rapid.Float64Range(0, 0.2).Draw(t, "outlier"),
		}
		rounds := rapid.IntRange(1, 7).Draw(t, "rounds")
		rows := p.rows(rapid.Uint64().Draw(t, "seed"), rounds, policies[rapid.SampledFrom(names).Draw(t, "policy")])
		// The SLO is drawn too, so that breaches are common.
		slo := time.Duration(float64(p.slo()) * rapid.Float64Range(0.4, 1.2).Draw(t, "slo"))
		before := Judge(rows, slo, autotuneAgainstBase)
		worse := slices.Clone(rows)
		for i := range worse {
			if worse[i].Contender != "autotune" || !rapid.Bool().Draw(t, "change") {
				continue
			}
			worse[i].CPUPerRequest = scaled(worse[i].CPUPerRequest, rapid.Float64Range(1, 1.5).Draw(t, "cpu"))
			d := time.Duration(float64(*worse[i].P90) * rapid.Float64Range(1, 1.5).Draw(t, "p90"))
			worse[i].P90 = &d
			raw := time.Duration(float64(*worse[i].RawP90) * rapid.Float64Range(1, 3).Draw(t, "raw p90"))
			worse[i].RawP90 = &raw
			worse[i].Excluded += uint64(rapid.Float64Range(0, 0.9).Draw(t, "excluded") * float64(worse[i].Requests-worse[i].Excluded))
			worse[i].Achieved *= rapid.Float64Range(0.95, 1).Draw(t, "achieved")
			if rapid.Bool().Draw(t, "still") {
				worse[i].Raised, worse[i].Lowered = 0, 0
			}
		}
		after := Judge(worse, slo, autotuneAgainstBase)
		if after.Outcome.rank() > before.Outcome.rank() {
			t.Fatalf("worse rows turned %s into %s:\n%s\n%s", before.Outcome, after.Outcome, explain(before), explain(after))
		}
		for i, c := range before.Criteria {
			if a := after.Criteria[i]; a.Outcome.rank() > c.Outcome.rank() {
				t.Fatalf("worse rows turned %s from %s into %s:\n%s\n%s", c.Name, c.Outcome, a.Outcome, c.Reason, a.Reason)
			}
		}
	})
}
