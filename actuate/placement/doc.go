// Package placement judges on which CPUs packets are polled and read, and says
// what would have to move for both to be the same. It owns the items that can
// be moved and how each is read and written; keeping their originals is for
// package actuate, as for every other knob.
//
// The central type is [Item]: one thread, interrupt or receive queue whose CPUs
// can be set. [Judge] is a pure function from [Facts] to findings, each with
// the [Move] that would mend it.
//
// The package may import model and x/sys. It keeps no state and reads no clock.
package placement
