// Package gp owns Gaussian process regression on few points: a kernel, and
// predictions from observations that can be added and changed one by one.
//
// The central type is [Process]. Adding a point extends the Cholesky factor of
// the covariance matrix by a row, in time quadratic in the number of points;
// only [Process.Keep] factorises anew. The package may import the standard
// library and gonum.
package gp
