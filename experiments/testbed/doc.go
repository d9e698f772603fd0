// Package testbed owns the place in which live experiments and live tests
// run: two network namespaces, one for the server and one for the client,
// joined by a veth pair whose server end is a real NAPI device with a chosen
// number of receive queues.
//
// The central type is [Bed]. [New] builds one and [Bed.Close] removes it,
// with everything that was started in it; a bed whose owner was killed is
// removed by the next [New] or [Sweep]. Any number of beds stand side by
// side. [Require] tells a test whether it can have one, [Alone] keeps tests that
// measure from measuring each other, and [Attempt] measures again where the
// machine was disturbed.
//
// The names of a bed's namespaces tell its owner by process ID and start time.
// Processes of different PID namespaces must therefore not share /run/netns.
//
// The package may import libraries only, nothing else of autotune. Links are
// made with vishvananda/netlink, because jsimonetti/rtnetlink (v2.3) has no
// attribute for the number of receive queues (IFLA_NUM_RX_QUEUES) on either
// end of a veth pair.
package testbed
