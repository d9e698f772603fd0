// Package actuate is the only part of autotune that changes the kernel. It
// owns the tuned interfaces: which NAPI instance serves which queue, what each
// was set to before, what was written since, and putting that back.
//
// The central type is [Host]. [Open] takes the locks, puts back what a crashed
// run left, reads the originals and makes them durable; only then can
// [Host.Apply] write. [Host.Restore] puts the originals back, and [Host.Close]
// gives up locks and sockets. After a crash, [Restore] does from the files
// alone what Host.Restore would have done.
//
// What holds at every instant, a kill -9 included:
//
//   - Before the first write the originals are on disk, and before each write
//     the values that it may leave behind. So each knob's present value is the
//     original, the confirmed or the intended one, or somebody else's.
//   - A value outside the bounds is never written, except an original.
//   - A knob that another writer has changed is left to that writer.
//   - Two runs never own one device, whatever their state directories and
//     mount namespaces.
//
// [Applications] does the same for how epoll contexts and sockets of running
// processes busy poll, in the same state. [Steering] joins both: it makes
// selected applications follow the settings of the queues that they receive on.
//
// Where the kernel cannot set NAPI instances one by one (before Linux 6.13),
// whole devices are set through sysfs, with the same guarantees: see
// [ScopeDevice]. Threads, interrupts and packet steering are moved with the
// same guarantees too: see [Host.Place]. What else competes for the same
// latency is only read: see [Host.Conditions].
//
// The package may import model, actuate/netdev, actuate/coalesce,
// actuate/busypoll, actuate/placement, and netlink and ethtool libraries. It
// reads no clock and starts no lasting goroutine.
package actuate
