// Package gp owns Gaussian process regression on few points: a kernel, and
// predictions from observations that can be added and changed one by one.
//
// The central type is [Process]. Adding a point extends the Cholesky factor of
// the correlation matrix by a row, in time quadratic in the number of points;
// only [Process.Keep] factorises anew. What is predicted again and again is kept
// as a [Position], which follows the process in time linear in the number of
// points. The package may import the standard library and gonum.
package gp
