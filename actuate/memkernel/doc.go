// Package memkernel is a kernel in memory for tests of what drives NAPI
// settings: namespaces, devices, queues and NAPI instances with the behaviour
// that actuate relies on, and faults on demand.
//
// Applications are in memory as well: see [Processes].
//
// The central type is [System], which implements [actuate.System]. Instances
// that it makes anew behave as the real kernel's (netif_napi_add_weight and
// napi_restore_config in net/core/dev.c): with persistent config they keep ID
// and values, without they get a new ID and the device-level defaults, and
// where memory is reused (veth) an old suspend timeout.
//
// It can be of an earlier era, whose kernels set whole devices only.
//
// It may import actuate, actuate/netdev, actuate/busypoll and model. Nothing has to be closed.
package memkernel
