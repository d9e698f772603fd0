package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rivals makes a run of five rounds on memcached in which each contender has
// that CPU per request, as a factor of 20 us and with 2% of noise, and that p90.
func rivals(cpu map[string]float64, p90 map[string]time.Duration) Result {
	run := RunInfo{
		Judged: "autotune", Phases: DefaultPhases(), Rounds: MinRounds, Seed: 1, Window: time.Second,
		Server: ServerInfo{Name: "memcached", Steered: true, Realtime: true}, Calibration: Calibration{SLO: 200 * time.Microsecond},
	}
	var rows []Row
	for _, c := range SteeredContenders() {
		factor, ok := cpu[c.Name]
		if !ok {
			continue
		}
		run.Contenders = append(run.Contenders, c)
		latency, quiet := max(p90[c.Name], time.Microsecond), 0.1
		var lost uint64
		for round := 1; round <= run.Rounds; round++ {
			for i, phase := range run.Phases {
				cost := 20e3 * factor * (1 + 0.01*float64((round*7+i*3+len(c.Name))%5-2))
				row := Row{
					Round: round, Contender: c.Name, Phase: phase.Name, PhaseIndex: i, Load: phase.Load, Offered: phase.Rate,
					Requests: uint64(phase.Rate), CPUPerRequest: &cost,
					P90: &latency, RawP90: &latency, OtherCPU: &quiet, Observed: time.Second, LostEvents: &lost,
				}
				rows = append(rows, row)
			}
		}
	}
	return Result{Run: run, Rows: rows}
}

func TestEveryOtherContenderIsComparedOverWholeTurns(t *testing.T) {
	result := rivals(
		map[string]float64{"base": 1.3, "deferral 50us": 0.7, "deferral 100us": 1, "suspension 20us": 1.3, "autotune": 1},
		map[string]time.Duration{"base": 100 * time.Microsecond, "deferral 50us": 300 * time.Microsecond, "suspension 20us": 100 * time.Microsecond},
	)
	got := map[string]Outcome{}
	broken := map[string]int{}
	for _, c := range Compare(result.Run, result.Rows) {
		if c.Contender != "autotune" {
			t.Errorf("%q is compared", c.Contender)
		}
		got[c.Other], broken[c.Other] = c.Outcome, len(c.SLOBroken)
	}
	want := map[string]Outcome{"base": Met, "deferral 50us": Missed, "deferral 100us": Undecided, "suspension 20us": Met}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if broken["deferral 50us"] != 3 || broken["base"] != 0 {
		t.Errorf("phases that break the SLO: %v", broken)
	}
}

func TestNothingIsComparedWithoutWhatItTakes(t *testing.T) {
	cpu := map[string]float64{"base": 1.3, "deferral 50us": 0.7, "deferral 100us": 1, "autotune": 1}
	few := rivals(map[string]float64{"base": 1.3, "deferral 50us": 0.7, "autotune": 1}, nil)
	quick := rivals(cpu, nil)
	quick.Run.Quick = true
	for name, result := range map[string]Result{"the default number": few, "a quick look": quick} {
		if got := Compare(result.Run, result.Rows); got != nil {
			t.Errorf("%s: compared %v", name, got)
		}
	}
	// The turn of a round that was cut short is not compared, and what is left
	// does not reach an interval.
	short := rivals(cpu, nil)
	short.Rows = short.Rows[:len(short.Rows)-1]
	busy, taken := rivals(cpu, nil), 0.5
	busy.Rows[len(busy.Rows)-1].OtherCPU = &taken
	for name, result := range map[string]Result{"four rounds": short, "a busy machine": busy} {
		for _, c := range Compare(result.Run, result.Rows) {
			if c.Outcome != Undecided || c.Rounds != MinRounds-1 {
				t.Errorf("%s: decided %v", name, c)
			}
		}
		var table bytes.Buffer
		if err := WriteTable(&table, result); err != nil || !strings.Contains(table.String(), "Rounds are left out") {
			t.Errorf("%s: the table does not say that rounds are left out (%v)", name, err)
		}
	}
}

func TestARecordOfAProgramSaysWhatItIsWorth(t *testing.T) {
	result := rivals(map[string]float64{"base": 1.3, "deferral 50us": 0.7, "deferral 100us": 1.3, "autotune": 1}, nil)
	var record, table, page bytes.Buffer
	if err := WriteRecord(&record, result); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(record.String(), `"kind":"comparison"`); n != 3 {
		t.Errorf("%d comparisons in the record, want 3", n)
	}
	again, err := ReadRecord(&record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(result.Run.Server, again.Run.Server); diff != "" {
		t.Errorf("server (-written +read):\n%s", diff)
	}
	if err := WriteTable(&table, again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Memcached logs no gaps", "below: -2", "above: +4", "in 5 rounds against deferral 50us"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "below every other") {
		t.Error("the table says that it is below every other")
	}
	if err := WriteReport(&page, again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memcached does not log", "put back and verified", "in 5 rounds against deferral 50us"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}
