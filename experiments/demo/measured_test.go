package demo

import (
	"os"
	"testing"
)

// readMeasured reads rows that a real run left, without their windows.
func readMeasured(t *testing.T, name string) Result {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	result, err := ReadRecord(f)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The rows are from real runs on a 2-CPU virtual machine with Linux 6.18: one
// that nothing disturbed, and two with two more contenders, a policy that does
// nothing and one that draws at random, during which other work took CPU time.
// The last was on memcached.
func TestTheJudgeOnMeasuredRows(t *testing.T) {
	for _, tc := range []struct {
		name, file, contender string
		want                  []Outcome
	}{
		{"the tuner on a quiet machine meets the target", "measured-quiet.jsonl", "autotune", []Outcome{Met}},
		{"a fixed setting that breaks the SLO does not", "measured-quiet.jsonl", "fixed 200us", []Outcome{Missed}},
		{"the tuner on a disturbed machine is undecided", "measured-disturbed.jsonl", "autotune", []Outcome{Undecided}},
		{"doing nothing does not pass", "measured-disturbed.jsonl", "policy base", []Outcome{Missed, Undecided}},
		{"drawing at random does not pass", "measured-disturbed.jsonl", "policy random", []Outcome{Missed, Undecided}},
		{"nor on memcached", "measured-memcached.jsonl", "policy base", []Outcome{Missed, Undecided}},
		{"nor does drawing at random on memcached", "measured-memcached.jsonl", "policy random", []Outcome{Missed, Undecided}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			result := readMeasured(t, tc.file)
			v := Judge(result.Rows, result.Run.Calibration.SLO, Criteria{
				Base: result.Run.Contenders[0].Name, Contender: tc.contender, Seed: result.Run.Seed,
			})
			for _, want := range tc.want {
				if v.Outcome == want {
					return
				}
			}
			t.Errorf("outcome %s, want one of %v: %+v", v.Outcome, tc.want, v.Criteria)
		})
	}
}

// Whatever the disturbances, the criteria on which they do not bear must tell
// the tuner from a policy that does nothing or draws at random.
func TestWithoutTheDisturbancesIdlersAndGamblersMiss(t *testing.T) {
	missWithoutDisturbances(t, "measured-disturbed.jsonl", "policy base", "policy random")
}

// On memcached there was nothing to earn: plain interrupts were the cheapest
// setting that held the SLO, and the tuner does not pass either.
func TestWithoutTheDisturbancesNobodyPassesOnMemcached(t *testing.T) {
	missWithoutDisturbances(t, "measured-memcached.jsonl", "policy base", "policy random", "autotune")
}

func missWithoutDisturbances(t *testing.T, file string, contenders ...string) {
	t.Helper()
	result := readMeasured(t, file)
	for _, contender := range contenders {
		rows := append([]Row(nil), result.Rows...)
		for i := range rows {
			quiet := 0.0
			rows[i].OtherCPU = &quiet
		}
		v := Judge(rows, result.Run.Calibration.SLO, Criteria{Base: result.Run.Contenders[0].Name, Contender: contender, Seed: 1})
		if v.Outcome != Missed {
			t.Errorf("%s: outcome %s, want %s: %+v", contender, v.Outcome, Missed, v.Criteria)
		}
	}
}
