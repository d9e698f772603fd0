package counterfactual

import (
	"context"
	"fmt"
	"math"

	"autotune/experiments/stats"
	"autotune/model"
	"autotune/model/sim"
)

// Live is what was measured in a test bed: one setting that was recorded, and
// others to be predicted from that recording, each at the same loads.
type Live struct {
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	// Recorded is the setting of the recording, in the notation of
	// [sim.ParseSetting]; Cells has the others.
	Recorded string `json:"recorded_setting"`
	// Loads are the offered loads, and Blocks the windows of the recording at
	// each, as [from, to).
	Loads []float64 `json:"loads_requests_per_s"`
	// Burst is how many requests came in a burst on the average, at BurstRate; 0
	// where they came at random.
	Burst     float64    `json:"burst_requests"`
	BurstRate float64    `json:"burst_requests_per_s"`
	Blocks    [][][2]int `json:"blocks"`
	Cells     []LiveCell `json:"cells"`
}

// LiveCell is one setting at one load; its values are by round.
type LiveCell struct {
	Setting         string    `json:"setting"`
	Load            int       `json:"load"` // index into Live.Loads
	P50Us           []float64 `json:"p50_us"`
	P90Us           []float64 `json:"p90_us"`
	CPUPerRequestUs []float64 `json:"cpu_per_request_us"`
}

// Limits of the errors of a prediction, as medians over the cells, and of the
// share of pairs of settings whose order by CPU is right.
const (
	P50Limit   = 0.20
	P90Limit   = 0.30
	CPULimit   = 0.15
	OrderLimit = 0.90
)

// Verdict is how predictions compare with what was measured.
type Verdict struct {
	Kind  string         `json:"kind"` // "counterfactual_check"
	Cells []ComparedCell `json:"cells"`
	// The errors are medians over the cells that were predicted, of
	// |predicted/measured - 1|.
	P50Error float64 `json:"median_p50_error"`
	P90Error float64 `json:"median_p90_error"`
	CPUError float64 `json:"median_cpu_error"`
	// Pairs are the pairs of settings at one load whose measured intervals of
	// CPU per request do not overlap; Wrong are those predicted in the other
	// order.
	Pairs int      `json:"pairs"`
	Wrong []string `json:"wrong_order"`
	Met   bool     `json:"met"`
	// Undecided is set where all that can be judged is within its limits, and no
	// two settings differ beyond noise: then no order was judged, and Met is
	// false.
	Undecided bool `json:"undecided"`
	// Burst is how many requests came in a burst on the average; 0 where they came
	// at random.
	Burst float64 `json:"burst_requests"`
	// EventWindows is how many windows had single events that were used.
	EventWindows int `json:"event_windows"`
	// Told says which costs the recording told.
	Told []Told `json:"-"`
	// Fitted is how requests come in windows without single events.
	Fitted ToldBursts `json:"-"`
}

// ComparedCell is one cell's measured medians and predicted bands.
type ComparedCell struct {
	Setting           string         `json:"setting"`
	RequestsPerSecond float64        `json:"requests_per_s"`
	Recorded          bool           `json:"recorded"`
	Measured          ComparedValues `json:"measured"`
	Predicted         Bands          `json:"predicted"`
	cpu               stats.Interval
}

// ComparedValues are medians over rounds.
type ComparedValues struct {
	P50Us           float64 `json:"p50_us"`
	P90Us           float64 `json:"p90_us"`
	CPUPerRequestUs float64 `json:"cpu_per_request_us"`
}

// Check predicts every cell from the recording and compares. The error wraps
// [ErrMeasured] where live is not of this recording.
func Check(ctx context.Context, r *Recording, live Live, start *sim.Preset, draws int, seed uint64) (Verdict, error) {
	v := Verdict{Kind: "counterfactual_check", Wrong: []string{}, Burst: live.Burst}
	if err := live.check(len(r.windows)); err != nil {
		return v, err
	}
	fitted, err := Fit(ctx, r, FitOptions{Start: start, Doubt: KnownKind, Seed: seed})
	if err != nil {
		return v, err
	}
	v.Told, v.Fitted = fitted.Told(), fitted.Bursts()
	hosts := fitted.Draws(draws, seed)
	var p50, p90, cpu []float64
	for _, cell := range live.Cells {
		setting, err := sim.ParseSetting(cell.Setting)
		if err != nil {
			return v, err
		}
		outcomes, err := Predict(ctx, r, PredictOptions{
			Hosts: hosts, Policy: "base", Blocks: live.Blocks[cell.Load], Seed: seed + 1,
			Original:  func(model.Queue) model.Settings { return setting.NAPI },
			Objective: model.Objective{SLO: 1, Quantile: 0.99},
		})
		if err != nil {
			return v, err
		}
		compared := ComparedCell{
			Setting: cell.Setting, RequestsPerSecond: live.Loads[cell.Load], Recorded: cell.Setting == live.Recorded,
			Measured:  ComparedValues{P50Us: stats.Median(cell.P50Us), P90Us: stats.Median(cell.P90Us), CPUPerRequestUs: stats.Median(cell.CPUPerRequestUs)},
			Predicted: BandsOf(outcomes),
			cpu:       stats.Bootstrap{}.Mean(cell.CPUPerRequestUs),
		}
		if !compared.Recorded {
			p50 = append(p50, math.Abs(compared.Predicted.P50Us.Median/compared.Measured.P50Us-1))
			p90 = append(p90, math.Abs(compared.Predicted.P90Us.Median/compared.Measured.P90Us-1))
			cpu = append(cpu, math.Abs(compared.Predicted.CPUPerRequestUs.Median/compared.Measured.CPUPerRequestUs-1))
		}
		v.Cells = append(v.Cells, compared)
	}
	v.P50Error, v.P90Error, v.CPUError = stats.Median(p50), stats.Median(p90), stats.Median(cpu)
	v.order()
	within := v.P50Error <= P50Limit && v.P90Error <= P90Limit && v.CPUError <= CPULimit &&
		float64(v.Pairs-len(v.Wrong)) >= OrderLimit*float64(v.Pairs)
	v.Met, v.Undecided = within && v.Pairs > 0, within && v.Pairs == 0
	return v, nil
}

func (v *Verdict) order() {
	for i, a := range v.Cells {
		for _, b := range v.Cells[:i] {
			if a.RequestsPerSecond != b.RequestsPerSecond || a.cpu.Low <= b.cpu.High && b.cpu.Low <= a.cpu.High {
				continue
			}
			v.Pairs++
			if (a.cpu.Low > b.cpu.High) != (a.Predicted.CPUPerRequestUs.Median > b.Predicted.CPUPerRequestUs.Median) {
				v.Wrong = append(v.Wrong, fmt.Sprintf("%s against %s at %.0f/s", a.Setting, b.Setting, a.RequestsPerSecond))
			}
		}
	}
}
