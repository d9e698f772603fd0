// Package workload owns the load of live experiments: an epoll server and an
// open-loop client, each the main loop of a process of its own, and the side
// of the parent that starts them and collects what they measure.
//
// The central types are [Server] and [Client], the parent's view of the two
// processes. A process is made by running a program that calls [RunServer] or
// [RunClient] with its standard input and output; the two sides speak JSON
// lines. The first line in is the configuration; then the process says that it
// is ready, takes commands, reports one interval after another, and on "stop"
// or the end of its input reports its totals and ends.
//
// All times are since boot (CLOCK_BOOTTIME), the same in every process and in
// the samples of the tuner.
//
// The client is open loop: requests become due by a Poisson process whatever
// the server does, and each is timed from the moment at which it was due. A
// request that finds all connections busy waits in the client, on the clock.
// Neither loop allocates, collects garbage or shares its thread; both log the
// gaps in which they were not run, see [Gap].
//
// The package may import libraries only, nothing else of autotune.
package workload
