// Package phc owns the clocks of network devices (PTP hardware clocks, PHC) and
// what turns their time into that of the host.
//
// A device stamps packets by its own clock, which nobody need have set: it may
// be decades off and run fast or slow. The central type is [Tracker]: it is fed
// one [Reading] per window, which compares the two clocks, and gives the [Clock]
// that holds until the next. [Device] takes readings from the kernel.
//
// The package changes no clock and switches no time stamps on. It may import
// golang.org/x/sys.
package phc
