// Package policy owns the policies: the rules that turn what was seen of a
// queue into the settings proposed for it. It may import model, model/gp, gonum
// and the standard library.
//
// The central function is [Parse], which makes a [model.Policy] from a spec
// such as "aimd:step=4us". A policy lives as long as a run and keeps what it
// learns by queue; it has no resources to release and is not safe for
// concurrent use.
package policy
