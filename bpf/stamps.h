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

/* receive_stamp returns when the device received a packet, by its own clock; 0
 * where the packet does not tell. */
static __always_inline __u64 receive_stamp(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared;
	__u64 stamp = 0;
	__u8 flags = 0;

	shared = (const void *)(READ(skb, head) + READ(skb, end));
	if (bpf_core_read(&stamp, sizeof(stamp), &shared->hwtstamps.hwtstamp) || !stamp)
		return 0;
	if (bpf_core_read(&flags, sizeof(flags), &shared->tx_flags) || flags & SKBTX_HW_TSTAMP_NETDEV)
		return 0;
	return stamp;
}

/*
 * stamped_wait returns how long the packet waited that data became ready with,
 * by its time stamp, and takes note of it. The packet is the last in the
 * socket's queue where it is not known. Without a usable stamp the wait is what
 * polls say.
 */
static __noinline __u64 stamped_wait(const struct sock *sk, const struct sk_buff *skb, __u32 clock_index,
				     __u64 now, __u64 by_polls)
{
	struct device_clock *clock = bpf_map_lookup_elem(&clocks, &clock_index);
	struct napi_delays *waits = delays_of(clock_index / 2);
	__s64 since, wait;
	__u64 stamp = 0;

	if (!clock || !waits || now > clock->valid_until)
		return by_polls;
	if (!skb && READ(sk, sk_receive_queue.qlen))
		skb = READ(sk, sk_receive_queue.prev);
	if (skb)
		stamp = receive_stamp(skb);
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
