// Package scenarios owns the loads on which policies are compared, as TOML
// files: those shipped with the program, and any that a user writes. It may
// import model and model/sim.
//
// The central type is [File], one such file, read by [Load]. It becomes a load
// with [File.Scenario], stretched to the length of the comparison.
//
// A file says what the whole host is offered, in thousand requests per second:
//
//	name = "evening"
//	about = "a quiet day with a burst in the evening"
//
//	[steps]
//	kqps = [200, 900, 300]
//	each = "10s"
//
// or names a recording, a CSV file with the columns t_s and load_kqps that
// lies beside it:
//
//	name = "monday"
//	load = "monday.csv"
//
// Times are durations with their unit ("10s"), or a share of the scenario's
// length ("20%"). A key that does not exist is an error with file and line.
//
// A load that no file describes becomes a scenario with [Given].
package scenarios
