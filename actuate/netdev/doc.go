// Package netdev is a typed client of the kernel's "netdev" generic netlink
// family (Documentation/netlink/specs/netdev.yaml, net/core/netdev-genl.c):
// devices, queues and NAPI instances of one network namespace.
//
// It owns the wire: attribute decoding, interrupted dumps, acknowledgements,
// and the meaning of each errno by command. It knows nothing of originals,
// ownership or policies. It may import model for the error sentinels.
//
// The central type is [Client]. A Client is one socket, bound for life to the
// namespace that it was made in; the socket keeps that namespace alive until
// [Client.Close]. Methods are safe for concurrent use and serialised.
package netdev
