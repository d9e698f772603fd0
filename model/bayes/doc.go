// Package bayes is linear regression under a normal prior, for a stream of
// observations whose law drifts.
//
// The central type is [Regression]. It keeps its data in information form, as
// the sums of x x'/v and x y/v, and forgets them geometrically, so that without
// new data it returns to its [Prior] and not to ignorance. Priors can be shared
// between regressions and exchanged at any time, which is how what several
// streams have in common is learned from all of them.
//
// The package may import gonum and nothing of autotune.
package bayes
