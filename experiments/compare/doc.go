// Package compare owns the comparison of policies: it runs each policy, and the
// references that bound what is possible, through the same simulated scenarios,
// and says with intervals who wins.
//
// The central type is [Plan], everything that decides what is simulated. Its
// life is [Run], which simulates the plan or one shard of it and returns
// [Cell] values; [WriteRaw] and [Merge] put those down and together; and
// [Report] makes the numbers, tables and plots of a complete set of cells. A
// report follows from the raw rows alone, so that merged shards give the bytes
// of the whole.
//
// A plan's loads are scenarios and recordings ([Trace]). The loads of recordings
// are handed in and not read here; a manifest has their digests, which is enough
// to put shards together.
//
// One plan gives the same bytes however many cores work on it: each cell is
// simulated on its own, from random numbers that follow from its scenario and
// seed, and everything is put together in the plan's order.
//
// The package may import model, model/policy, model/sim, tuner,
// experiments/scenarios, experiments/stats and experiments/report.
package compare
