package demo

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// generated is a whole result as a run on the plant would have made it.
func generated(seed uint64) Result {
	p := quiet
	contenders := []struct {
		Contender
		choose policy
	}{
		{Contender{Name: "base"}, holdStill},
		{Contender{Name: "fixed 200us", Spec: "static:defer=100,flush=200us"}, fixed200},
		{Contender{Name: "autotune", Spec: "aimd"}, slowSwitching},
	}
	delay := time.Duration(0.8 * float64(p.slo()) / 2)
	result := Result{Run: RunInfo{
		Started: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		Took:    4*time.Minute + 12*time.Second,
		Machine: Machine{Kernel: "6.18.1", Arch: "amd64", CPU: "Intel(R) Xeon(R) Processor", CPUs: 2, Virtual: true, Device: "veth"},
		Seed:    seed, Contenders: nil, Judged: "autotune",
		Phases: DefaultPhases(), Rounds: MinRounds, Window: 250 * time.Millisecond,
		Calibration: Calibration{
			Span: 5 * time.Second, Windows: 20, BaseP90: p.slo() / 2, Factor: 2, SLO: p.slo(),
			DelayP90: &delay, Objective: p.slo() - (p.slo()/2 - delay),
		},
		Parameters: map[string]string{"aimd": "start=20us,step=4us,backoff=0.6,min=0us,max=200us"},
	}}
	random := rand.New(rand.NewPCG(seed, 2))
	for _, c := range contenders {
		result.Run.Contenders = append(result.Run.Contenders, c.Contender)
	}
	for round := 1; round <= MinRounds; round++ {
		var order []string
		for turn, i := range random.Perm(len(contenders)) {
			c := contenders[i]
			order = append(order, c.Name)
			flush, at := 0, time.Duration(0)
			for index, phase := range DefaultPhases() {
				row := p.row(random, 1, phase, &flush, func(r *rand.Rand, load Load, window, before int) int {
					next := c.choose(r, load, window, before)
					at += 250 * time.Millisecond
					cost := 1000 * p.cost(load, next) * (1 + 0.05*random.NormFloat64())
					p90 := time.Duration(p.delay(load, next) * (1 + 0.04*random.NormFloat64()) * float64(time.Microsecond))
					p50 := p90 * 62 / 100
					setting, deferral := time.Duration(next)*time.Microsecond, uint32(0)
					if next > 0 {
						deferral = 100
					}
					result.Windows = append(result.Windows, Window{
						Round: round, Contender: c.Name, Phase: phase.Name, PhaseIndex: index,
						At: at, Span: 250 * time.Millisecond, Achieved: phase.Rate * (1 + 0.02*random.NormFloat64()),
						P50: &p50, P90: &p90, CPUPerRequest: &cost, Flush: &setting, Defer: &deferral,
					})
					return next
				})
				row.Round, row.Turn, row.Contender, row.PhaseIndex = round, turn+1, c.Name, index
				result.Rows = append(result.Rows, row)
			}
		}
		result.Run.Orders = append(result.Run.Orders, order)
	}
	result.judge()
	return result
}

// interrupted is the same, cut off in the third round.
func interrupted(seed uint64) Result {
	result := generated(seed)
	result.Rows = result.Rows[:20]
	last := result.Rows[19]
	for i, w := range result.Windows {
		if w.Round == last.Round && w.Contender == last.Contender && w.PhaseIndex > last.PhaseIndex {
			result.Windows = result.Windows[:i]
			break
		}
	}
	why := fmt.Sprintf("interrupted in round %d", last.Round)
	result.Run.Partial = &why
	result.judge()
	return result
}
