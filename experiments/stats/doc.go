// Package stats owns the statistics of experiments: intervals on the mean of
// few values, and on ratios paired by round.
//
// The central type is [Interval]. The package does no I/O and keeps no state;
// the same values and seed give the same interval. It may import gonum and
// nothing of autotune.
package stats
