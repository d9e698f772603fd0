// Package process reads from procfs which processes a selector picks, and where
// their threads run and wait.
//
// The central type is [Thread]. The functions take the mount point of procfs,
// which is the only seam that tests need. A process or thread that ends while
// it is being read is left out; it is no error.
//
// The package may import model. It changes nothing and keeps nothing open.
package process
