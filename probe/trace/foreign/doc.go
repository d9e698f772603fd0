// Package foreign makes samples of series that other tools recorded, so that
// people can start with what they have: snapshots of /proc/net/softnet_stat, and
// what sadf -d prints of a sysstat archive.
//
// Neither knows NAPI instances, polls or delays. What is not in a series is null
// in its samples where there is a null; the poll counts of a queue have none,
// and are 0 but for the packets.
//
// The central type is [Series]. The package may import model and the standard
// library; it opens no file.
package foreign
