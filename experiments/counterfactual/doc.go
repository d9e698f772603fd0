// Package counterfactual tells what a recorded host would have done under
// settings or policies that were not tried there.
//
// It owns the way from a recording to a band of predictions: [Recording]
// gathers what a trace measured, and rebuilds arrivals and service times where
// it has single events; [Fit] moves the costs of a simulated host until
// it behaves as the recording, keeping what the recording cannot tell as
// uncertain as it was, and finds [Bursts] where polls brought more packets than
// requests at random would; [Predict] runs a policy against simulated hosts drawn
// from what is left uncertain. The central type is [Recording]. Off-policy
// estimates ([OffPolicy]) need no simulator, but a recording whose settings were
// drawn at random.
//
// It may import model, model/policy, model/sim, tuner, probe/trace,
// experiments/stats and gonum.
// It reads no clock; equal recordings and seeds give equal predictions.
package counterfactual
