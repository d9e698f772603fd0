/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * When packets came, by the device that received them.
 */
#ifndef AUTOTUNE_STAMPS_H
#define AUTOTUNE_STAMPS_H

/* Longer waits are taken for wrong, and so are clocks that were compared longer
 * ago. The latter also keeps the product with the rate below 2^63. */
#define MAX_STAMPED_WAIT 1000000000LL
#define MAX_CLOCK_AGE (1LL << 34)

/*
 * A packet's shared info has no type that the verifier follows. Where arguments
 * are read directly it is given one (bpf_rdonly_cast came in 6.2, before the
 * tracepoint of data ready): bpf_probe_read_kernel would cost a call, and be
 * refused by a kernel in lockdown.
 */
#ifdef RAW_TRACEPOINTS
#define AS_SHARED_INFO(address) ((const struct skb_shared_info *)(address))
#define READ_SHARED(shared, member) BPF_CORE_READ(shared, member)
#else
extern void *bpf_rdonly_cast(const void *address, __u32 type) __attribute__((section(".ksyms")));
#define AS_SHARED_INFO(address)                                         \
	((const struct skb_shared_info *)bpf_rdonly_cast(               \
		(address), bpf_core_type_id_kernel(struct skb_shared_info)))
#define READ_SHARED(shared, member) ((shared)->member)
#endif

/* receive_stamp returns when the device received a packet, by its own clock; 0
 * where the packet does not tell. */
static __always_inline __u64 receive_stamp(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = AS_SHARED_INFO(READ(skb, head) + READ(skb, end));
	__u64 stamp = READ_SHARED(shared, hwtstamps.hwtstamp);

	if (stamp && READ_SHARED(shared, tx_flags) & SKBTX_HW_TSTAMP_NETDEV)
		return 0;
	return stamp;
}

/*
 * stamped_wait returns how long the packet waited that data became ready with,
 * the last in the socket's queue, by its time stamp, and takes note of it.
 * Without a usable stamp the wait is what polls say.
 */
static __always_inline __u64 stamped_wait(const struct sock *sk, __u32 clock_index, __u64 now,
					  __u64 by_polls)
{
	struct device_clock *clock = bpf_map_lookup_elem(&clocks, &clock_index);
	struct napi_delays *waits = delays_of(clock_index / 2);
	__s64 since, wait;
	__u64 stamp = 0;

	if (!clock || !waits || now > clock->valid_until)
		return by_polls;
	if (READ(sk, sk_receive_queue.qlen))
		stamp = receive_stamp(READ(sk, sk_receive_queue.prev));
	if (!stamp) {
		__sync_fetch_and_add(&waits->unstamped, 1);
		return by_polls;
	}
	since = stamp - clock->phc;
	if (since > MAX_CLOCK_AGE || since < -MAX_CLOCK_AGE)
		goto refuse;
	wait = now - (clock->monotonic + since + ((since * clock->rate) >> 32));
	if (wait < 0 && wait >= -(__s64)clock->error)
		wait = 0;
	if (wait < 0 || wait > MAX_STAMPED_WAIT)
		goto refuse;
	record(&waits->stamped_wait, wait, 1);
	return wait;
refuse:
	__sync_fetch_and_add(&waits->refused, 1);
	return by_polls;
}

#endif
