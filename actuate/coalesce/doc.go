// Package coalesce reads the interrupt moderation of network devices: the
// coalesce-get command of the kernel's "ethtool" generic netlink family
// (Documentation/netlink/specs/ethtool.yaml, net/ethtool/coalesce.c). It never
// sets anything.
//
// It owns the wire. The ioctl of older tools is not used: it cannot tell a
// value of zero from one that the driver does not have, and knows no CQE mode.
//
// The central type is [Client]: one socket, bound for life to the network
// namespace that it was made in. Methods are safe for concurrent use. It may
// import model.
package coalesce
