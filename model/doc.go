// Package model holds the values that the whole of autotune speaks in, and
// the mathematics on them: queues and their settings, samples of what the
// kernel did, features derived from samples, histograms and objectives.
//
// The central type is [Sample]: everything that is known about one span of
// time. A sample is produced by a source (live, recorded or simulated),
// condensed into [Features], decided upon by a [Policy], and answered with a
// [Config]. Time exists only inside samples.
//
// The package does no I/O, reads no clock and starts no goroutine. It may
// import the standard library and gonum.
package model
