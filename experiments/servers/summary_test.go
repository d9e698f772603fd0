package servers

import (
	"strings"
	"testing"
)

// turns makes five rounds of a program under the three contenders, with CPU and
// p90 as factors of the untouched server's, and noise of 2%.
func turns(cpu, p90 [3]float64) []Row {
	var rows []Row
	for round := range 5 {
		noise := 1 + 0.02*float64(round-2)/2
		for i, c := range Contenders() {
			busy, expired := 0.5*float64(i), uint64(i)
			row := Row{Program: "redis", Contender: c.Name, Round: round, P50Us: 50 * noise, P90Us: 100 * p90[i] * noise, P99Us: 200, CPUPerRequestUs: 20 * cpu[i] * noise}
			if i > 0 {
				row.BusyShare, row.Expired = &busy, &expired
			}
			// What disturbs a round disturbs all of it; what is left differs.
			row.CPUPerRequestUs *= 1 + 0.004*float64((round*7+i*3)%5-2)
			rows = append(rows, row)
		}
	}
	return rows
}

func TestTheVerdictIsWhatTheIntervalsShow(t *testing.T) {
	for name, c := range map[string]struct {
		cpu, p90 [3]float64
		want     string
	}{
		"nothing changes":   {[3]float64{1, 1, 1}, [3]float64{1, 1, 1}, "CPU undecided, p50 undecided, p90 undecided"},
		"suspension saves":  {[3]float64{1, 1, 0.8}, [3]float64{1, 1, 1}, "CPU gains 20%"},
		"suspension costs":  {[3]float64{1, 1, 1.5}, [3]float64{1, 1, 0.5}, "CPU loses 50%"},
		"delays are halved": {[3]float64{1, 1, 1}, [3]float64{1, 1, 0.5}, "p90 gains 50%"},
	} {
		t.Run(name, func(t *testing.T) {
			compared := Summarize(turns(c.cpu, c.p90))
			if len(compared) != 3 {
				t.Fatalf("%d lines, want 3", len(compared))
			}
			if got := compared[2].Verdict; !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if compared[0].Untouched != nil || compared[2].Deferral == nil || *compared[2].Expired != 10 || *compared[2].BusyShare != 1 {
				t.Errorf("lines %+v", compared)
			}
			var table strings.Builder
			if err := WriteMarkdown(&table, compared); err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(table.String(), "\n"); lines != 5 {
				t.Errorf("%d lines of table, want 5:\n%s", lines, table.String())
			}
		})
	}
}
