// Package demo owns the demonstration experiment: contenders take turns in
// tuning one queue of a test bed under a load that goes from low to high and
// back, and a judge decides, by rules fixed beforehand, whether tuning paid. The
// server under that load is the one of experiments/workload or, with
// [Options.Program], one that is installed here and knows nothing of autotune.
//
// The central type is [Row]: what one contender did in one phase of one round.
// [Run] makes rows, [Judge] decides on them, [WriteTable] and [WriteReport]
// show them, and [WriteRecord] keeps everything, so that [ReadRecord] can judge
// and show a run again.
//
// The package may import tuner, model and other experiments. It knows neither
// probes nor actuators: whoever calls Run passes in a [Tuners]. Run removes
// the test bed, ends its processes and has the originals restored before it
// returns, also when its context is cancelled.
package demo
