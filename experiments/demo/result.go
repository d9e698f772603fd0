package demo

import (
	"time"
)

// Result is all that a run saw, and what was concluded.
type Result struct {
	Run     RunInfo
	Windows []Window
	Rows    []Row
	// Verdict is nil for a quick look.
	Verdict *Verdict
}

// RunInfo is what a reader must know of a run besides its numbers.
type RunInfo struct {
	Started time.Time `json:"started"`
	// Took is the time from start to the last restored setting.
	Took       time.Duration `json:"took_ns"`
	Machine    Machine       `json:"machine"`
	Seed       uint64        `json:"seed"`
	Contenders []Contender   `json:"contenders"`
	Judged     string        `json:"judged"`
	Phases     []Phase       `json:"phases"`
	Rounds     int           `json:"rounds"`
	Window     time.Duration `json:"window_ns"`
	Quick      bool          `json:"quick"`
	// Server is what was under load.
	Server ServerInfo `json:"server"`
	// Nice is the nice value of the load's processes and the NAPI's thread.
	Nice int `json:"nice"`
	// Orders holds the contenders' order in each round.
	Orders      [][]string  `json:"orders"`
	Calibration Calibration `json:"calibration"`
	// Parameters are those of the caller ([Options.Parameters]).
	Parameters map[string]string `json:"parameters"`
	// Partial says why the run ended early; null where it did not.
	Partial *string `json:"partial"`
}

// Calibration is how the SLO came about: the base alone, under high load,
// before any contender's turn. It is not part of the rows.
type Calibration struct {
	Span time.Duration `json:"span_ns"`
	// Windows is the number of windows whose p90 had its median taken.
	Windows int           `json:"windows"`
	BaseP90 time.Duration `json:"base_p90_ns"`
	Factor  float64       `json:"factor"`
	// SLO bounds the client's p90. It is Factor times BaseP90.
	SLO time.Duration `json:"slo_ns"`
	// DelayP90 is the p90 of the delay that the tuner's probes saw meanwhile,
	// null where they saw none. What it lacks to BaseP90 is spent outside the
	// server, and is taken off the SLO to give Objective, which the tuner is
	// to meet.
	DelayP90  *time.Duration `json:"server_delay_p90_ns"`
	Objective time.Duration  `json:"objective_ns"`
}

// Machine is where a run took place.
type Machine struct {
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	// Virtual tells that it is a virtual machine, as the CPU flag says.
	Virtual bool `json:"virtual"`
	// Device is the driver of the tuned interface.
	Device string `json:"device"`
}

func (r *Result) judge() {
	if r.Run.Quick {
		return
	}
	v := Judge(r.Rows, r.Run.Calibration.SLO, Criteria{
		Base: r.Run.Contenders[0].Name, Contender: r.Run.Judged, Seed: r.Run.Seed,
	})
	if r.Run.Partial != nil && v.Outcome == Met {
		// A run that stopped early was not stopped at random.
		v.add(Criterion{Name: CriterionEvidence, Outcome: Undecided, Reason: "the run ended early: " + *r.Run.Partial})
	}
	r.Verdict = &v
}
