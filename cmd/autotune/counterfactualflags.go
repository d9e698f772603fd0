package main

import (
	"errors"
	"fmt"

	"autotune/model/sim"
)

// counterfactualFlags say how replay tells what would have happened.
type counterfactualFlags struct {
	Simulate     bool   `help:"Run the policies on a simulated host under the recorded arrivals, and tell latency and CPU."`
	Preset       string `help:"Simulate this host as it is, by name or file, instead of fitting one to the recording." placeholder:"NAME|FILE.json"`
	Fit          bool   `help:"Fit the preset to the recording; done anyway where no preset is given."`
	Draws        int    `help:"Simulated hosts per policy, which the bands are made of." default:"20"`
	Windows      *int   `help:"Simulate about so many windows, spread evenly, of a longer recording; 0 for all. By default 1200, or on a busy host as many as have two million requests."`
	AssumePrefer bool   `help:"As if the application preferred busy polling, where the recorded one did not." name:"assume-prefer"`
	WritePreset  string `help:"Write the fitted host to this file." type:"path" name:"write-preset" placeholder:"FILE.json"`
	OffPolicy    bool   `help:"Estimate from what a randomised recorded run drew, without a simulator." name:"off-policy"`
	Seed         uint64 `help:"Names the random numbers of the simulation." default:"1"`
}

func (f *counterfactualFlags) check(c *replayCmd) error {
	given := f.Preset != "" || f.Fit || f.AssumePrefer || f.WritePreset != ""
	modes := 0
	for _, on := range []bool{f.Simulate, f.OffPolicy, c.Verify} {
		if on {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("--simulate, --off-policy and --verify are different questions: ask one at a time")
	case given && !f.Simulate:
		return errors.New("--preset, --fit, --assume-prefer and --write-preset belong to --simulate")
	case f.OffPolicy && len(c.Policies) == 0:
		return errors.New("--off-policy needs the policy to be judged: --policy SPEC")
	case f.WritePreset != "" && f.Preset != "" && !f.Fit:
		return errors.New("--write-preset needs --fit: a preset that is used as it is has been written already")
	case f.Draws < 1:
		return fmt.Errorf("--draws %d: at least 1, and 20 for a band", f.Draws)
	case f.Windows != nil && *f.Windows < 0:
		return fmt.Errorf("--windows %d: 0 is all of them", *f.Windows)
	}
	if f.Preset != "" {
		if _, err := sim.LoadPreset(f.Preset); err != nil {
			return err
		}
	}
	return nil
}
